"""Removes and masks columns in records before they are written to the queue: in relation records, and in the tuples of row changes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.model.column_selection import TableSelection
from engine.model.control import ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.masks import Mask, MaskMethod, MaskValue, is_usable, masking
from engine.model.source import RecordChunk
from engine.records.messages import XID_BYTES, unstreamed
from engine.records.relation import MASKED_TYPES, Announced, AnnouncedColumn, parse_relation, relation_record
from engine.records.unread import why_unread

_ROW_KINDS = np.zeros(256, np.bool_)
_ROW_KINDS[list(b"IUD")] = True
_LAYOUT_KINDS = (
    ControlKind.RELATION,
    ControlKind.STREAM_START,
    ControlKind.STREAM_STOP,
    ControlKind.STREAM_COMMIT,
    ControlKind.STREAM_ABORT,
)
_WITHOUT_BYTES = frozenset(b"nu")
"""Values of a tuple that are a letter only: NULL, and unchanged TOAST."""


_Action = MaskValue | bool
"""What happens to a column: its mask, or whether it is kept."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """The columns of the rows that follow a relation record."""

    actions: tuple[_Action, ...]
    count: int
    """Columns that are written."""


class RecordSelector:
    """Applies the selections of a subscription's tables to the chunks of one session, in order.

    Every table of the subscription must be in `tables`, those without a selection too: rows of any other relation are written without
    their values, as nothing says what of them may be written. Such a relation may be a table that was removed from the subscription.
    """

    def __init__(self, tables: Iterable[TableSelection], key: str | None = None) -> None:
        """`key`: of hashes; without a usable one, columns that are to be hashed are left out."""
        every = list(tables)
        masks = {mask for table in every for _, mask in table.columns.masks}
        self._masks = {m: masking(m, key) for m in masks if m.method is not MaskMethod.HASH or is_usable(key)}
        self._by_relation = {int(relation): table for table in every for relation in table.relations}
        self._by_name: dict[TableName, TableSelection] = {table.name: table for table in every}
        self._selected: dict[int, TableSelection] = {}
        self._clear: set[int] = set()
        for relation, table in self._by_relation.items():
            self._classify(relation, table)
        self._layouts: dict[int, _Layout] = {}
        self._streamed: dict[int, dict[int, _Layout]] = {}
        """Layouts that open streamed transactions announced, by transaction."""
        self._stream = 0

    def apply(self, chunk: RecordChunk) -> RecordChunk:
        """The chunk with the selected columns only, masked; ordinals, controls and positions stay.

        Raises EngineFault(LOG_UNREADABLE): a record does not have the form that its relation record announced.
        """
        if chunk.count == 0:
            return chunk
        announced = self._announced(chunk)
        rows = self._rows(chunk)
        controls = chunk.controls[np.isin(chunk.controls["kind"], _LAYOUT_KINDS)]
        if not len(rows) and not len(controls):
            return chunk
        replaced: dict[int, bytes] = {}
        at = 0
        for control in controls:
            ordinal = int(control["ordinal"])
            until = int(np.searchsorted(rows, ordinal))
            self._replace_rows(chunk, rows[at:until], replaced)
            at = until
            self._follow(control, chunk, announced, replaced)
        self._replace_rows(chunk, rows[at:], replaced)
        return _rewritten(chunk, replaced) if replaced else chunk

    def _classify(self, relation: int, table: TableSelection) -> None:
        if table.columns:
            self._selected[relation] = table
        else:
            self._clear.add(relation)

    def _announced(self, chunk: RecordChunk) -> dict[int, Announced]:
        """The chunk's relation records by ordinal. Their relations are looked up before any row."""
        found = {}
        of_relations = chunk.controls[chunk.controls["kind"] == ControlKind.RELATION]
        for ordinal, xid in zip(of_relations["ordinal"].tolist(), of_relations["xid"].tolist(), strict=True):
            record = chunk.relations[ordinal]
            one = parse_relation(unstreamed(record) if xid else record)
            table = self._by_relation.get(one.relation) or self._by_name.get(one.name)
            if table is not None and one.relation not in self._selected and one.relation not in self._clear:
                self._classify(one.relation, table)
            found[ordinal] = one
        return found

    def _rows(self, chunk: RecordChunk) -> Any:
        """Ordinals of the row changes that cannot be written as they are."""
        starts = chunk.offsets[:-1]
        ordinals = np.flatnonzero(_ROW_KINDS[chunk.data[starts]])
        if not len(ordinals):
            return ordinals
        at = starts[ordinals].astype(np.int64) + 1 + XID_BYTES * self._in_stream(chunk)[ordinals]
        relations = np.zeros(len(ordinals), np.int64)
        for byte in range(4):
            relations = relations << 8 | chunk.data[at + byte]
        return ordinals[~np.isin(relations, np.fromiter(self._clear, np.int64, len(self._clear)))]

    def _in_stream(self, chunk: RecordChunk) -> Any:
        """For each record, 1 if it is part of a streamed transaction, else 0."""
        change = np.zeros(chunk.count, np.int8)
        for kind, step in ((ControlKind.STREAM_START, 1), (ControlKind.STREAM_STOP, -1)):
            change[chunk.controls["ordinal"][chunk.controls["kind"] == kind]] = step
        return np.cumsum(change, dtype=np.int64) + (1 if self._stream else 0)

    def _follow(
        self, control: Any, chunk: RecordChunk, announced: Mapping[int, Announced], replaced: dict[int, bytes]
    ) -> None:
        kind, xid, ordinal = int(control["kind"]), int(control["xid"]), int(control["ordinal"])
        if kind == ControlKind.RELATION:
            self._learn(announced[ordinal], chunk.relations[ordinal], xid, ordinal, replaced)
        elif kind == ControlKind.STREAM_START:
            self._stream = xid
        elif kind == ControlKind.STREAM_STOP:
            self._stream = 0
        elif kind == ControlKind.STREAM_COMMIT:
            self._layouts |= self._streamed.pop(xid, {})
        elif int(control["subxid"]) == xid:
            self._streamed.pop(xid, None)

    def _learn(self, announced: Announced, record: bytes, xid: int, ordinal: int, replaced: dict[int, bytes]) -> None:
        table = self._selected.get(announced.relation)
        if table is None or why_unread(announced) is not None:
            return
        masks = [table.columns.mask(column.name) for column in announced.columns]
        taken = [
            take and (mask is None or mask in self._masks)
            for take, mask in zip(table.takes([column.name for column in announced.columns]), masks, strict=True)
        ]
        actions = tuple(
            take and (True if mask is None else self._masks[mask]) for take, mask in zip(taken, masks, strict=True)
        )
        layouts = self._streamed.setdefault(xid, {}) if xid else self._layouts
        layouts[announced.relation] = _Layout(actions, sum(taken))
        columns = tuple(
            _masked(column, mask) for column, take, mask in zip(announced.columns, taken, masks, strict=True) if take
        )
        written = relation_record(replace(announced, columns=columns))
        replaced[ordinal] = written[:1] + record[1 : 1 + XID_BYTES] + written[1:] if xid else written

    def _replace_rows(self, chunk: RecordChunk, rows: Any, replaced: dict[int, bytes]) -> None:
        for ordinal in rows.tolist():
            record = chunk.data[chunk.offsets[ordinal] : chunk.offsets[ordinal + 1]].tobytes()
            replaced[ordinal] = self._row(record)

    def _row(self, record: bytes) -> bytes:
        try:
            at = 1 + XID_BYTES if self._stream else 1
            (relation,) = struct.unpack_from(">I", record, at)
            out = bytearray(record[: at + 4])
            at += 4
            layout = None
            if relation in self._selected:
                layout = self._streamed.get(self._stream, {}).get(relation) or self._layouts[relation]
            while at < len(record):
                at = _select_tuple(record, at, layout, out)
        except (KeyError, IndexError, ValueError, struct.error) as error:
            detail = "a row does not have the form that its relation record announced"
            raise EngineFault(FaultKind.LOG_UNREADABLE, "row change", detail) from error
        return bytes(out)


