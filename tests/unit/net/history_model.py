"""A small source database for property tests: applies random steps to rows, and writes what PostgreSQL would log of them.

Rows are `(id, a, big)`; a `big` value that an update leaves as it is goes into the log as an unchanged one. Streamed
transactions are cut into chunks that lie anywhere in the log; rolled-back savepoints are in the log where it is streamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.model.batch import LogRange
from engine.model.identity import Ordinal
from engine.model.position import Lsn
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.net.batch_builder import FIRST

OID = 100
Row = tuple[int, str | None, str | None]
_TEXTS: tuple[str | None, ...] = (None, "", "x", "null", "long value")


@dataclass(frozen=True)
class Step:
    """One random step; the numbers choose rows, keys and texts of those that there are."""

    verb: str
    row: int
    other: int
    text: int
    keep: bool


@dataclass(frozen=True)
class Transaction:
    """`parts`: runs of steps with how they end: `top`, `saved` (savepoint released) or `rolled_back`.

    `streamed`: chunk lengths in steps, or none; `place`: orders the chunks of all transactions in the log.
    """

    parts: Sequence[tuple[str, Sequence[Step]]]
    streamed: Sequence[int]
    place: Sequence[int]


@dataclass
class History:
    """What became of the rows, and the log."""

    rows: list[Row]
    full: bool
    keyed: bool
    next_xid: int = 500
    chunks: list[tuple[int, list[bytes]]] = field(default_factory=list)
    """(place, records) in the order of creation."""
    owners: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    """Per chunk: (streamed xid or 0, aborted)."""

    def run(self, transaction: Transaction) -> None:
        top, aborted, messages = self._xid(), set[int](), list[bytes]()
        streamed = bool(transaction.streamed)
        for ending, steps in transaction.parts:
            xid = top if ending == "top" else self._xid()
            before = list(self.rows)
            written = [m for step in steps for m in self._step(step, xid if streamed else 0)]
            if ending == "rolled_back":
                self.rows = before
                aborted.add(xid)
            if streamed or ending != "rolled_back":
                messages += written
        if not streamed:
            self._add(transaction.place[0], [pgoutput.begin(1, top), *messages, pgoutput.commit(1, 2)], 0, frozenset())
            return
        pieces, at = [], 0
        for length in transaction.streamed:
            pieces.append(messages[at : at + length])
            at += length
        pieces.append(messages[at:])
        for n, piece in enumerate(pieces):
            chunk = [pgoutput.stream_start(top, n == 0), *piece, pgoutput.stream_stop()]
            self._add(transaction.place[n % len(transaction.place)], chunk, top, frozenset(aborted))

    def log(self) -> tuple[list[bytes], list[LogRange]]:
        """All records as they lie in the queue, and the ranges in commit order."""
        records: list[bytes] = []
        ranges: dict[int, LogRange] = {}
        for n in sorted(range(len(self.chunks)), key=lambda n: self.chunks[n][0]):
            start = FIRST + len(records)
            records += self.chunks[n][1]
            xid, aborted = self.owners[n]
            ranges[n] = LogRange(Ordinal(start), Ordinal(FIRST + len(records)), Lsn(10 + n), xid, aborted)
        return records, [ranges[n] for n in range(len(self.chunks))]

    def _xid(self) -> int:
        self.next_xid += 1
        return self.next_xid

    def _add(self, place: int, records: list[bytes], xid: int, aborted: frozenset[int]) -> None:
        self.chunks.append((place, records))
        self.owners.append((xid, aborted))

    def _step(self, step: Step, xid: int) -> list[bytes]:
        if step.verb == "truncate":
            self.rows = []
            return [pgoutput.truncate([7, OID], xid)]
        if step.verb == "insert":
            return self._insert(step, xid)
        if not self.rows:
            return []
        at = step.row % len(self.rows)
        if step.verb == "delete":
            row = self.rows.pop(at)
            return [pgoutput.delete(OID, self._old(row), "O" if self.full else "K", xid)]
        if step.verb == "swap" and self.keyed:
            return self._swap(at, step.other % len(self.rows), xid)
        key = self.rows[at][0]
        if step.verb == "move":
            key = step.other if not self.keyed or self._free(step.other) else key
        big = self.rows[at][2] if step.keep else _TEXTS[step.other % len(_TEXTS)]
        return [self._update(at, (key, _TEXTS[step.text % len(_TEXTS)], big), xid)]

    def _insert(self, step: Step, xid: int) -> list[bytes]:
        if self.keyed and not self._free(step.other):
            return []
        row = (step.other, _TEXTS[step.text % len(_TEXTS)], _TEXTS[step.row % len(_TEXTS)])
        self.rows.append(row)
        return [pgoutput.insert(OID, [str(row[0]), row[1], row[2]], xid)]

    def _swap(self, a: int, b: int, xid: int) -> list[bytes]:
        """With whole old images the two keys collide for a moment, as under a deferred constraint; else over a third."""
        if a == b:
            return []
        first, second = self.rows[a], self.rows[b]
        steps = [(a, second[0]), (b, first[0])] if self.full else [(a, -1), (b, first[0]), (a, second[0])]
        return [self._update(at, (key, *self.rows[at][1:]), xid) for at, key in steps]

    def _update(self, at: int, row: Row, xid: int) -> bytes:
        old = self.rows[at]
        self.rows[at] = row
        big = pgoutput.UNCHANGED if row[2] == old[2] and row[2] is not None else row[2]
        new = [str(row[0]), row[1], big]
        if self.full:
            return pgoutput.update(OID, new, self._old(old), "O", xid)
        if row[0] != old[0]:
            return pgoutput.update(OID, new, self._old(old), "K", xid)
        return pgoutput.update(OID, new, xid=xid)

    def _old(self, row: Row) -> list[pgoutput.Value]:
        return [str(row[0]), row[1], row[2]] if self.full else [str(row[0]), None, None]

    def _free(self, key: int) -> bool:
        return all(row[0] != key for row in self.rows)
