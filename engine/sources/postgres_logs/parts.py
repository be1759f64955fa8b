"""Records of transactions that wait for the merge: whole local ones, and parts of global ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from engine.platform.compiled import Array
from engine.sources.postgres_logs.relations import View
from engine.sources.postgres_logs.spool import Kept, Spool

PIECE_BYTES = 8 * 1024 * 1024
"""Bytes of memory from which on rows of a part are written to disk by themselves, and read from there. Not measured."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive records of a part: their borders from 0 on (int32, count + 1), and data (uint8)."""

    count: int
    kept: Kept


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive records with one view: `data`, and their borders in it (count + 1)."""

    view: View
    data: Array
    offsets: Array

    def cut(self, first: int, stop: int) -> Rows:
        """The records `[first, stop)`, with borders from 0 on (int64)."""
        borders = self.offsets[first : stop + 1].astype(np.int64)
        return Rows(self.view, self.data[borders[0] : borders[-1]], borders - borders[0])

    def fitting(self, first: int, size: int) -> int:
        """The number of the record before which those from `first` on have at most this size."""
        found = np.searchsorted(self.offsets, int(self.offsets[first]) + size, side="right")
        return max(int(found) - 1, first)

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    @property
    def types(self) -> Array:
        """The type of each record: uint8."""
        found: Array = self.data[self.offsets[:-1]]
        return found


@dataclass(slots=True)
class Part:
    """A transaction that is kept by itself, from BEGIN to COMMIT or PREPARE. `views`: the structures of its rows, each from one of its
    records on; `count`: its records; `xid`: its id on the node, 0 = unknown."""

    views: list[tuple[int, View]]
    pieces: list[Piece] = field(default_factory=list)
    count: int = 0
    xid: int = 0

    @property
    def memory_bytes(self) -> int:
        return sum(piece.kept.memory_bytes for piece in self.pieces)

    def rows(self) -> Iterator[tuple[int, Rows]]:
        """Its records, cut where another view begins; each with the number of its first one."""
        at = 0
        for piece in self.pieces:
            for first, rows in self.rows_of(piece, at):
                yield at + first, rows
            at += piece.count

    def rows_of(self, piece: Piece, at: int) -> Iterator[tuple[int, Rows]]:
        """The same of a piece, which begins with the record `at`, with numbers in the piece."""
        offsets, data = piece.kept.read()
        borders = [*self.views[1:], (self.count, self.views[0][1])]
        for (begin, view), (end, _) in zip(self.views, borders, strict=True):
            first, stop = max(begin - at, 0), min(end - at, piece.count)
            if stop - first == piece.count:
                yield 0, Rows(view, data, offsets.astype(np.int64))
            elif stop > first:
                yield first, Rows(view, data, offsets).cut(first, stop)

    def drop(self) -> None:
        """Its rows are not needed any more."""
        for piece in self.pieces:
            piece.kept.drop()

    def move(self, spool: Spool) -> None:
        """Move its rows to the spool, small pieces together."""
        loose = [piece for piece in self.pieces if piece.kept.memory_bytes]
        del self.pieces[len(self.pieces) - len(loose) :]
        while loose:
            sizes = np.cumsum([piece.kept.memory_bytes for piece in loose])
            count = 1 + int(np.searchsorted(sizes[:-1], PIECE_BYTES))
            joined, loose = _joined(loose[:count], spool), loose[count:]
            joined.kept.move()
            self.pieces.append(joined)


@dataclass(slots=True)
class Bundle:
    """Small parts of one chunk, whose records are kept together: their borders from 0 on (int32, count + 1), and data (uint8), without
    relation records. `left`: parts that are not released."""

    view: View
    kept: Kept
    left: int


class Bundled(NamedTuple):
    """A part in a bundle: its records `[first, stop)` there, their size in bytes, and its transaction's id on the node."""

    bundle: Bundle
    first: int
    stop: int
    size: int
    xid: int

    def rows(self) -> Rows:
        offsets, data = self.bundle.kept.read()
        return Rows(self.bundle.view, data, offsets).cut(self.first, self.stop)


class Transactions(NamedTuple):
    """Whole local transactions, one after another: their records, of which each has those from `starts` to before `stops`, and the
    structures of their rows."""

    view: View
    data: Array
    offsets: Array
    starts: Array
    stops: Array


def _joined(pieces: Sequence[Piece], spool: Spool) -> Piece:
    """One piece of several consecutive ones."""
    if len(pieces) == 1:
        return pieces[0]
    borders, data, base = [np.zeros(1, np.int32)], [], 0
    for piece in pieces:
        offsets, records = piece.kept.read()
        borders.append(offsets[1:] + base)
        data.append(records)
        base += len(records)
    return Piece(sum(piece.count for piece in pieces), Kept((np.concatenate(borders), np.concatenate(data)), spool))
