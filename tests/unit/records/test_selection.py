"""Columns that are left out of records, compared with a plain model of the log, in chunks that end anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.column_selection import ColumnSelection, TableSelection
from engine.model.control import ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.position import Lsn
from engine.model.source import RecordChunk
from engine.records.scan import find_controls
from engine.records.selection import RecordSelector
from tests.unit.net import pgoutput_encoder as pgoutput

SELECTED, CLEAR, FOREIGN = 7, 8, 9
COLUMNS = ("id", "secret", "name", "secret_too", "note")
TAKEN = [0, 2, 4]
TABLES = (
    TableSelection(TableName("public", "s"), frozenset({RelationId(SELECTED)}), ColumnSelection((), ("secret*",))),
    TableSelection(TableName("public", "c"), frozenset({RelationId(CLEAR)}), ColumnSelection()),
)


def chunks(records: Sequence[bytes], borders: Sequence[int]) -> list[RecordChunk]:
    found, stream = [], 0
    for low, high in zip([0, *borders], [*borders, len(records)], strict=True):
        part = list(records[low:high])
        data, offsets = pgoutput.pack(part)
        controls, stream = find_controls(data, offsets, stream)
        relations = controls["ordinal"][controls["kind"] == ControlKind.RELATION].tolist()
        found.append(RecordChunk(data, offsets, controls, {at: part[at] for at in relations}, Lsn(high)))
    return found


def records_of(chunk: RecordChunk) -> list[bytes]:
    return [chunk.data[chunk.offsets[i] : chunk.offsets[i + 1]].tobytes() for i in range(chunk.count)]


def kept(oid: int, values: Sequence[Any]) -> list[Any]:
    if oid == FOREIGN:
        return []
    return [values[i] for i in TAKEN] if oid == SELECTED else list(values)


values = st.one_of(st.none(), st.just(pgoutput.UNCHANGED), st.text(max_size=5))
rows = st.lists(values, min_size=len(COLUMNS), max_size=len(COLUMNS))
changes = st.tuples(st.sampled_from([SELECTED, CLEAR, FOREIGN]), st.sampled_from("IUKOD"), rows, rows)


def change(oid: int, kind: str, new: Sequence[Any], old: Sequence[Any], xid: int) -> bytes:
    if kind == "I":
        return pgoutput.insert(oid, new, xid)
    if kind == "D":
        return pgoutput.delete(oid, old, xid=xid)
    return pgoutput.update(oid, new, None if kind == "U" else old, "O" if kind == "U" else kind, xid)


@given(st.lists(st.tuples(st.booleans(), st.lists(changes, max_size=4)), max_size=5), st.data())
def test_every_record_keeps_what_its_table_keeps(transactions: list[Any], data: st.DataObject) -> None:
    given_, expected = [], []
    for xid, (streamed, within) in enumerate(transactions, start=100):
        inner = xid if streamed else 0
        head = pgoutput.stream_start(xid) if streamed else pgoutput.begin(xid, xid)
        tail = pgoutput.stream_stop() if streamed else pgoutput.commit(xid, xid)
        given_.append(head)
        expected.append(head)
        for oid in (SELECTED, CLEAR, FOREIGN):
            given_.append(pgoutput.relation(oid, COLUMNS, inner))
            names = kept(oid, COLUMNS) if oid != FOREIGN else COLUMNS
            expected.append(pgoutput.relation(oid, names, inner))
        for oid, kind, new, old in within:
            given_.append(change(oid, kind, new, old, inner))
            expected.append(change(oid, kind, kept(oid, new), kept(oid, old), inner))
        given_.append(tail)
        expected.append(tail)
    borders = sorted(data.draw(st.lists(st.integers(0, len(given_)), max_size=4)))
    selector = RecordSelector(TABLES)
    selected = [selector.apply(chunk) for chunk in chunks(given_, borders)]
    assert [record for chunk in selected for record in records_of(chunk)] == expected
    for before, after in zip(chunks(given_, borders), selected, strict=True):
        assert (before.controls == after.controls).all()
        assert before.wal_end == after.wal_end
        assert {at: records_of(after)[at] for at in before.relations} == after.relations


def test_a_layout_of_a_rolled_back_stream_is_forgotten_and_one_of_a_committed_stream_is_not() -> None:
    wide = (*COLUMNS, "secret_three")
    first = pgoutput.relation(SELECTED, COLUMNS)
    row = pgoutput.insert(SELECTED, ["1", "2", "3", "4", "5"])
    streamed = [
        pgoutput.stream_start(5),
        pgoutput.relation(SELECTED, wide, 5),
        pgoutput.insert(SELECTED, ["1", "2", "3", "4", "5", "6"], 5),
        pgoutput.stream_stop(),
    ]
    gone = [first, *streamed, pgoutput.stream_abort(5, 5), row]
    selector = RecordSelector(TABLES)
    (out,) = [selector.apply(chunk) for chunk in chunks(gone, [])]
    assert records_of(out)[-1] == pgoutput.insert(SELECTED, ["1", "3", "5"])
    stays = [first, *streamed, pgoutput.stream_commit(5, 1, 2), row]
    with pytest.raises(EngineFault) as raised:
        RecordSelector(TABLES).apply(chunks(stays, [])[0])
    assert raised.value.kind is FaultKind.LOG_UNREADABLE


def test_while_a_named_column_is_missing_only_known_columns_are_written() -> None:
    table = TableSelection(
        TableName("public", "s"),
        frozenset({RelationId(SELECTED)}),
        ColumnSelection((), ("secret",)),
        frozenset({"id", "name"}),
    )
    records = [
        pgoutput.relation(SELECTED, ("id", "renamed", "name")),
        pgoutput.insert(SELECTED, ["1", "hidden", "n"]),
        pgoutput.relation(SELECTED, ("id", "secret", "name", "more")),
        pgoutput.insert(SELECTED, ["1", "hidden", "n", "m"]),
    ]
    out = records_of(RecordSelector([table]).apply(chunks(records, [])[0]))
    assert out[1] == pgoutput.insert(SELECTED, ["1", "n"])
    assert out[3] == pgoutput.insert(SELECTED, ["1", "n", "m"])


def test_a_table_that_was_created_again_is_recognized_by_its_name() -> None:
    record = pgoutput.relation(77, COLUMNS).replace(b"public\0t\0", b"public\0s\0")
    out = records_of(
        RecordSelector(TABLES).apply(chunks([record, pgoutput.insert(77, ["1", "2", "3", "4", "5"])], [])[0])
    )
    assert out[1] == pgoutput.insert(77, ["1", "3", "5"])
