"""Nodes whose logs are given, and a reader that takes apart what the merged log makes of them."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from engine.model.identity import TableName
from engine.model.last_commit import LastCommit
from engine.model.merged_logs import NODE_BIT, MergedLogs, NodeLog
from engine.model.position import Lsn
from engine.model.source import RecordChunk
from engine.model.subscription import BatchPolicy
from engine.model.ticket import TicketMarker
from engine.records.relation import parse_relation
from engine.records.scan import find_controls
from engine.sort.batcher import Batcher
from engine.sort.merge_records import Order
from engine.sort.sorter import TransactionSorter
from engine.sources.postgres_logs.merged_numbers import MergedNumbers
from engine.sources.postgres_logs.merged_stream import Keeping, MergedStream, MergeRules, NodeStreams
from engine.sources.postgres_logs.node_log import Naming
from engine.sources.postgres_logs.node_session import NodeSession
from engine.sources.postgres_logs.relations import Why, reason_of
from tests.pg.postgres_logs.nodes import OWN, SameNumbers
from tests.unit.net import pgoutput_encoder as pgoutput

READS = 10_000
"""Reads of a merged log, after which it counts as stuck."""
Mark = tuple[int, int]
"""Node and end of a commit in its log."""


class Clock:
    """Gives each record of all nodes a later time."""

    def __init__(self) -> None:
        self._us = pgoutput.PG_EPOCH_US

    def next_us(self) -> int:
        self._us += 1
        return self._us


@dataclass
class Log:
    """What one node has written. `ends`: number of records and end of the log after each transaction and decision."""

    node: int
    clock: Clock
    oid: int
    records: list[bytes] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)
    end: int = 100
    columns: tuple[str, ...] = ()

    def local(self, rows: Iterable[bytes], *, columns: Sequence[str] = ("id", "v")) -> int:
        """A local transaction; returns its end. `columns`: those of the table, which is announced if they have changed."""
        begun = self.end
        self._add(pgoutput.begin(begun, 7, self.clock.next_us()))
        return self._ended(rows, columns, pgoutput.commit(begun, begun + 20, self.clock.next_us()))

    def own(self, gtid: str, rows: Iterable[bytes]) -> int:
        """The coordinator's part of a global transaction."""
        named = [pgoutput.message(OWN, gtid.encode()), *rows]
        return self.local(named)

    def prepare(self, gtid: str, rows: Iterable[bytes]) -> int:
        gid, begun = f"{gtid}@{self.node}".encode(), self.end
        self._add(pgoutput.begin_prepare(begun, begun + 20, 7, gid, self.clock.next_us()))
        return self._ended(rows, ("id", "v"), pgoutput.prepare(begun, begun + 20, 7, gid, self.clock.next_us()))

    def finish(self, gtid: str, *, commit: bool) -> int:
        gid, make = f"{gtid}@{self.node}".encode(), pgoutput.commit_prepared if commit else pgoutput.rollback_prepared
        return self._ended((), self.columns, make(self.end, self.end + 20, 7, gid, self.clock.next_us()))

    def insert(self, *values: str) -> bytes:
        return pgoutput.insert(self.oid, values)

    def delete(self, key: str) -> bytes:
        return pgoutput.delete(self.oid, [key, None], "K")

    def chunks(self, sizes: Sequence[int]) -> list[RecordChunk]:
        """The log, cut into chunks of these numbers of records; the rest is one."""
        borders, at = [0], 0
        for size in sizes:
            at = min(at + size, len(self.records))
            borders.append(at)
        borders.append(len(self.records))
        pairs = [(a, b) for a, b in itertools.pairwise(borders) if b > a]
        return [chunk_of(self.records[a:b], self._end_at(b)) for a, b in pairs] + [chunk_of([], self.end)]

    def _end_at(self, records: int) -> int:
        return max((end for count, end in self.ends if count <= records), default=0)

    def _ended(self, rows: Iterable[bytes], columns: Sequence[str], last: bytes) -> int:
        if tuple(columns) != self.columns:
            self.columns = tuple(columns)
            self._add(pgoutput.relation(self.oid, columns, key=["id"]))
        self.records.extend(rows)
        self._add(last)
        end = self.end + 20
        self.end += 100
        self.ends.append((len(self.records), end))
        return end

    def _add(self, record: bytes) -> None:
        self.records.append(record)


def chunk_of(records: Sequence[bytes], end: int) -> RecordChunk:
    """Records as a node's stream gives them."""
    data, offsets = pgoutput.pack(records)
    controls, _ = find_controls(data, offsets, 0, two_phase=True)
    relations = {at: records[at] for at in controls["ordinal"].tolist() if records[at][:1] == b"R"}
    return RecordChunk(data, offsets, controls, relations, Lsn(end))


class FedStream:
    """A node's stream. `None` among the chunks: nothing has arrived for a moment."""

    verified = True
    clock_us = 0
    pause_s = 0.0

    def __init__(self, chunks: Iterable[RecordChunk | None]) -> None:
        self._chunks = iter(chunks)
        self._read, self._write = os.pipe()
        os.write(self._write, b".")
        self.read_to = Lsn(0)
        self.taken = 0
        """Chunks that were read."""

    def read(self, timeout_s: float) -> RecordChunk | None:
        assert timeout_s == 0
        chunk = next(self._chunks, None)
        if chunk is not None:
            self.taken += 1
            self.read_to = max(self.read_to, chunk.wal_end)
        return chunk

    def fileno(self) -> int:
        return self._read

    def ask_position(self) -> None:
        return

    def confirm(self, position: Lsn) -> None:
        del position

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


