"""A small source database for property tests: applies random steps to rows, and writes what PostgreSQL would log of them.

Rows are `(id, a, big)`; a `big` value that an update leaves as it is goes into the log as an unchanged one. Savepoints nest.
`RetainedBatch` is the log of one table whose transactions come one after another: streamed ones are cut into chunks that lie
anywhere in the log, with what was rolled back to a savepoint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine.model.batch import LogRange
from engine.model.identity import Ordinal
from engine.model.position import Lsn
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.net.batch_builder import FIRST

OID = 100
ENDS = 10_000
"""End LSN before the first transaction."""
ELSEWHERE = 7
"""A table in the log that no subscription follows."""
Row = tuple[int, str | None, str | None]
_TEXTS: tuple[str | None, ...] = (None, "", "x", "null", "long value")


@dataclass(frozen=True)
class Step:
    """One random step; the numbers choose tables, rows, keys and texts of those that there are."""

    verb: str
    row: int
    other: int
    text: int
    keep: bool
    table: int = 0


Parts = Sequence[tuple[str, Sequence[Step]]]
"""Runs of steps, and how they lie to savepoints: `saved` and `rolled_back` have one of their own, `nest` opens one that the
next `release` or `undo` ends after its steps, `top` is anywhere."""


@dataclass(frozen=True)
class Transaction:
    """`streamed`: chunk lengths in steps, or none; `place`: orders the chunks of all transactions in the log."""

    parts: Parts
    streamed: Sequence[int]
    place: Sequence[int]


@dataclass(frozen=True)
class Written:
    """One record: what it does to which tables, and its bytes, given the id that it carries inside a stream, else 0."""

    op: str
    oids: tuple[int, ...]
    record: Callable[[int], bytes]


@dataclass
class Table:
    """Rows, and how the log represents their changes: with whole old images or keys, with a key or without, or of inserts only."""

    rows: list[Row]
    full: bool = False
    keyed: bool = True
    oid: int = OID
    appended: bool = False
    key: tuple[int, ...] = (0,)
    replacing: bool = False
    """A row that comes to a key replaces the one that has it, and no two have the same key for a moment."""

    def step(self, step: Step) -> list[Written]:
        """Change the rows; nothing comes of a step that cannot be taken."""
        if step.verb == "insert":
            return self._insert(step)
        if not self.rows or self.appended:
            return []
        at = step.row % len(self.rows)
        if step.verb == "delete":
            return [self._delete(self.rows.pop(at))]
        if step.verb == "swap" and self.keyed:
            return self._swap(at, step.other % len(self.rows))
        old = self.rows[at]
        big = old[2] if step.keep else _TEXTS[step.other % len(_TEXTS)]
        row = (step.other if step.verb == "move" else old[0], self._text(step.text), big)
        if self.keyed and not self.replacing and not self._free(row, but=at):
            row = self._with_key(row, old)
        written = self._update(at, row)
        self._make_room(row, but=at)
        return [written]

    def _insert(self, step: Step) -> list[Written]:
        row = (step.other, self._text(step.text), _TEXTS[step.row % len(_TEXTS)])
        if not self.keyed:
            # Few different rows, so that equal ones meet.
            row = (step.other % 2, self._text(step.text % 2), _TEXTS[step.row % 2])
        elif not self.replacing and not self._free(row):
            return []
        self._make_room(row)
        self.rows.append(row)
        values = _shown(row)
        return [Written("insert", (self.oid,), lambda xid: pgoutput.insert(self.oid, values, xid))]

    def _delete(self, row: Row) -> Written:
        old, kind = self._old(row), "O" if self.full else "K"
        return Written("delete", (self.oid,), lambda xid: pgoutput.delete(self.oid, old, kind, xid))

    def _swap(self, a: int, b: int) -> list[Written]:
        """With whole old images the two keys collide for a moment, as under a deferred constraint; else over a third."""
        if a == b:
            return []
        first, second = self.rows[a], self.rows[b]
        away = self._with_key(first, (-1, first[1], first[2]))
        collide = self.full and not self.replacing
        steps = [] if collide else [(a, away)]
        steps += [(b, self._with_key(second, first)), (a, self._with_key(first, second))]
        if collide:
            steps.reverse()
        return [self._update(at, row) for at, row in steps]

    def _update(self, at: int, row: Row) -> Written:
        before = self.rows[at]
        self.rows[at] = row
        moved = self._key(row) != self._key(before)
        old = self._old(before) if self.full or moved else None
        kind = "O" if self.full else "K"
        new = _shown(row)
        if row[2] == before[2] and row[2] is not None:
            new[2] = pgoutput.UNCHANGED
        return Written("update", (self.oid,), lambda xid: pgoutput.update(self.oid, new, old, kind, xid))

    def _old(self, row: Row) -> list[pgoutput.Value]:
        return [value if self.full or c in self.key else None for c, value in enumerate(_shown(row))]

    def _key(self, row: Row) -> tuple[object, ...]:
        return tuple(row[c] for c in self.key)

    def _with_key(self, row: Row, other: Row) -> Row:
        number = other[0] if 0 in self.key else row[0]
        return number, other[1] if 1 in self.key else row[1], row[2]

    def _free(self, row: Row, but: int = -1) -> bool:
        return all(self._key(row) != self._key(other) for at, other in enumerate(self.rows) if at != but)

    def _make_room(self, row: Row, but: int = -1) -> None:
        if self.replacing:
            self.rows = [other for at, other in enumerate(self.rows) if at == but or self._key(other) != self._key(row)]

    def _text(self, number: int) -> str | None:
        text = _TEXTS[number % len(_TEXTS)]
        return "" if text is None and self.keyed and 1 in self.key else text


def time_of(end: int) -> int:
    """Commit time of the transaction that ends there, in microseconds since 1970 UTC."""
    return pgoutput.PG_EPOCH_US + (end - ENDS) * 1_000_000


def _shown(row: Row) -> list[pgoutput.Value]:
    return [str(row[0]), row[1], row[2]]


def _take(tables: Sequence[Table], step: Step) -> list[Written]:
    table = tables[step.table % len(tables)]
    if step.verb != "truncate":
        return table.step(step)
    also = [t for n, t in enumerate(tables) if t is not table and step.keep and step.other >> n & 1]
    for cleared in (table, *also):
        cleared.rows = []
    oids = [ELSEWHERE, *(t.oid for t in also), table.oid]
    return [Written("truncate", tuple(oids), lambda xid: pgoutput.truncate(oids, xid))]


@dataclass
class _Level:
    """A savepoint: its id, the tables' rows before it, and the ids of savepoints released into it."""

    xid: int
    rows: list[list[Row]]
    inside: list[int] = field(default_factory=list)


