"""The stream of the merged log: reads the nodes' streams side by side, merges them, and confirms to each node what is durable."""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np

from engine.model.control import ControlKind
from engine.model.fault import FaultKind
from engine.model.identity import TicketId
from engine.model.merged_logs import Away, LogsMessage, MergedLogs
from engine.model.position import Lsn
from engine.model.source import RecordChunk
from engine.records.change_counts import ChangeCounter
from engine.records.scan import find_controls
from engine.sort.merge import LogMerge
from engine.sort.merge_records import Closed, Global, InDoubt, LocalRun, Merged, Order, Passed
from engine.sources.postgres_log.stream import CHUNK_BYTES
from engine.sources.postgres_logs.consistent_cut import ConsistentCut, CutState, NodeSnapshot
from engine.sources.postgres_logs.late_rows import LateRows
from engine.sources.postgres_logs.merged_chunk import ChunkWriter
from engine.sources.postgres_logs.merged_numbers import NEVER, ROOM, MergedNumbers
from engine.sources.postgres_logs.merged_records import Numbered
from engine.sources.postgres_logs.node_ends import NodeEnds
from engine.sources.postgres_logs.node_log import Naming, NodeLog, is_part
from engine.sources.postgres_logs.node_session import NodeSession
from engine.sources.postgres_logs.parts import Bundled, Part
from engine.sources.postgres_logs.relations import Numbers, Relations, Structure, Why
from engine.sources.postgres_logs.requests import RequestedCuts, RequestedMarks