class KnownEnds:
    """The ends of logs: those that `ends` has when they are asked for."""

    def __init__(self, ends: Sequence[int]) -> None:
        self.ends = ends
        self.answered, self._write = os.pipe()
        self._asked = False

    def ask(self, *, flushed: bool = False) -> None:
        del flushed
        self._asked = True

    def take(self) -> list[int] | None:
        asked, self._asked = self._asked, False
        return list(self.ends) if asked else None

    def notify(self) -> None:
        return

    def hurry(self) -> None:
        return

    def close(self) -> None:
        os.close(self.answered)
        os.close(self._write)


@dataclass(frozen=True, slots=True)
class Merged:
    """A transaction of the merged log. `rows`: its records without those of the merged log itself; `chunks`: how many it came in."""

    mark: Mark
    rows: tuple[bytes, ...]
    chunks: int


ANY = -1
"""Columns of a table that has to be copied again."""


class Follower:
    """Sorts the merged log into transactions as the engine does, each a batch of its own."""

    def __init__(self, after: Lsn, last: LastCommit) -> None:
        self._records: list[tuple[int, bytes]] = []
        self._chunks = 0
        self._sorter = TransactionSorter(after)
        self._batcher = Batcher(BatchPolicy(max_transactions=1, max_bytes=1 << 30, max_age_ms=0), after, last=last)
        self._columns: dict[bytes, int] = {}
        """By the number of a table, as it is in records, the columns that were announced last."""
        self.again: list[Why] = []
        """Why tables have to be copied again."""
        self.found: list[Merged] = []
        self.tickets: list[tuple[TicketMarker, Lsn, int]] = []
        """Markers, each with the end of its batch and the number of transactions with marks before."""
        self.kept = [(after, last)]
        """After each batch: its end, and the state of the log."""

    def land(self, chunk: RecordChunk) -> None:
        base, self._chunks = len(self._records), self._chunks + 1
        data = chunk.data.tobytes()
        borders = zip(chunk.offsets[:-1], chunk.offsets[1:], strict=True)
        self._records += [(self._chunks, data[a:b]) for a, b in borders]
        controls = chunk.controls.copy()
        controls["ordinal"] += base
        self._sorter.feed(controls, {base + at: record for at, record in chunk.relations.items()})
        self._batcher.add(self._sorter.drain(), 0)
        self._batcher.advance(chunk.wal_end)
        while (batch := self._batcher.seal(1, lambda start, stop: stop - start)) is not None:
            self.tickets += [(marker, batch.end, len(self.with_marks)) for marker in batch.tickets]
            for part in batch.ranges:
                self._take(self._records[part.start : part.stop])
            assert batch.last is not None
            self.kept.append((batch.end, batch.last))

    @property
    def with_marks(self) -> list[Merged]:
        """The transactions of nodes, without those that have positions only."""
        return [each for each in self.found if each.mark != (0, 0)]

    def _take(self, records: Sequence[tuple[int, bytes]]) -> None:
        rows: list[bytes] = []
        first = 0
        for chunk, record in records:
            if record[:1] == b"B":
                rows, first = [], chunk
            elif record[:1] == b"C":
                mark = int.from_bytes(record[2:10], "big")
                place = mark >> NODE_BIT, mark & ((1 << NODE_BIT) - 1)
                self.found.append(Merged(place, tuple(rows), chunk - first + 1))
            elif record[:1] == b"R":
                announced = parse_relation(record)
                reason = reason_of(announced)
                self.again += [] if reason is None else [reason]
                self._columns[record[1:5]] = ANY if reason else len(announced.columns)
            elif record[:1] in {b"I", b"D"}:
                assert self._columns[record[1:5]] in (ANY, int.from_bytes(record[6:8], "big"))
                rows.append(record)


def kept_before(nodes: int) -> LastCommit:
    """The state of a log of which nothing is read."""
    return LastCommit.unknown(Lsn(0), logs=MergedLogs(tuple(NodeLog.unknown(Lsn(0)) for _ in range(nodes))))


@contextmanager
def merged(
    streams: Sequence[FedStream | NodeSession],
    ends: Sequence[int],
    keeping: Keeping,
    order: Order = Order.STRICT,
    begin: tuple[Lsn, LastCommit] | None = None,
    own_rows: tuple[TableName, str] | None = None,
) -> Iterator[MergedStream]:
    """The merged log of these streams. `own_rows`: as Naming has it, in place of messages."""
    after, last = begin or (Lsn(0), kept_before(len(streams)))
    assert last.logs is not None
    names = tuple(f"n{number}" for number in range(len(streams)))
    given = tuple(stream if isinstance(stream, NodeSession) else NodeSession(cast("Any", stream)) for stream in streams)
    rounds: Any = KnownEnds(ends), KnownEnds(ends)
    opened = ExitStack()
    for each in (*given, *rounds):
        opened.callback(each.close)
    naming = Naming(re.compile("^(?P<gtid>.+)@"), OWN if own_rows is None else None, names, own_rows)
    rules = MergeRules(order, naming, keeping)
    with closing(
        MergedStream(
            NodeStreams(names, given, *rounds, opened), rules, SameNumbers({"t"}), MergedNumbers(after.value), last.logs
        )
    ) as stream:
        yield stream


def follow(stream: MergedStream, follower: Follower, ends: Mapping[str, Lsn]) -> None:
    """Read until everything up to these positions of nodes is in the merged log."""
    mark = stream.mark(ends)
    for _ in range(READS):
        chunk = stream.read(0.0)
        if chunk is not None:
            follower.land(chunk)
            if chunk.wal_end >= mark:
                return
    raise AssertionError(f"stuck, waits for {stream.waits_for}")
