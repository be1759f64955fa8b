"""A small language for logs: one record or command per line; runs them through sorter and batcher and prints what came of it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.model import merged_logs
from engine.model.batch import LogRange, RelationSeen, SealedBatch
from engine.model.control import CONTROL_FIELDS, ControlKind
from engine.model.position import Lsn
from engine.model.subscription import BatchPolicy
from engine.sort.batcher import Batcher
from engine.sort.committed import CommittedTransactions, Controls, TransactionRun
from engine.sort.sorter import TransactionSorter
from tests.unit.net import pgoutput_encoder as pgoutput

RECORD_BYTES = 10


@dataclass(slots=True)
class LogFeed:
    """Collects control records with running ordinals, and hands them to the sorter in one go per `flush`."""

    next_ordinal: int = 0
    stream: int = 0
    rows: list[tuple[int, int, int, int, int, int, int]] = field(default_factory=list)
    relations: dict[int, bytes] = field(default_factory=dict)

    def change(self) -> int:
        """A row change: a record that is no control record."""
        self.next_ordinal += 1
        return self.next_ordinal - 1

    def control(
        self, kind: ControlKind, xid: int = 0, subxid: int = 0, end: int = 0, time_us: int = 0, commit_lsn: int = 0
    ) -> int:
        ordinal = self.next_ordinal
        self.rows.append((kind, ordinal, xid, subxid, end, time_us, commit_lsn))
        if kind is not ControlKind.SESSION:
            self.next_ordinal += 1
        if kind is ControlKind.STREAM_START:
            self.stream = xid
        elif kind is ControlKind.STREAM_STOP or kind is ControlKind.SESSION:
            self.stream = 0
        return ordinal

    def relation(self, oid: int) -> int:
        ordinal = self.control(ControlKind.RELATION, xid=self.stream)
        inside = struct.pack(">I", self.stream) if self.stream else b""
        self.relations[ordinal] = b"R" + inside + struct.pack(">I", oid) + b"public\0t\0"
        return ordinal

    def logs(self, content: bytes) -> int:
        """A message about merged logs."""
        ordinal = self.control(ControlKind.MESSAGE, xid=self.stream)
        self.relations[ordinal] = pgoutput.message(merged_logs.PREFIX, content, self.stream)
        return ordinal

    def flush(self) -> tuple[Controls, dict[int, bytes]]:
        controls = np.array(self.rows, dtype=CONTROL_FIELDS)
        relations = self.relations
        self.rows, self.relations = [], {}
        return controls, relations


def bytes_of(start: int, stop: int) -> int:
    """Every record counts ten bytes."""
    return RECORD_BYTES * (stop - start)


def run_script(lines: Sequence[str], policy: BatchPolicy, after: int) -> list[str]:
    """Run the script; one line per closed item, batch and answer."""
    return _Script(policy, after).run(lines)


_RECORDS = {
    "begin": ControlKind.BEGIN,
    "truncate": ControlKind.TRUNCATE,
    "message": ControlKind.MESSAGE,
    "start": ControlKind.STREAM_START,
    "stop": ControlKind.STREAM_STOP,
    "session": ControlKind.SESSION,
}


class _Script:
    def __init__(self, policy: BatchPolicy, after: int) -> None:
        self.sorter = TransactionSorter(Lsn(after))
        self.batcher = Batcher(policy, Lsn(after))
        self.log = LogFeed()
        self.now = 0
        self.out: list[str] = []

    def run(self, lines: Sequence[str]) -> list[str]:
        for line in lines:
            word, *numbers = line.split("#")[0].split()
            if word == "logs":
                self.log.logs(numbers[0].encode())
                continue
            self._step(word, [int(number) for number in numbers])
        self._feed()
        return self.out

    def _step(self, word: str, numbers: list[int]) -> None:
        if word == "change":
            for _ in range(numbers[0] if numbers else 1):
                self.log.change()
        elif word == "relation":
            self.log.relation(numbers[0])
        elif word == "commit":
            end, *mark = numbers
            commit_lsn = merged_logs.commit_mark(mark[0], Lsn(mark[1])) if mark else 0
            self.log.control(ControlKind.COMMIT, end=end, time_us=end * 1000, commit_lsn=commit_lsn)
        elif word == "stream-commit":
            self.log.control(ControlKind.STREAM_COMMIT, xid=numbers[0], end=numbers[1], time_us=numbers[1] * 1000)
        elif word == "abort":
            self.log.control(ControlKind.STREAM_ABORT, xid=numbers[0], subxid=numbers[-1])
        elif word in _RECORDS:
            self.log.control(_RECORDS[word], *numbers)
        else:
            self._feed()
            self._command(word, numbers)

    def _feed(self) -> None:
        self.sorter.feed(*self.log.flush())
        closed = self.sorter.drain()
        self.out.extend(show_closed(one) for one in closed)
        self.batcher.add(closed, self.now)

    def _command(self, word: str, numbers: list[int]) -> None:
        if word == "wal":
            self.batcher.advance(Lsn(numbers[0]))
        elif word == "demand":
            self.batcher.demand(Lsn(numbers[0]))
        elif word == "cut":
            answer = self.batcher.request_cut(Lsn(numbers[0]))
            self.out.append(f"cut {numbers[0]}: {'taken' if answer else 'too late'}")
        elif word == "hold":
            self.batcher.hold_back(numbers[0])
        elif word == "release":
            self.batcher.let_go(numbers[0])
        elif word == "done":
            self.batcher.in_flight_done()
        elif word == "at":
            self._seal(numbers[0])
        elif word == "open":
            self.out.append(f"oldest open: {self.sorter.oldest_open_ordinal()}")
        elif word != "feed":
            raise ValueError(word)

    def _seal(self, now: int) -> None:
        self.now = now
        while (batch := self.batcher.seal(now, bytes_of)) is not None:
            self.out.append(show_batch(batch))


def show_closed(closed: CommittedTransactions) -> str:
    name = f"{closed.count} plain" if isinstance(closed, TransactionRun) else f"streamed {closed.xid}"
    return f"closed {name} to {closed.last_end}:{_ranges(closed.ranges())}{_relations(closed.announcements)}"


def show_batch(batch: SealedBatch) -> str:
    notes = " demanded" if batch.demanded else ""
    notes += "".join(f" cut {cut.value}" for cut in batch.cuts)
    ranges = _ranges(batch.ranges)
    head = f"batch {batch.after.value}..{batch.end.value} transactions {batch.transactions}{notes}:"
    logs = f" {batch.last.logs.text}" if batch.last is not None and batch.last.logs is not None else ""
    return f"{head}{ranges}{_relations(batch.relations)}{logs}"


def _ranges(ranges: Sequence[LogRange]) -> str:
    return "".join(
        f" [{part.start},{part.stop})@{part.end.value}"
        + (f" of {part.xid}" if part.xid else "")
        + (f" less {sorted(part.aborted)}" if part.aborted else "")
        for part in ranges
    )


def _relations(relations: Sequence[object]) -> str:
    return "".join(f" R{seen.relation}@{seen.ordinal}" for seen in relations if isinstance(seen, RelationSeen))
