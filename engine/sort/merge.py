"""Merges the logs of several nodes into one order, in which each global transaction is one transaction.

A global transaction is committed in two phases: its parts on several nodes are prepared, then a coordinator decides, then each node commits
its part. What is known of it lies in different logs, which are read at different speeds and whose clocks differ. The rules:

- The order of each log is kept among its commits, and nothing that follows a node's part of a global transaction comes before it.
- A global transaction is released at the coordinator's commit, or at the first commit of a prepared part where the coordinator has no part.
  By then every part is known: each was prepared before the first commit was written anywhere, so it is enough that every node is read up to
  a position that was taken there after the first commit was seen. No clock decides that.
- Later commits of its other parts only close it. A rollback of a part that was not committed anywhere drops that part.
- `Order.STRICT` puts unrelated transactions in the order of their stamps: commit times made ascending in each log. A node without unread
  records holds the others up until it is known to be read beyond a position that was taken after they were seen; what it writes later is
  stamped later by construction. `Order.CAUSAL` lets unrelated transactions pass.

Pure: who reads the logs passes records, positions and marks in, and gets what can be released. The rules follow the merging of recovery
logs of partition nodes by Liu, Lindsay et al. (CaptureEEE), with completeness by positions in place of timestamps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np

from engine.model.fault import EngineFault, FaultKind
from engine.sort.merge_records import (
    COMMITS,
    NO_ROWS,
    Closed,
    Entry,
    EntryKind,
    Global,
    InDoubt,
    Ints,
    LocalRun,
    Merged,
    Order,
    Passed,
)

_NO_END = np.iinfo(np.int64).max
"""After every position."""


@dataclass(slots=True)
class _Run:
    ends: Ints
    times_us: Ints
    stamps: Ints
    places: Ints


@dataclass(slots=True)
class _Part:
    """`passed`: everything before its record in its log is released."""

    place: int
    begin: int
    stamp: int
    passed: bool = False


@dataclass(slots=True)
class _Global:
    """A global transaction. One id may name several, one after another."""

    gtid: str
    prepared: dict[int, _Part] = field(default_factory=dict)
    own: tuple[int, _Part] | None = None
    """The coordinator's node and part."""
    seen: set[int] = field(default_factory=set)
    """Every node that prepared a part and did not roll it back."""
    rolled_back: set[int] = field(default_factory=set)
    decided: bool = False
    """A commit was read."""
    participants: frozenset[int] | None = None
    marks: Sequence[int] | None = None
    """By node, where its log ended after the first commit was seen."""
    released: bool = False
    stamp: int = 0
    """Of its release."""
    waiting: set[int] = field(default_factory=set)
    """The nodes that have not committed their part since the release."""

    def takes(self, node: int, end: int) -> bool:
        """Whether a part that a node prepared up to `end` can belong to it."""
        late = self.marks is not None and end > self.marks[node]
        return not (node in self.seen or late or (self.own is not None and self.own[0] == node))

    @property
    def commit_stamp(self) -> int:
        """The least one of a commit: later than every prepare."""
        return 1 + max((part.stamp for part in self.prepared.values()), default=-1)


class _Queued(NamedTuple):
    entry: Entry
    stamp: int
    of: _Global
    part: _Part | None = None
    """Of PREPARE."""
    dropped: bool = False
    """A rollback whose part does not belong to `of` any more."""

    @property
    def decides(self) -> bool:
        """Whether its transaction is released at this record."""
        return not (self.of.released or self.part is not None or self.entry.kind is EntryKind.ROLLBACK_PREPARED)