@dataclass
class Executed:
    """What a transaction wrote: (own xid, record), or None for the record where that subtransaction was rolled back."""

    items: list[tuple[int, Written | None]] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)


def execute(tables: Sequence[Table], parts: Parts, xid: int, next_xid: Callable[[], int]) -> Executed:
    """Apply the parts to the tables."""
    done, levels = Executed(), [_Level(xid, [])]
    for ending, steps in parts:
        if ending in ("saved", "rolled_back", "nest"):
            levels.append(_Level(next_xid(), [list(t.rows) for t in tables]))
        done.items += [(levels[-1].xid, written) for step in steps for written in _take(tables, step)]
        if ending in ("top", "nest") or len(levels) == 1:
            continue
        level = levels.pop()
        if ending in ("rolled_back", "undo"):
            for table, rows in zip(tables, level.rows, strict=True):
                table.rows = rows
            done.items += [(ended, None) for ended in (*level.inside, level.xid)]
            done.aborted.update(level.inside, [level.xid])
        else:
            levels[-1].inside += [*level.inside, level.xid]
    return done


@dataclass
class History:
    """One table's rows after all transactions so far, and the log of these transactions."""

    rows: list[Row]
    full: bool
    keyed: bool
    replacing: bool = False
    next_xid: int = 500
    chunks: list[tuple[int, list[bytes]]] = field(default_factory=list)
    """(place, records) in the order of creation."""
    owners: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    """Per chunk: (streamed xid or 0, aborted)."""
    numbers: list[int] = field(default_factory=list)
    """Per chunk: the number of its transaction, from 1."""

    def run(self, transaction: Transaction) -> None:
        top, number = self._xid(), max(self.numbers, default=0) + 1
        table = Table(self.rows, self.full, self.keyed, replacing=self.replacing)
        done = execute([table], transaction.parts, top, self._xid)
        self.rows = table.rows
        written = [(own, item) for own, item in done.items if item is not None]
        if not transaction.streamed:
            messages = [item.record(0) for own, item in written if own not in done.aborted]
            end = pgoutput.commit(1, ENDS + number, time_of(ENDS + number))
            self._add(transaction.place[0], [pgoutput.begin(1, top), *messages, end], 0, frozenset(), number)
            return
        messages = [item.record(own) for own, item in written]
        pieces, at = [], 0
        for length in transaction.streamed:
            pieces.append(messages[at : at + length])
            at += length
        pieces.append(messages[at:])
        for n, piece in enumerate(pieces):
            chunk = [pgoutput.stream_start(top, n == 0), *piece, pgoutput.stream_stop()]
            self._add(transaction.place[n % len(transaction.place)], chunk, top, frozenset(done.aborted), number)

    def log(self) -> tuple[list[bytes], list[LogRange]]:
        """All records as they lie in the queue, and the ranges in commit order."""
        records: list[bytes] = []
        ranges: dict[int, LogRange] = {}
        for n in sorted(range(len(self.chunks)), key=lambda n: self.chunks[n][0]):
            start = FIRST + len(records)
            records += self.chunks[n][1]
            xid, aborted = self.owners[n]
            end = ENDS + self.numbers[n]
            time_us = time_of(end) if xid else 0
            ranges[n] = LogRange(Ordinal(start), Ordinal(FIRST + len(records)), Lsn(end), xid, aborted, time_us)
        return records, [ranges[n] for n in range(len(self.chunks))]

    def _xid(self) -> int:
        self.next_xid += 1
        return self.next_xid

    def _add(self, place: int, records: list[bytes], xid: int, aborted: frozenset[int], number: int) -> None:
        self.numbers.append(number)
        self.chunks.append((place, records))
        self.owners.append((xid, aborted))
