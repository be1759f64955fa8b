"""A model of several databases whose logs are merged: what they commit, what their logs say, and what a reader may see of it when.

Each key of each node holds an amount. Transactions move amounts between keys, so that their sum over all nodes never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.sort.merge import LogMerge
from engine.sort.merge_records import Closed, Entry, EntryKind, Global, LocalRun, Merged, Order, Passed

KEYS = 3
Writes = dict[tuple[int, int], int]


@dataclass
class Record:
    """A record of a node's log. `kind` None: a local transaction. `writes`: what the part wrote."""

    kind: EntryKind | None
    begin: int
    end: int
    time_us: int
    writes: Writes
    name: str
    """Of the unit: which transaction it belongs to, unlike a gtid never used again."""
    gtid: str = ""
    participants: frozenset[int] | None = None


@dataclass
class Running:
    """A global transaction on its way. `steps`: what its coordinator does next."""

    name: str
    gtid: str
    steps: list[tuple[EntryKind, int]]
    writes: dict[int, Writes]
    participants: frozenset[int] | None
    own: bool
    prepared: list[int] = field(default_factory=list)
    decided: bool = False


class World:
    """Several databases, a coordinator, and their clocks."""

    def __init__(self, nodes: int) -> None:
        self.logs: list[list[Record]] = [[] for _ in range(nodes)]
        self.values = {(node, key): 100 for node in range(nodes) for key in range(KEYS)}
        self.start = dict(self.values)
        self.offsets = [0] * nodes
        self.now = 1_000
        self.locked: dict[tuple[int, int], str] = {}
        self.running: list[Running] = []
        self.committed: dict[str, Writes] = {}
        """What each transaction wrote that is decided, by name."""
        self.local: dict[str, int] = {}
        self._count = 0
        self._free: list[tuple[str, tuple[int, ...], bool]] = []
        """Ids that may be used again, by the same nodes in the same roles: uses by other nodes cannot be distinguished."""

    def end_of(self, node: int) -> int:
        return self.logs[node][-1].end if self.logs[node] else 0

    def transfer(self, node: int, one: int, other: int, amount: int) -> None:
        """A local transaction."""
        one, other = (node, one % KEYS), (node, other % KEYS)
        if one == other or one in self.locked or other in self.locked:
            return
        name = self._name("local")
        writes = {one: self.values[one] - amount, other: self.values[other] + amount}
        self._commit(name, writes)
        self.local[name] = node
        self._write(node, None, writes, name)

    def begin(self, nodes: Sequence[int], key: int, amount: int, *, own: bool, named: bool, again: bool) -> None:
        """A global transaction over these nodes. `own`: the first one is the coordinator, and has an ordinary part. `named`: records list
        the participants. `again`: with an id that was used before."""
        places = [(node, key % KEYS) for node in dict.fromkeys(nodes)]
        if any(place in self.locked for place in places):
            return
        name = self._name("global")
        same = [each for each in self._free if each[1:] == (tuple(node for node, _ in places), own)]
        gtid = same[0][0] if again and same else name
        self._free = [each for each in self._free if each[0] != gtid]
        writes: dict[int, Writes] = {}
        rest = 0
        for number, place in enumerate(places):
            change = -rest if number == len(places) - 1 else amount + number
            rest += change
            writes[place[0]] = {place: self.values[place] + change}
            self.locked[place] = name
        members = list(writes)
        prepared = members[1:] if own else members
        steps = [(EntryKind.PREPARE, node) for node in prepared]
        steps += [(EntryKind.OWN_COMMIT, members[0])] if own else []
        steps += [(EntryKind.COMMIT_PREPARED, node) for node in prepared]
        self.running.append(Running(name, gtid, steps, writes, frozenset(members) if named else None, own=own))

    def advance(self, which: int) -> None:
        """The next step of one global transaction."""
        if not self.running:
            return
        one = self.running[which % len(self.running)]
        kind, node = one.steps.pop(0)
        if kind is EntryKind.PREPARE:
            one.prepared.append(node)
        elif kind is not EntryKind.ROLLBACK_PREPARED and not one.decided:
            one.decided = True
            self._commit(one.name, {place: value for part in one.writes.values() for place, value in part.items()})
        if kind is not EntryKind.PREPARE:
            for place in one.writes[node]:
                self.locked.pop(place, None)
        self._write(node, kind, one.writes[node], one.name, one.gtid, one.participants)
        if not one.steps:
            self._end(one)

    def abort(self, which: int) -> None:
        """The coordinator decides to roll back, whatever was prepared by then."""
        if not self.running:
            return
        one = self.running[which % len(self.running)]
        if one.decided or any(kind is EntryKind.ROLLBACK_PREPARED for kind, _ in one.steps):
            return
        one.steps = [(EntryKind.ROLLBACK_PREPARED, node) for node in one.prepared]
        for node, part in one.writes.items():
            if node not in one.prepared:
                for place in part:
                    self.locked.pop(place, None)
        if not one.steps:
            self._end(one)

    def _end(self, one: Running) -> None:
        for part in one.writes.values():
            for place in part:
                if self.locked.get(place) == one.name:
                    del self.locked[place]
        self.running.remove(one)
        self._free.append((one.gtid, tuple(one.writes), one.own))

    def _commit(self, name: str, writes: Writes) -> None:
        self.values.update(writes)
        self.committed[name] = writes

    def _name(self, what: str) -> str:
        self._count += 1
        return f"{what} {self._count}"

    def _write(
        self,
        node: int,
        kind: EntryKind | None,
        writes: Writes,
        name: str,
        gtid: str = "",
        participants: frozenset[int] | None = None,
    ) -> None:
        self.now += 7
        begin = self.end_of(node)
        stamp = max(1, self.now + self.offsets[node])
        listed = None if kind in (EntryKind.COMMIT_PREPARED, EntryKind.ROLLBACK_PREPARED) else participants
        self.logs[node].append(Record(kind, begin, begin + 10, stamp, dict(writes), name, gtid, listed))