@dataclass(slots=True)
class _Node:
    number: int
    after: int
    """Commits that end at or before were released by an earlier run."""
    passed: int
    """The end of the last record that is not in the queue any more."""
    read: int = 0
    """Everything that ends at or before was passed in."""
    most: int = _NO_END
    """Nothing that ends later is released."""
    queue: deque[_Run | _Queued] = field(default_factory=deque)
    floor: int = 0
    """Every record that is not released is stamped with at least this. While the queue is empty it is the node's virtual time."""
    tail: int = 0
    """The stamp of the last record of the queue."""
    raises: list[tuple[int, int]] = field(default_factory=list)
    """Without records, once read up to the first number: its virtual time is at least the second one."""
    prepared: dict[str, _Global] = field(default_factory=dict)
    """What is prepared on it after the last record that was passed in."""

    def stamped(self, time_us: int) -> int:
        self.tail = max(self.tail, self.floor)
        self.tail = max(self.tail, time_us)
        return self.tail

    def settle(self) -> None:
        """Raise the virtual time of a node without records."""
        if self.queue:
            return
        self.floor = max(self.floor, self.tail)
        for upto, stamp in [each for each in self.raises if each[0] <= self.read]:
            self.raises.remove((upto, stamp))
            self.floor = max(self.floor, stamp)

    @property
    def is_past(self) -> bool:
        """Whether what comes next ends after `most`."""
        if not self.queue:
            return self.read >= self.most
        head = self.queue[0]
        return (int(head.ends[0]) if isinstance(head, _Run) else head.entry.end) > self.most

    @property
    def released_to(self) -> int:
        """Everything that committed up to here was released, or needs no release. Not after the beginning of what follows: the reader of
        a log is sent what begins at or after the position that it confirmed."""
        return self.passed if self.queue else max(self.passed, self.read)