def _masked(column: AnnouncedColumn, mask: Mask | None) -> AnnouncedColumn:
    """The column with the type of its masked values."""
    oid = MASKED_TYPES.get(mask.type_name or "") if mask is not None else None
    return column if oid is None else replace(column, type_oid=oid, modifier=-1)


def _select_tuple(record: bytes, at: int, layout: _Layout | None, out: bytearray) -> int:
    """Append the tuple at `at`, which begins with its letter, with the columns of the layout; None: with none. Returns its end."""
    (count,) = struct.unpack_from(">H", record, at + 1)
    actions = layout.actions if layout is not None else (False,) * count
    if count != len(actions):
        raise ValueError("another number of columns")
    out += record[at : at + 1] + struct.pack(">H", layout.count if layout is not None else 0)
    at += 3
    for action in actions:
        plain = record[at] in _WITHOUT_BYTES
        end = at + 1 if plain else at + 5 + int.from_bytes(record[at + 1 : at + 5], "big")
        if end > len(record):
            raise ValueError("a value is cut")
        if action is True or (action is not False and plain):
            out += record[at:end]
        elif action is not False:
            out += _value(action(record[at + 5 : end]))
        at = end
    return at


def _value(text: bytes | None) -> bytes:
    return b"n" if text is None else b"t" + struct.pack(">I", len(text)) + text


def _rewritten(chunk: RecordChunk, replaced: Mapping[int, bytes]) -> RecordChunk:
    sizes = np.diff(chunk.offsets)
    for ordinal, record in replaced.items():
        sizes[ordinal] = len(record)
    offsets = np.zeros(chunk.count + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    data = np.frombuffer(b"".join(_pieces(chunk, replaced)), np.uint8)
    relations = {ordinal: replaced.get(ordinal, payload) for ordinal, payload in chunk.relations.items()}
    return replace(chunk, data=data, offsets=offsets.astype(np.int32), relations=relations)


def _pieces(chunk: RecordChunk, replaced: Mapping[int, bytes]) -> Iterator[bytes]:
    at = 0
    for ordinal in sorted(replaced):
        yield chunk.data[chunk.offsets[at] : chunk.offsets[ordinal]].tobytes()
        yield replaced[ordinal]
        at = ordinal + 1
    yield chunk.data[chunk.offsets[at] :].tobytes()