@dataclass(frozen=True)
class Kept:
    """What a target has: the units in their order, and what a restart needs."""

    units: tuple[str, ...]
    after: tuple[int, ...]
    unclosed: dict[str, frozenset[int]]
    confirmed: tuple[int, ...]


class Reader:
    """Reads the logs of a world through a merge, and is restarted from what it has kept."""

    def __init__(self, world: World, order: Order) -> None:
        self.world = world
        self.order = order
        count = len(world.logs)
        self.history = [Kept((), (0,) * count, {}, (0,) * count)]
        """What the target had, after each unit that it got."""
        self.restarts = self.cuts = 0
        self.restart(0)

    def restart(self, back: int) -> None:
        """Begin again from what the target had, `back` units ago; but not before what was confirmed to the nodes."""
        kept = self.history[max(0, len(self.history) - 1 - back)]
        confirmed = self.history[-1].confirmed
        while any(was < now for was, now in zip(kept.after, confirmed, strict=True)):
            kept = self.history[self.history.index(kept) + 1]
        del self.history[self.history.index(kept) + 1 :]
        self.history[-1] = Kept(kept.units, kept.after, kept.unclosed, kept.confirmed)
        self.restarts += 1
        self.merge = LogMerge(len(self.world.logs), self.order, list(kept.after), kept.unclosed)
        starts = [min(at, known) for at, known in zip(kept.confirmed, kept.after, strict=True)]
        self.at = [
            next((n for n, record in enumerate(log) if record.begin >= start), len(log))
            for log, start in zip(self.world.logs, starts, strict=True)
        ]
        self.marks: list[int] | None = None
        self.places: list[Record] = []
        self._needed: set[int] = set()

    def read(self, node: int, count: int) -> None:
        """Pass the next records of a node to the merge."""
        log = self.world.logs[node]
        for record in log[self.at[node] : self.at[node] + count]:
            self.places.append(record)
            place = len(self.places) - 1
            if record.kind is None:
                single = (np.array([value], np.int64) for value in (record.end, record.time_us, place))
                self.merge.add_commits(node, *single)
            else:
                entry = Entry(
                    record.kind, record.gtid, record.end, record.time_us, place, record.begin, record.participants
                )
                self.merge.add(node, entry)
        self.at[node] = min(self.at[node] + count, len(log))

    def hear(self, node: int, *, clock: bool) -> None:
        """What was passed in counts as read; at the end of the log with the node's clock."""
        at = self.at[node]
        read = self.world.logs[node][at - 1].end if at else 0
        now = max(1, self.world.now + self.world.offsets[node]) if clock else 0
        self.merge.heard(node, read, now)

    def ask(self) -> None:
        if self.merge.wants_marks():
            self.merge.ask_marks()
            self.marks = [self.world.end_of(node) for node in range(len(self.world.logs))]

    def answer(self, *, lost: bool = False) -> None:
        if self.marks is not None:
            self.merge.marked(None if lost else self.marks)
            self.marks = None

    def release(self) -> None:
        """Take what is released."""
        for found in self.merge.release():
            self._take(found)
        last = self.history[-1]
        after = tuple(max(pair) for pair in zip(last.after, self.merge.released_to(), strict=True))
        confirmed = tuple(max(pair) for pair in zip(last.confirmed, self.merge.releases_log(), strict=True))
        self.history[-1] = Kept(last.units, after, last.unclosed, confirmed)

    def cut(self, back: int) -> None:
        """Hold the merge where snapshots of the nodes could have been taken, now or some records ago, until all of them are there. Unless a
        global transaction is only in some of them, they are what was released."""
        ends = []
        for log, passed in zip(self.world.logs, self.history[-1].after, strict=True):
            places = [record.end for record in log if record.end >= passed]
            ends.append(places[max(0, len(places) - 1 - back)] if places else passed)
        self.merge.hold(ends)
        self.answer(lost=True)
        for _ in range(2 + 4 * sum(map(len, self.world.logs))):
            if self.merge.is_held() or self.merge.is_torn():
                break
            self._read_all()
            self.release()
            self.ask()
            self.answer()
        assert self.merge.is_held() != self.merge.is_torn()
        if self.merge.is_held() and not self.merge.unclosed():
            self.cuts += 1
            assert self._values() == self._snapshots(ends)
        self.merge.hold(None)

    def _values(self) -> Writes:
        values = dict(self.world.start)
        for name in self.history[-1].units:
            values.update(self.world.committed[name])
        return values

    def _snapshots(self, ends: Sequence[int]) -> Writes:
        """What the nodes have committed up to these positions of theirs."""
        values = dict(self.world.start)
        for log, end in zip(self.world.logs, ends, strict=True):
            for record in log:
                if record.end <= end and record.kind in (None, EntryKind.OWN_COMMIT, EntryKind.COMMIT_PREPARED):
                    values.update(record.writes)
        return values

    def _read_all(self) -> None:
        for node, log in enumerate(self.world.logs):
            self.read(node, len(log))
            self.hear(node, clock=False)

    def finish(self) -> None:
        """Read everything."""
        self.answer(lost=True)
        for _ in range(2 + 4 * sum(map(len, self.world.logs))):
            self._read_all()
            before = len(self.history[-1].units)
            self.release()
            if len(self.history[-1].units) == before and not self.merge.wants_marks():
                return
            self.ask()
            self.answer()
        raise AssertionError("it never comes to an end")

    def _take(self, found: Merged) -> None:
        last = self.history[-1]
        after, unclosed = list(last.after), dict(last.unclosed)
        if isinstance(found, LocalRun):
            for node, end, place in zip(found.nodes, found.ends, found.places, strict=True):
                after[node] = int(end)
                self._append(self.places[int(place)].name, after, unclosed)
        elif isinstance(found, Global):
            records = [self.places[place] for _, place in found.parts]
            (name,) = {record.name for record in records}
            whole = {place for record in records for place in record.writes}
            assert whole == set(self.world.committed[name]), f"{name} is not whole"
            assert not found.rolled_back
            after[found.node] = found.end
            if found.open:
                unclosed[found.gtid] = unclosed.get(found.gtid, frozenset()) | frozenset(found.open)
            self._append(name, after, unclosed)
        elif isinstance(found, Closed):
            after[found.node] = found.end
            rest = unclosed[found.gtid] - {found.node}
            unclosed = (
                {**unclosed, found.gtid: rest} if rest else {k: v for k, v in unclosed.items() if k != found.gtid}
            )
            self.history[-1] = Kept(last.units, tuple(after), unclosed, last.confirmed)
        else:
            assert isinstance(found, Passed), found

    def _append(self, name: str, after: list[int], unclosed: dict[str, frozenset[int]]) -> None:
        last = self.history[-1]
        assert name not in last.units, f"{name} came twice"
        self.history.append(Kept((*last.units, name), tuple(after), unclosed, last.confirmed))