class LogMerge:
    """The merge of the logs of `nodes` nodes. Used by one thread.

    Args:
        nodes: their number; nodes are named by number from 0 on.
        order: see Order.
        after: by node, up to where commits were released by an earlier run. A log may begin before: what is known is dropped.
        unclosed: global transactions that were released, with the nodes that have not committed their part up to `after`.
    """

    def __init__(
        self,
        nodes: int,
        order: Order = Order.STRICT,
        after: Sequence[int] | None = None,
        unclosed: Mapping[str, Collection[int]] | None = None,
    ) -> None:
        after = after or [0] * nodes
        self._order = order
        self._nodes = [_Node(number, after[number], after[number]) for number in range(nodes)]
        self._live: dict[str, list[_Global]] = {}
        """Those that are not released, by id; of one id in the order in which they began."""
        known = [_Global(gtid, released=True, waiting=set(waiting)) for gtid, waiting in (unclosed or {}).items()]
        self._closing = {id(each): each for each in known}
        """Those that are released and wait for commits. One id may name several."""
        self._unclosed = {(each.gtid, node): each for each in known for node in each.waiting}
        """Those of an earlier run, by id and node, until the record was passed in that ends the node's part."""
        self._rollbacks: dict[tuple[str, int], int] = {}
        """By id and node, the end of the last rollback of a part that was not decided, if it is after what `told` was called with."""
        self._undated: list[_Global] = []
        """Decided, and no marks were asked for since."""
        self._asked: list[_Global] | None = None
        """Those that get the marks that are being taken; None: none are."""
        self._raise_to = 0
        self._raised_to = 0

    def add_commits(self, node: int, ends: Ints, times_us: Ints, places: Ints) -> int:
        """Local transactions, in the order of the node's log. `ends` ascend. Returns how many of them are not needed, because they were
        released by an earlier run: the first ones."""
        if not len(ends):
            return 0
        log = self._nodes[node]
        _check_order(log, int(ends[0]))
        log.read = int(ends[-1])
        known = int(np.searchsorted(ends, log.after, side="right"))
        if known < len(ends):
            stamps = np.maximum.accumulate(np.maximum(times_us[known:], log.stamped(0)))
            log.tail = int(stamps[-1])
            log.queue.append(_Run(ends[known:], times_us[known:], stamps, places[known:]))
        return known

    def add(self, node: int, entry: Entry) -> int | None:
        """The next record of a node's log that belongs to a global transaction. Returns the place of a part that is not needed, because it
        was rolled back, or released by an earlier run; None if there is none.

        Raises EngineFault(LOG_UNREADABLE) for a record that cannot follow those before it.
        """
        return self._add(self._nodes[node], entry)

    def add_all(self, node: int, entries: Iterable[Entry]) -> list[tuple[Entry, int]]:
        """As `add` for consecutive records; returns those for which it returns a place, with the place."""
        log = self._nodes[node]
        found = ((entry, self._add(log, entry)) for entry in entries)
        return [(entry, place) for entry, place in found if place is not None]

    def _add(self, log: _Node, entry: Entry) -> int | None:
        if entry.kind is EntryKind.PREPARE:
            # Out of order if it was prepared while a slot was created: it is sent when it is committed then.
            log.read = max(log.read, entry.end)
            return self._prepare(log, entry)
        _check_order(log, entry.end)
        log.read = entry.end
        if entry.kind is EntryKind.OWN_COMMIT:
            return self._own_commit(log, entry)
        return self._end_prepared(log, entry)

    def heard(self, node: int, read: int, clock_us: int = 0) -> None:
        """Everything of a node's log up to `read` was passed in. `clock_us`: its clock when it ended there; 0 = unknown."""
        log = self._nodes[node]
        log.read = max(log.read, read)
        log.settle()
        if not log.queue:
            log.floor = max(log.floor, clock_us)

    def is_prepared(self, node: int, gtid: str) -> bool:
        """Whether a node's part of this global transaction was passed in, and its end was not."""
        return gtid in self._nodes[node].prepared

    def is_read_again(self, node: int) -> bool:
        """Whether everything of a node was passed in that an earlier run has released, as far as its log has that still."""
        log = self._nodes[node]
        return log.read >= log.after and all(gtid in log.prepared for gtid, other in self._unclosed if other == node)

    @property
    def is_asking(self) -> bool:
        """Whether the ends of all logs are being taken."""
        return self._asked is not None

    def wants_marks(self) -> bool:
        """Whether the ends of all logs should be taken now: something waits for a node that may have nothing to say."""
        return self._asked is None and (bool(self._undated) or self._late_stamp() >= max(self._raised_to, 1))

    def ask_marks(self) -> None:
        """The caller begins to take the end of every log; `marked` follows."""
        self._asked, self._undated = self._undated, []
        # One more: of equal stamps that of the smaller node is first.
        self._raise_to = self._late_stamp() + 1 if self._order is Order.STRICT else 0

    def marked(self, ends: Sequence[int] | None) -> None:
        """The ends of all logs, each taken after the last `ask_marks`. None: they could not be taken."""
        asked, self._asked = self._asked or [], None
        if ends is None:
            self._undated = asked + self._undated
            return
        for found in asked:
            found.marks = ends
        self._raised_to = max(self._raised_to, self._raise_to)
        for log, end in zip(self._nodes, ends, strict=True):
            log.raises = [each for each in log.raises if each[1] > log.floor]
            log.raises.append((end, self._raise_to))

    def release(self) -> list[Merged]:
        """What can be released now, in its order.

        Raises EngineFault(LOG_UNREADABLE) if commits of global transactions contradict each other.
        """
        found = list(self._strict() if self._order is Order.STRICT else self._causal())
        self._check_circles()
        return found

    def hold(self, ends: Sequence[int] | None) -> None:
        """Release nothing that ends after these positions, by node, until this is called again; None: everything.

        For a copy of all nodes at one moment: a snapshot of each node has what was committed up to its position, and nothing later. Nothing
        of the kind may be released already.
        """
        for log, end in zip(self._nodes, ends or [_NO_END] * len(self._nodes), strict=True):
            log.most = end

    def is_held(self) -> bool:
        """Whether all that ends up to the positions of `hold` is released."""
        return all(log.read >= log.most and log.is_past for log in self._nodes)

    def is_torn(self) -> bool:
        """Whether the positions of `hold` are not those of one moment: a commit before one of them waits for a record after another one."""
        for log in self._nodes:
            if log.queue and not log.is_past:
                other = self._waits_for(log.queue[0])
                if other is not None and self._nodes[other].is_past:
                    return True
        return False

    def unclosed(self) -> dict[str, frozenset[int]]:
        """Global transactions that are released, with the nodes whose commit of their part is not: snapshots of these nodes do not have
        it."""
        found: dict[str, frozenset[int]] = {}
        for each in self._closing.values():
            found[each.gtid] = found.get(each.gtid, frozenset()) | each.waiting
        return found

    def reads(self) -> list[int]:
        """By node, up to where everything was passed in."""
        return [log.read for log in self._nodes]

    def released_to(self) -> list[int]:
        """By node: everything that committed up to here was released, or needs no release."""
        return [log.released_to for log in self._nodes]

    def releases_log(self) -> list[int]:
        """By node: what a later run may be sent from. Before that, its log has nothing that is prepared and not released.

        After a restart that is known only of what was read again.
        """
        found = [min(log.released_to, log.read) for log in self._nodes]
        for each in self._alive():
            for node, part in each.prepared.items():
                found[node] = min(found[node], part.begin)
        return found

    def waits_for(self) -> frozenset[int]:
        """The nodes that have to be read further, for what was read of others."""
        late = {node for each in self._alive() if each.decided for node in self._unread(each)}
        stamp = self._late_stamp()
        late.update(log.number for log in self._nodes if not log.queue and log.floor < stamp)
        return frozenset(late)

    def held_since(self) -> int:
        """The commit time of the oldest transaction that waits for other nodes, in microseconds since 1970 UTC; 0 if none does."""
        firsts = (next(filter(None, map(_commit_us, log.queue)), 0) for log in self._nodes)
        return min(filter(None, firsts), default=0)

    def held_commits(self, node: int) -> list[int]:
        """The places of a node's local transactions, in ascending order, and of its parts that are committed and not released."""
        found: list[int] = []
        for head in self._nodes[node].queue:
            if isinstance(head, _Run):
                found += head.places.tolist()
            elif head.entry.kind in COMMITS and not head.of.released:
                own, part = head.of.own, head.of.prepared.get(node)
                part = own[1] if own is not None and own[0] == node else part
                found += [] if part is None or part.place == NO_ROWS else [part.place]
        return found

    def told(self, positions: Sequence[int]) -> None:
        """By node: a later run begins with what ends after these positions."""
        for key in [key for key, end in self._rollbacks.items() if end <= positions[key[1]]]:
            del self._rollbacks[key]

    def to_read(self) -> frozenset[int]:
        """The nodes of which one has to be read further before more can be released, once `release` and the marks that were asked for have
        released what they can. Others can wait until then."""
        asked = (each for each in self._alive() if each.marks is not None or each.participants is not None)
        found = {node for each in asked if each.decided for node in self._unread(each)}
        return frozenset(found.union(log.number for log in self._nodes if not log.queue))

    def _prepare(self, log: _Node, entry: Entry) -> int | None:
        again = log.prepared.get(entry.gtid)
        if again is not None:
            return self._replace(log.number, again, entry)
        before = self._unclosed.get((entry.gtid, log.number)) if self._unclosed else None
        if before is not None:
            log.prepared[entry.gtid] = before
            return entry.place
        alive = self._live.get(entry.gtid)
        found = next((each for each in alive if each.takes(log.number, entry.end)), None) if alive else None
        found = found or self._new(entry.gtid)
        stamp = log.stamped(entry.time_us)
        part = found.prepared[log.number] = _Part(entry.place, entry.begin, stamp)
        found.seen.add(log.number)
        found.rolled_back.discard(log.number)
        log.prepared[entry.gtid] = found
        if entry.participants is not None:
            self._name(found, entry.participants)
        log.queue.append(_Queued(entry, stamp, found, part))
        return None

    @staticmethod
    def _replace(node: int, found: _Global, entry: Entry) -> int:
        """A part is sent again, before the record that ends it: its rows count once."""
        if found.released:
            return entry.place
        part = found.prepared[node]
        unneeded, part.place = part.place, entry.place
        return unneeded

    def _own_commit(self, log: _Node, entry: Entry) -> int | None:
        if entry.end <= log.after:
            return entry.place
        alive = self._live.get(entry.gtid, ())
        found = next((each for each in alive if each.own is None), None) or self._new(entry.gtid)
        stamp = log.stamped(entry.time_us)
        found.own = log.number, _Part(entry.place, entry.begin, stamp)
        if entry.participants is not None:
            self._name(found, entry.participants)
        self._decide(found)
        log.queue.append(_Queued(entry, stamp, found))
        return None

    def _end_prepared(self, log: _Node, entry: Entry) -> int | None:
        found = log.prepared.pop(entry.gtid, None)
        if entry.end <= log.after:
            return None if found is None else self._drop(log.number, found)
        if self._unclosed:
            found = self._unclosed.pop((entry.gtid, log.number), found)
        if found is None:
            if entry.kind is EntryKind.ROLLBACK_PREPARED:
                return None
            # A part that only locked rows: some versions send nothing when it is prepared.
            self._prepare(log, entry._replace(kind=EntryKind.PREPARE, place=NO_ROWS, begin=entry.end))
            found = log.prepared.pop(entry.gtid)
        unneeded, dropped = None, entry.kind is EntryKind.ROLLBACK_PREPARED and not found.released
        if dropped:
            # An id may be used again for another try, in which this node prepares its part once more.
            unneeded = self._drop(log.number, found)
            found.rolled_back.add(log.number)
            self._rollbacks[entry.gtid, log.number] = entry.end
        elif not found.released:
            self._decide(found)
        log.queue.append(_Queued(entry, log.stamped(entry.time_us), found, dropped=dropped))
        return unneeded

    def _alive(self) -> Iterator[_Global]:
        return chain.from_iterable(self._live.values())

    def _new(self, gtid: str) -> _Global:
        found = _Global(gtid)
        self._live.setdefault(gtid, []).append(found)
        return found

    def _drop(self, node: int, found: _Global) -> int | None:
        """A part does not belong to it any more. Returns its place; None if its rows are not kept."""
        if found.released:
            return None
        part = found.prepared.pop(node)
        found.seen.discard(node)
        if not found.prepared and found.own is None:
            self._leave(found)
        return None if part.place == NO_ROWS else part.place

    def _leave(self, found: _Global) -> None:
        alive = self._live[found.gtid]
        alive[:] = [each for each in alive if each is not found]
        if not alive:
            del self._live[found.gtid]

    @staticmethod
    def _name(found: _Global, participants: frozenset[int]) -> None:
        found.participants = (found.participants or frozenset()) | participants

    def _decide(self, found: _Global) -> None:
        if not found.decided:
            found.decided = True
            self._undated.append(found)

    def _unread(self, found: _Global) -> list[int]:
        """The nodes that have to be read further before every part is known."""
        if found.participants is not None:
            parts = found.seen if found.own is None else found.seen | {found.own[0]}
            # A part that was prepared before the restart may have ended before it, which its log says up to `after`.
            again = {node for node in found.participants if self._nodes[node].read < self._nodes[node].after}
            if not found.participants - parts | again:
                return []
        # A participant may have no part here: its log begins after the part, or it has changed nothing.
        if found.marks is None:
            return [log.number for log in self._nodes]
        return [log.number for log, mark in zip(self._nodes, found.marks, strict=True) if log.read < mark]

    def _late_stamp(self) -> int:
        """The latest stamp of a record that is not released, if the order follows stamps."""
        if self._order is not Order.STRICT:
            return 0
        return max((max(log.tail, self._stamp(log)) for log in self._nodes if log.queue), default=0)

    def _stamp(self, log: _Node) -> int:
        """Of a node's next record; its virtual time if it has none."""
        if not log.queue:
            log.settle()
            return log.floor
        head = log.queue[0]
        return max(int(head.stamps[0]) if isinstance(head, _Run) else _least(head), log.floor)

    def _waits_for(self, head: _Run | _Queued) -> int | None:
        """Another node, if the commit of a global transaction comes after a record that is in that node's queue still: one of its prepares,
        with what precedes it there, or the coordinator's commit."""
        if isinstance(head, _Run) or not head.decides:
            return None
        for node, part in head.of.prepared.items():
            if not part.passed:
                return node
        if head.entry.kind is EntryKind.COMMIT_PREPARED and head.of.own is not None:
            return head.of.own[0]
        return None

    def _causal(self) -> Iterator[Merged]:
        """What each node has until it waits for another one, as often as that releases something."""
        released = True
        while released:
            released = False
            for log in self._nodes:
                while log.queue and not log.is_past:
                    head = log.queue[0]
                    if isinstance(head, _Queued):
                        if head.decides and (self._waits_for(head) is not None or self._unread(head.of)):
                            break
                        # Stamps decide on nothing.
                        yield self._deliver(log, head, 0)
                    else:
                        count = _up_to(head, log.most)
                        self._cut(log, head, count, log.floor)
                        nodes = np.full(count, log.number, np.uint8)
                        yield LocalRun(nodes, head.ends[:count], head.times_us[:count], head.places[:count])
                    released = True

    def _strict(self) -> Iterator[Merged]:
        while (found := self._next_of_all()) is not None:
            yield found

    def _next_of_all(self) -> Merged | None:
        nodes, first, least = [], None, _NO_END
        for log in self._nodes:
            # What waits for a record of another log comes after it, whatever its stamp is.
            if not log.is_past and (not log.queue or self._waits_for(log.queue[0]) is None):
                nodes.append(log)
                stamp = self._stamp(log)
                if stamp < least:
                    first, least = log, stamp
        if first is None or not first.queue:
            return None
        head = first.queue[0]
        if isinstance(head, _Run):
            return self._runs(nodes)
        if head.decides and self._unread(head.of):
            return None
        return self._deliver(first, head, least)

    def _runs(self, nodes: Sequence[_Node]) -> LocalRun:
        """The local transactions that come before everything else."""
        limits = {log.number: self._limit(log) for log in nodes}
        taken: list[tuple[_Run, Ints, int]] = []
        for log in nodes:
            head = log.queue[0] if log.queue else None
            if not isinstance(head, _Run):
                continue
            stamps = np.maximum(head.stamps, log.floor)
            others = [limit for number, limit in limits.items() if number != log.number]
            count = len(stamps) if not others else _before(stamps, log.number, *min(others))
            count = min(count, _up_to(head, log.most))
            if count:
                taken.append((head, stamps[:count], log.number))
        for head, stamps, number in taken:
            self._cut(self._nodes[number], head, len(stamps), int(stamps[-1]))
        order = np.argsort(np.concatenate([stamps for _, stamps, _ in taken]), kind="stable")
        numbers = np.concatenate([np.full(len(stamps), number, np.uint8) for _, stamps, number in taken])
        ends = np.concatenate([head.ends[: len(stamps)] for head, stamps, _ in taken])
        times = np.concatenate([head.times_us[: len(stamps)] for head, stamps, _ in taken])
        places = np.concatenate([head.places[: len(stamps)] for head, stamps, _ in taken])
        return LocalRun(numbers[order], ends[order], times[order], places[order])

    def _limit(self, log: _Node) -> tuple[int, int]:
        """The least stamp and node of what follows a node's first run, or of what it may write still."""
        if not log.queue or not isinstance(log.queue[0], _Run):
            return self._stamp(log), log.number
        last = max(int(log.queue[0].stamps[-1]), log.floor)
        if len(log.queue) == 1:
            return last, log.number
        following = log.queue[1]
        return max(last, int(following.stamps[0]) if isinstance(following, _Run) else _least(following)), log.number

    @staticmethod
    def _cut(log: _Node, run: _Run, count: int, stamp: int) -> None:
        log.floor, log.passed = max(log.floor, stamp), int(run.ends[count - 1])
        log.queue.popleft()
        if count < len(run.ends):
            rest = _Run(run.ends[count:], run.times_us[count:], run.stamps[count:], run.places[count:])
            log.queue.appendleft(rest)

    def _deliver(self, log: _Node, queued: _Queued, stamp: int) -> Merged:
        """Process a node's next record."""
        log.queue.popleft()
        entry, found, node = queued.entry, queued.of, log.number
        log.floor = max(log.floor, stamp)
        log.passed = max(log.passed, entry.end)
        if queued.part is not None:
            queued.part.passed = True
        if queued.part is not None or queued.dropped:
            return Passed(entry.kind, entry.gtid, node, entry.end)
        if found.released:
            found.waiting.discard(node)
            if not found.waiting:
                self._closing.pop(id(found), None)
            if entry.kind is EntryKind.ROLLBACK_PREPARED:
                return InDoubt(entry.gtid, node, entry.end)
            return Closed(entry.gtid, node, entry.end, entry.time_us)
        return self._publish(found, node, entry, stamp)

    def _publish(self, found: _Global, node: int, entry: Entry, stamp: int) -> Global:
        self._leave(found)
        found.released, found.stamp = True, stamp
        found.waiting = {each for each in found.prepared if each != node}
        if found.waiting:
            self._closing[id(found)] = found
        parts = {each: part.place for each, part in found.prepared.items() if part.place != NO_ROWS}
        if found.own is not None:
            parts[found.own[0]] = found.own[1].place
        waiting = tuple(sorted(found.waiting))
        rolled_back = tuple(sorted(found.rolled_back))
        placed, own = tuple(sorted(parts.items())), found.own is not None
        ends = ((each, self._rollbacks.get((found.gtid, each), 0)) for each in waiting if self._rollbacks)
        rollbacks = tuple((each, end) for each, end in ends if end)
        return Global(entry.gtid, node, entry.end, entry.time_us, placed, waiting, rolled_back, own, rollbacks)

    def _check_circles(self) -> None:
        """Commits that wait for each other in a circle: no order of their logs is possible."""
        for log in self._nodes:
            met: set[int] = set()
            at: int | None = log.number
            while at is not None:
                if at in met:
                    raise _unreadable(
                        "commits of global transactions contradict each other: an id was used again too soon"
                    )
                met.add(at)
                queue = self._nodes[at].queue
                at = self._waits_for(queue[0]) if queue else None


