"""The bytes that a source sends, session by session, and how they land in blocks of raw records in front of the sorter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from engine.model.batch import BlockRef, LogRange
from engine.model.control import CONTROL_FIELDS, ControlKind
from engine.model.identity import Ordinal
from engine.records.change_counts import ChangeCounter
from engine.records.scan import find_controls
from engine.sort.committed import Controls
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.net.batch_builder import FIRST

_COLUMNS = ("id", "a", "big")


class RawLog:
    """Records as they arrive. `flush` lands what has come in as one block and gives its control records."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.blocks: list[BlockRef] = []
        self.held: dict[str, tuple[Any, Any]] = {}
        self.borders = [0]
        """Bytes before each landed record."""
        self.late = 0
        """How many of the records that have come in a flush leaves where they are."""
        self._index: list[tuple[Controls, Mapping[int, bytes]]] = []
        """Everything flushed so far."""
        self._stream = 0
        self._counter = ChangeCounter()
        self._sessions: list[int] = []

    @property
    def landed(self) -> int:
        """How many records have landed."""
        return len(self.borders) - 1

    @property
    def next_ordinal(self) -> int:
        return FIRST + len(self.records)

    def append(self, record: bytes) -> None:
        self.records.append(record)

    def begin_session(self) -> None:
        """A new connection. What came in the one before and has not landed is lost."""
        del self.records[self.landed :]
        self._sessions.append(self.next_ordinal)
        self._stream = 0
        self._counter = ChangeCounter()

    def flush(self) -> tuple[Controls, Mapping[int, bytes]]:
        marks = np.array([(ControlKind.SESSION, at, 0, 0, 0, 0, 0) for at in self._sessions], CONTROL_FIELDS)
        self._sessions = []
        new = self.records[self.landed : len(self.records) - self.late]
        controls, relations = self._land(new) if new else (marks[:0], {})
        self._index.append((np.concatenate([marks, controls]), relations))
        return self._index[-1]

    def reread(self) -> tuple[Controls, Mapping[int, bytes]]:
        """Everything flushed so far, as a new engine reads it that starts with what has landed."""
        relations = {at: record for _, found in self._index for at, record in found.items()}
        return np.concatenate([np.empty(0, CONTROL_FIELDS), *(controls for controls, _ in self._index)]), relations

    def empty(self) -> None:
        """A new engine starts, and keeps nothing of what has landed."""
        self._index = []
        self.forget(self.next_ordinal)

    def forget(self, below: int) -> None:
        """Drop the blocks whose records all precede this ordinal."""
        for block in self.blocks:
            if block.first + block.count <= below:
                self.held.pop(block.path, None)
        self.blocks = [block for block in self.blocks if block.path in self.held]

    def _land(self, new: list[bytes]) -> tuple[Controls, Mapping[int, bytes]]:
        first = FIRST + self.landed
        data, offsets = pgoutput.pack(new)
        controls, self._stream = find_controls(data, offsets, self._stream)
        self._counter.count(data, offsets, controls)
        controls["ordinal"] += first
        block = BlockRef(f"block{first}", 0, len(data), 0, Ordinal(first), len(new))
        self.blocks.append(block)
        self.held[block.path] = (data, offsets)
        self.borders += list(accumulate(map(len, new), initial=self.borders[-1]))[1:]
        relations = controls["ordinal"][controls["kind"] == ControlKind.RELATION].tolist()
        return controls, {at: new[at - first] for at in relations}

    def bytes_of(self, start: int, stop: int) -> int:
        return self.borders[stop - FIRST] - self.borders[start - FIRST]

    def blocks_of(self, ranges: Sequence[LogRange]) -> tuple[BlockRef, ...]:
        """The blocks that hold records of the ranges."""
        return tuple(
            block
            for block in self.blocks
            if any(part.start < block.first + block.count and block.first < part.stop for part in ranges)
        )

    def read(self, blocks: Sequence[BlockRef]) -> Iterator[tuple[Any, Any]]:
        return (self.held[block.path] for block in blocks)


def relation_record(oid: int, xid: int = 0) -> bytes:
    return pgoutput.relation(oid, _COLUMNS, xid)