HELD_BYTES = 64 * 1024 * 1024
"""Bytes of memory of a node's transactions that wait for the merge. From there on it is read only if nothing could be released otherwise,
and they are moved to disk before. What is on disk has no limit of its own, as stopping there would be for ever. Not measured."""
_ASK_S = 0.010
"""Seconds between two requests to a node for its position, while something waits for it."""
_TELL_S = 1.0
"""Seconds between two records of the nodes' positions in the merged log. Nodes release their logs up to these: what a session needs of them
is in the target with the data. Not measured."""
_STATE_S = 0.2
"""Seconds between two notes of the stream's state for others."""
_UNREAD_S = 2.0
"""Seconds after the last note of the state from which on the stream is not being read: twice what a read waits. Not measured."""
_STUCK_S = 1.0
"""Seconds without anything of a node that others wait for, after which that may take long. Not measured."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where transactions are kept that wait for the merge: up to `memory_bytes` of each node in memory, and what has to be read beyond that
    in files in `folder` (see Spool). `structures`: the structures of tables at the end of the last session; `keep_structures` records
    them."""

    folder: Path | None = None
    memory_bytes: int = HELD_BYTES
    structures: Callable[[], Mapping[int, Structure]] = dict
    keep_structures: Callable[[Mapping[int, Structure]], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class MergeRules:
    """How the logs are merged."""

    order: Order
    naming: Naming
    keeping: Keeping = Keeping()


@dataclass(frozen=True, slots=True)
class NodeStreams:
    """The open streams of all nodes, by number, with their names; and what takes the ends of their logs.

    `ends`: for the merge; `asked`: for requests. `opened`: everything that is to be closed with the stream.
    """

    names: tuple[str, ...]
    streams: tuple[NodeSession, ...]
    ends: NodeEnds
    asked: NodeEnds
    opened: ExitStack


@dataclass(frozen=True, slots=True)
class StreamState:
    """How far a stream is. `read`: by node's name; `late`: see MergedStream.waits_for; `held_since_us`: see LogMerge.held_since.

    `away`: the nodes that cannot be read. `silent_since_us`: of the late ones, since when nothing was read of each, microseconds since 1970
    UTC.
    """

    read: Mapping[str, int]
    late: frozenset[str]
    held_since_us: int
    at_s: float
    away: Mapping[str, Away] = field(default_factory=dict)
    silent_since_us: Mapping[str, int] = field(default_factory=dict)

    def next(
        self, read: Mapping[str, int], late: frozenset[str], held_since_us: int, away: Mapping[str, Away]
    ) -> StreamState:
        """The state now, which follows this one."""
        now_us, before = time.time_ns() // 1000, self.silent_now()
        silent = {name: before.get(name, now_us) if read[name] == self.read.get(name) else now_us for name in late}
        return StreamState(read, late, held_since_us, time.monotonic(), away, silent)

    def silent_now(self) -> Mapping[str, int]:
        """`silent_since_us` without the time in which the stream was not read: no node is silent by that."""
        unread_s = time.monotonic() - self.at_s
        return {
            name: since_us + (round(unread_s * 1e6) if unread_s > _UNREAD_S else 0)
            for name, since_us in self.silent_since_us.items()
        }

    @property
    def is_stuck(self) -> bool:
        """Whether it may take long until a node is read further."""
        since = min(self.silent_since_us.values(), default=None)
        return bool(self.away) or (since is not None and time.time_ns() // 1000 - since > _STUCK_S * 1e6)


@dataclass(slots=True)
class _Told:
    """What the merged log says of the logs. `read`: by node."""

    read: list[int]
    closed: list[tuple[str, int, Lsn, int]] = field(default_factory=list)
    """Not written yet."""
    kept: list[int] = field(default_factory=list)
    """By node, up to where it may release its log."""
    at_s: float = 0.0


class MergedStream:
    """`LogStream` over several nodes. Used by one thread."""

    def __init__(
        self,
        nodes: NodeStreams,
        rules: MergeRules,
        catalog: Numbers,
        numbers: MergedNumbers,
        kept: MergedLogs,
        wake: int | None = None,
    ) -> None:
        """`numbers`: from the position on up to which the engine has the merged log; `kept`: the state of the logs there."""
        self._nodes = nodes
        count = len(nodes.streams)
        after = [log.read.value for log in kept.nodes]
        self._merge = LogMerge(count, rules.order, after, kept.open)
        self._relations = relations = Relations(catalog, count, rules.keeping.structures())
        self._keeping = rules.keeping
        folder = rules.keeping.folder
        self._late_rows = late = LateRows(count)
        late.cover([log.value for log in kept.kept] or after)
        self._again = {node for node in range(count) if _comes_again(kept, node)}
        """Nodes of which it is not read again yet which rows had arrived on them. Until it is, changes of other nodes that are late would
        not be known as such, so nothing is released."""
        self._begun: Sequence[int] | None = None
        """By node, the end of its log, taken after the session began; None: not yet."""
        self._logs = [NodeLog(node, rules.naming, self._merge, relations, late, folder) for node in range(count)]
        for log in self._logs:
            nodes.opened.callback(log.close)
        self._writer = ChunkWriter(self._logs, relations, late, CHUNK_BYTES)
        self._writing: Iterator[None] | None = None
        """Of what the merge has released and is not written yet."""
        self._numbers = numbers
        self._requested = RequestedMarks(numbers, nodes.asked, count, lambda: self.state.is_stuck)
        self.cuts = RequestedCuts(nodes.asked)
        """Cuts that other threads request."""
        self._wake = wake
        self._out: deque[RecordChunk] = deque()
        self._counter = ChangeCounter()
        self._told = _Told(after)
        self._confirmable: deque[tuple[int, list[int]]] = deque()
        """By position of the merged log: what each node may release once that is durable."""
        self._cut: ConsistentCut | None = None
        self.cut_position: Lsn | None = None
        """The position of the last cut that is complete."""
        self._asked_s = self._rows_asked_s = 0.0
        self.state = StreamState({}, frozenset(), 0, 0.0)
        """As of at most _STATE_S before the last read. It may be read by any thread."""
        self._marked: list[int] = [0] * count
        """By node, the last end of its log that was taken."""
        # Transactions have numbers below every mark that an earlier reader has given, until all is read that was committed by now.
        self._first = self._numbers.mark([NEVER] * count, ROOM)
        self._write_position([(node, Lsn(position)) for node, position in enumerate(after)])
        nodes.ends.ask()
        self._merge.ask_marks()
        late.ask(after)

    @property
    def verified(self) -> bool:
        return all(stream.verified for stream in self._nodes.streams)

    @property
    def waits_for(self) -> frozenset[str]:
        """The names of the nodes that have to be read further, for what was read of others."""
        return frozenset(self._nodes.names[node] for node in self._merge.waits_for() | self._again)

    @property
    def spooled_bytes(self) -> int:
        """Bytes on disk of transactions that wait for the merge."""
        return sum(log.spooled_bytes for log in self._logs)

    def mark(self, positions: Mapping[str, Lsn]) -> Lsn:
        """A position of the merged log that is reached when everything up to these positions of nodes is in it."""
        wanted = [positions.get(name, Lsn(0)).value for name in self._nodes.names]
        self._mark(wanted)
        return Lsn(self._numbers.mark(wanted))

    def request_mark(self, *, flushed: bool) -> Lsn:
        """A position that is reached when everything that was committed before this call is in the merged log. From any thread.

        `flushed`: the nodes flush their logs up to there, by a write.
        """
        return self._requested.request(flushed=flushed)

    def request_ticket(self, ticket: TicketId) -> Lsn:
        """As `request_mark`, flushed; the transaction that ends at the position has the ticket's marker. From any thread."""
        return self._requested.request(flushed=True, ticket=ticket)

    def begin_cut(self) -> None:
        """Release nothing until the snapshots are given, or `end_cut`. An earlier cut ends."""
        self.end_cut()
        self._cut = ConsistentCut(self._merge, self._logs)
        self.cut_position = None

    def take_snapshots(self, snapshots: Sequence[NodeSnapshot]) -> None:
        """The nodes' snapshots, by number; they were taken since `begin_cut`."""
        if self._cut is not None:
            self._cut.take(snapshots)
            self._mark(self._cut.ends or [])

    def end_cut(self) -> None:
        """Continue to release. Idempotent."""
        self._cut = None
        self._merge.hold(None)

    @property
    def cut_state(self) -> CutState | None:
        """Of the cut that has begun; None before the first, and after `end_cut`."""
        return None if self._cut is None else self._cut.state

    def read(self, timeout_s: float) -> RecordChunk | None:
        deadline = time.monotonic() + timeout_s
        while not self._out:
            self._receive()
            self._advance()
            if self._out:
                break
            if not self._wait(deadline):
                return None
        return self._out.popleft()

    def confirm(self, durable: Lsn) -> None:
        reached: list[int] | None = None
        while self._confirmable and self._confirmable[0][0] <= durable.value:
            _, reached = self._confirmable.popleft()
        if reached is not None:
            for stream, position in zip(self._nodes.streams, reached, strict=True):
                stream.confirm(Lsn(position))

    def ask_position(self) -> None:
        for stream in self._nodes.streams:
            stream.ask_position()

    def close(self) -> None:
        self._nodes.opened.close()

    def _receive(self) -> None:
        """Read what has arrived of each node, unless its stream pauses."""
        self._resume()
        read = self._read_now()
        for node, (stream, log) in enumerate(zip(self._nodes.streams, self._logs, strict=True)):
            if node in read and log.held_bytes >= self._keeping.memory_bytes:
                log.spool()
            while log.held_bytes < self._keeping.memory_bytes:
                chunk = stream.read(0.0)
                if chunk is None:
                    break
                log.feed(chunk)
                self._merge.heard(node, chunk.wal_end.value, stream.clock_us if chunk.count == 0 else 0)

    def _resume(self) -> None:
        """Continue with nodes that are there again."""
        for node, (stream, log) in enumerate(zip(self._nodes.streams, self._logs, strict=True)):
            if stream.resume():
                log.begin_again(self._merge.reads()[node])
                self._nodes.ends.hurry()
                self._nodes.asked.hurry()

    def _away(self) -> dict[str, Away]:
        pairs = zip(self._nodes.names, self._nodes.streams, strict=True)
        return {name: stream.away for name, stream in pairs if stream.away is not None}

    def _releases(self) -> bool:
        """Whether anything may be released. While a node is away, some numbers are left before the first mark, which only it can reach."""
        self._again -= {node for node in self._again if self._is_read_again(node)}
        if self._again:
            return False
        if self._cut is not None and self._cut.step() is CutState.FROZEN:
            return False
        return not (self._numbers.are_short() and self._away())

    def _is_read_again(self, node: int) -> bool:
        # A part that its log does not have any more does not come.
        past = self._begun is not None and self._merge.reads()[node] >= self._begun[node]
        return past or self._merge.is_read_again(node)

    def _read_now(self) -> Collection[int]:
        """The nodes that are read: those whose transactions fit in memory, and those without which nothing more could be released."""
        found = {node for node, log in enumerate(self._logs) if log.held_bytes < self._keeping.memory_bytes}
        if len(found) < len(self._logs) and self._writing is None:
            found |= self._merge.to_read() | self._again
            if self._cut is not None:
                found |= self._cut.to_read()
        return found

    def _advance(self) -> None:
        """Release what can be released, and write it."""
        self._take_ends()
        if self._cut is not None and self._away():
            self._cut.give_up()
        self.cuts.step(self)
        if self._writing is None and self._releases():
            self._writing = self._write_all(self._merge.release())
        for _ in self._writing or ():
            self._note_state()
            return  # A chunk is made, and more follow.
        self._writing = None
        now = time.monotonic()
        included = self._merge.released_to()
        self._late_rows.advance(included)
        due = now >= self._rows_asked_s + _TELL_S and self._late_rows.wants_ends() and not self._merge.is_asking
        if due or self._merge.wants_marks():
            self._rows_asked_s = now
            self._merge.ask_marks()
            self._late_rows.ask(included)
            self._nodes.ends.ask()
        self._note_state()
        # A wait may be for a position of a node.
        if self._numbers.is_due(included) or time.monotonic() >= self._told.at_s + _TELL_S:
            self._tell(included)
        self._flush()
        if self._cut is not None and self._cut.state is CutState.HELD:
            self._finish_cut(self._cut)
        if self._numbers.reach(included):
            self._write_markers()
            self._out.append(_nothing(Lsn(self._numbers.last)))
        self._ask_late()

    def _note_state(self) -> None:
        if time.monotonic() < self.state.at_s + _STATE_S:
            return
        names, away = self._nodes.names, self._away()
        # Ends of logs are taken of all nodes, so while one is away the merge waits for every one.
        late = self.waits_for if not away else self._names(self._late()).union(away)
        # A node that is not read for want of memory is none that others wait for.
        late &= {names[node] for node in self._read_now()}.union(away)
        read = dict(zip(names, self._merge.reads(), strict=True))
        held_since_us = self._merge.held_since()
        if self._writing is not None:
            held_since_us = self.state.held_since_us or held_since_us  # What is being written is older.
        self.state = self.state.next(read, late, held_since_us, away)

    def _write_markers(self) -> None:
        """Write the markers of tickets whose marks are reached, at these."""
        for position, markers in groupby(self._requested.take_markers(), lambda marker: marker.position):
            at = Numbered(position.value, 0, 0, time.time_ns() // 1000)
            self._writer.begin(at, None)
            for marker in markers:
                self._writer.marker(marker)
            self._writer.commit(at)
        self._flush()

    def _finish_cut(self, cut: ConsistentCut) -> None:
        if cut.step() is CutState.COMPLETE:
            self._relations.forget()
            self.cut_position = Lsn(self._numbers.take(1))
            self._out.append(_nothing(self.cut_position))
        if cut.state is not CutState.HELD:
            self._merge.hold(None)

    def _take_ends(self) -> None:
        ends = self._nodes.ends.take()
        if ends is not None:
            if self._first:
                self._numbers.place(self._first, ends)
                self._first, self._begun = 0, ends
            self._merge.marked(ends)
            self._late_rows.give(ends)
            self._mark(ends)
        asked = self._requested.step()
        if asked is not None:
            self._mark(asked)

    def _mark(self, ends: Sequence[int]) -> None:
        self._marked = [max(pair) for pair in zip(self._marked, ends, strict=True)]

    def _ask_late(self) -> None:
        """Ask the nodes for their positions that are waited for."""
        now = time.monotonic()
        if now >= self._asked_s + _ASK_S:
            for stream in self._late():
                self._asked_s = now
                stream.ask_position()

    def _late(self) -> list[NodeSession]:
        """The live sessions that were not read up to an end of their log that was taken."""
        ends = zip(self._nodes.streams, self._marked, strict=True)
        return [stream for stream, end in ends if stream.away is None and stream.read_to.value < end]

    def _names(self, streams: Collection[NodeSession]) -> frozenset[str]:
        pairs = zip(self._nodes.names, self._nodes.streams, strict=True)
        return frozenset(name for name, stream in pairs if stream in streams)

    def _write_all(self, released: Sequence[Merged]) -> Iterator[None]:
        """Write what was released. Yields after each chunk that is made before its end."""
        for found in released:
            if isinstance(found, Passed):
                continue
            if isinstance(found, Closed):
                self._told.closed.append((found.gtid, found.node, Lsn(found.end), found.time_us))
                continue
            yield from self._write(found)
            if self._writer.bytes >= CHUNK_BYTES:
                self._flush()
                yield
        self._writer.settle()

    def _write(self, found: LocalRun | Global | InDoubt) -> Iterator[None]:
        if isinstance(found, LocalRun):
            if self._told.closed:
                self._write_position(())
            yield from self._write_local(found)
            for node in np.unique(found.nodes).tolist():
                self._include(node, int(found.ends[found.nodes == node][-1]))
        elif isinstance(found, Global):
            yield from self._write_global(found)
        else:
            self._told.closed.append((found.gtid, found.node, Lsn(found.end), 0))
            self._write_in_doubt(found)

    def _write_local(self, found: LocalRun) -> Iterator[None]:
        at = 0
        for single in [*np.flatnonzero(is_part(found.places)).tolist(), len(found.places)]:
            if single > at:
                part = slice(at, single)
                run = LocalRun(found.nodes[part], found.ends[part], found.times_us[part], found.places[part])
                first = self._numbers.take(single - at)
                self._writer.run(run, np.arange(first, first + single - at, dtype=np.uint64))
            at = single + 1
            if single < len(found.places):
                node, end, time_us, place = (
                    int(column[single]) for column in (found.nodes, found.ends, found.times_us, found.places)
                )
                taken = [self._logs[node].take_part(place)]
                yield from self._write_parts(self._numbered((node, end, time_us), taken), None, taken)

    def _write_global(self, found: Global) -> Iterator[None]:
        named = (found.gtid, found.kind) if found.kind is not None else None
        published = ((found.gtid, found.open),) if found.open else ()
        read = [(node, Lsn(end)) for node, end in found.rollbacks if end > self._told.read[node]]
        message = LogsMessage(published, tuple(self._told.closed), tuple(read), transaction=named)
        why = self._in_doubt(found.gtid, found.rolled_back) if found.rolled_back else None
        told = message if message != LogsMessage() else None
        taken = [self._logs[node].take(place) for node, place in found.parts]
        small = [part for part in taken if isinstance(part, Bundled)]
        at = self._numbered((found.node, found.end, found.time_us), taken)
        if why is None and len(small) == len(taken):
            self._writer.whole(at, told, small)
        else:
            yield from self._write_parts(at, told, [self._single(part) for part in taken], why)
        self._closings_written()
        for node, position in [*read, (found.node, Lsn(found.end))]:
            self._include(node, position.value)

    def _write_in_doubt(self, found: InDoubt) -> None:
        """A part was rolled back after its transaction was published. Which tables it had is not known any more."""
        at = Numbered(self._numbers.take(1), found.node, 0, time.time_ns() // 1000)
        self._writer.begin(at, LogsMessage((), tuple(self._told.closed)))
        self._writer.all_again(self._in_doubt(found.gtid, [found.node]))
        self._writer.commit(at)
        self._closings_written()

    def _single(self, part: Part | Bundled) -> Part:
        return part if isinstance(part, Part) else self._logs[part.bundle.view.node].unbundled(part)

    def _numbered(self, released: tuple[int, int, int], parts: Sequence[Part | Bundled]) -> Numbered:
        """The next transaction, which has these parts. `released`: node, end and time of the record at which it is released."""
        return Numbered(self._numbers.take(1), *released, parts[0].xid if len(parts) == 1 else 0)

    def _write_parts(
        self, at: Numbered, message: LogsMessage | None, parts: Sequence[Part], why: Why | None = None
    ) -> Iterator[None]:
        """Write the transaction with these parts. `why`: its tables have to be copied again, and its rows are left out."""
        self._writer.begin(at, message)
        if why is not None:
            self._writer.without_rows(parts, why)
        for _ in self._writer.parts(parts) if why is None else ():
            self._flush(Lsn(at.number - 1))
            yield
        self._writer.commit(at)

    def _tell(self, included: Sequence[int]) -> None:
        """Write what has changed of the nodes' positions. Everything that was released is written.

        A part that is prepared has to come again in a session that begins before its transaction, so its node's log is kept.
        """
        read = [(node, Lsn(now)) for node, now in enumerate(included) if now > self._told.read[node]]
        kept = self._late_rows.held(self._merge.releases_log())
        if read or self._told.closed or kept != self._told.kept:
            self._told.kept = kept
            self._write_position(read, tuple(map(Lsn, kept)))
            self._merge.told(self._told.read)
            self._confirmable.append((self._numbers.last, kept))

    def _write_position(self, read: Sequence[tuple[int, Lsn]], kept: tuple[Lsn, ...] = ()) -> None:
        """Write a transaction that has only positions of nodes."""
        message = LogsMessage((), tuple(self._told.closed), tuple(read), kept)
        at = Numbered(self._numbers.take(1), 0, 0, time.time_ns() // 1000)
        self._writer.begin(at, message)
        self._writer.commit(at)
        self._closings_written()
        for node, position in read:
            self._include(node, position.value)
        self._told.at_s = time.monotonic()

    def _closings_written(self) -> None:
        for _, node, end, _ in self._told.closed:
            self._include(node, end.value)
        self._told.closed.clear()

    def _include(self, node: int, position: int) -> None:
        self._told.read[node] = max(self._told.read[node], position)

    def _flush(self, end: Lsn | None = None) -> None:
        """Make a chunk of what was written. `end`: of the last whole transaction, if another one has begun."""
        if self._writer.bytes == 0:
            return
        data, offsets, written = self._writer.take()
        if self._relations.is_changed:
            self._keeping.keep_structures(self._relations.present)
            self._relations.is_changed = False
        controls, _ = find_controls(data, offsets, 0)
        self._counter.count(data, offsets, controls)
        # Messages of the nodes are none of the engine's own here: they belong to subscriptions that read a node by itself.
        known = [*controls["ordinal"][controls["kind"] == ControlKind.RELATION].tolist(), *written]
        payloads = {at: data[offsets[at] : offsets[at + 1]].tobytes() for at in known}
        position = Lsn(self._numbers.last) if end is None else end
        self._out.append(RecordChunk(data, offsets, controls, payloads, position))

    def _wait(self, deadline: float) -> bool:
        """Wait for something to do. False at the deadline, or if `wake` is readable."""
        now = time.monotonic()
        until = min(deadline, now + (_ASK_S if self._late() else _TELL_S))
        watched = [self._nodes.ends.answered, self._nodes.asked.answered, *([] if self._wake is None else [self._wake])]
        for node in self._read_now():
            stream = self._nodes.streams[node]
            pause, descriptor = stream.pause_s, stream.fileno()
            if pause:
                until = min(until, now + pause)
            elif descriptor is not None:
                watched.append(descriptor)
        ready, _, _ = select.select(watched, [], [], max(0.0, until - now))
        return self._wake not in ready and time.monotonic() < deadline

    def _in_doubt(self, gtid: str, nodes: Sequence[int]) -> Why:
        names = ", ".join(self._nodes.names[node] for node in nodes)
        reason = f"global transaction {gtid} was committed on one node and rolled back on {names}"
        return Why(FaultKind.GLOBAL_IN_DOUBT, reason)


def _comes_again(kept: MergedLogs, node: int) -> bool:
    """Whether a session is sent what earlier ones have read of a node."""
    log = kept.nodes[node]
    released = kept.kept[node] if kept.kept else log.after
    return released < log.read or any(node in waiting for waiting in kept.open.values())


def _nothing(position: Lsn) -> RecordChunk:
    """Only the position has moved."""
    controls, _ = find_controls(np.empty(0, np.uint8), np.zeros(1, np.int32), 0)
    return RecordChunk(np.empty(0, np.uint8), np.zeros(1, np.int32), controls, {}, position)