def _commit_us(queued: _Run | _Queued) -> int:
    """When it was committed, in microseconds since 1970 UTC; 0 if it is no commit. Nothing is late by a prepare."""
    if isinstance(queued, _Run):
        return int(queued.stamps[0])
    return queued.entry.time_us if queued.entry.kind in COMMITS else 0


def _least(queued: _Queued) -> int:
    """The record's stamp: after everything that it depends on in other logs, as far as that is known."""
    found = queued.of
    if queued.part is not None or queued.entry.kind is EntryKind.ROLLBACK_PREPARED:
        return queued.stamp
    if found.released:
        return max(queued.stamp, found.stamp + 1)
    return max(queued.stamp, found.commit_stamp)


def _up_to(run: _Run, end: int) -> int:
    """How many transactions of a run end at or before this position."""
    return int(np.searchsorted(run.ends, end, side="right"))


def _before(stamps: Ints, node: int, limit: int, other: int) -> int:
    """How many of a node's ascending stamps come before a stamp of another node; of equal ones that of the smaller node is first."""
    if node < other:
        return int(np.searchsorted(stamps, limit, side="right"))
    return int(np.searchsorted(stamps, limit, side="left"))


def _check_order(log: _Node, end: int) -> None:
    if end <= log.read:
        raise _unreadable(f"the log of node {log.number} does not ascend")


def _unreadable(detail: str) -> EngineFault:
    return EngineFault(FaultKind.LOG_UNREADABLE, "merge", detail)
