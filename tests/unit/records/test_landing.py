"""COPY text of recorded changes becomes the records that PostgreSQL's log would hold, in the order of the transactions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.batch import LogRange, TablePart
from engine.model.control import ControlKind
from engine.model.identity import Ordinal, RelationId, TableId, TableName
from engine.model.position import Lsn
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.records.landing import TableRows, Transaction, Transactions, chunk_of, rows_of
from engine.records.relation import Announced, AnnouncedColumn, relation_record
from engine.records.scan import RecordScanner
from tests.unit.net import pgoutput_encoder as wire

SOME = RelationId(77)
VALUE = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r", "\b": r"\b", "\f": r"\f", "\v": r"\v"})


@st.composite
def changes(draw: st.DrawFn) -> tuple[int, list[tuple[str, list[str | None], list[str | None]]]]:
    columns = draw(st.integers(1, 4))
    row = st.lists(VALUE, min_size=columns, max_size=columns)
    return columns, draw(st.lists(st.tuples(st.sampled_from("IUDT"), row, row), max_size=8))


def line(no: int, xid: int, operation: str, old: list[str | None], new: list[str | None]) -> str:
    values = [*([None] * len(old) if operation in "IT" else old), *([None] * len(new) if operation in "DT" else new)]
    texts = [r"\N" if value is None else value.translate(ESCAPES) for value in values]
    return "\t".join([str(no), str(xid), operation, *texts]) + "\n"


def records(found: TableRows) -> list[bytes]:
    return [found.data[a:b].tobytes() for a, b in zip(found.offsets, found.offsets[1:], strict=False)]


@given(changes(), st.booleans())
def test_rows_become_the_records_of_pgoutput(made: tuple, whole: bool) -> None:
    columns, listed = made
    text = "".join(line(number, 5, *each) for number, each in enumerate(listed, 1)).encode()
    found = rows_of(text, SOME, columns, [0], whole=whole, announcement=None)
    assert found.no.tolist() == list(range(1, len(listed) + 1))
    assert found.xid.tolist() == [5] * len(listed)
    kind = "O" if whole else "K"
    expected = []
    for operation, old, new in listed:
        sent = old if whole else [old[0], *([None] * (columns - 1))]
        if operation == "I":
            expected.append(wire.insert(77, new))
        elif operation == "U":
            expected.append(wire.update(77, new, sent if whole or old[0] != new[0] else None, kind))
        elif operation == "D":
            expected.append(wire.delete(77, sent, kind))
        else:
            expected.append(wire.truncate([77]))
    assert records(found) == expected


@pytest.mark.parametrize("text", [b"1\t2\tI\t\\N\n", b"1\t2\tI\ta\tb\tc\n", b"1\t2\tI\ta"])
def test_lines_with_another_number_of_fields_are_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="fields"):
        rows_of(text + b"\n", SOME, 1, [0], whole=False, announcement=None)


def announcement(relation: int) -> bytes:
    column = AnnouncedColumn("id", identity=True, type_oid=20, modifier=-1)
    name = TableName("public", f"t{relation}")
    return relation_record(Announced(RelationId(relation), name, ReplicaIdentity.DEFAULT, (column,)))


def table_rows(relation: int, changes: list[tuple[int, int]]) -> TableRows:
    text = "".join(line(no, xid, "I", [None], [str(no)]) for no, xid in changes)
    return rows_of(text.encode(), RelationId(relation), 1, [0], whole=False, announcement=announcement(relation))


@given(
    st.lists(st.tuples(st.sampled_from([11, 12, 13]), st.sampled_from([1, 2])), max_size=12),
    st.permutations([11, 12, 13]),
)
def test_a_chunk_has_each_transaction_whole_and_rows_in_the_order_of_their_numbers(
    written: list[tuple[int, int]], order: list[int]
) -> None:
    """Whatever the order of ids and numbers among transactions: the given one counts."""
    numbered = [(no, xid, relation) for no, (xid, relation) in enumerate(written, 1)]
    listed = [Transaction(xid, Lsn(100 + place), 1_000_000) for place, xid in enumerate(order)]
    tables = [table_rows(of, [(no, xid) for no, xid, relation in numbered if relation == of]) for of in (1, 2)]
    chunk = chunk_of(Transactions.of(listed), tables, Lsn(500), begins=True, ends=True)
    expected, announced = [], set()
    for xid in order:
        own = [(no, relation) for no, by, relation in numbered if by == xid]
        if not own:
            continue
        expected.append("B")
        for no, relation in own:
            if relation not in announced:
                announced.add(relation)
                expected.append(f"R{relation}")
            expected.append(f"I{no}")
        expected.append("C")
    found = []
    for number in range(chunk.count):
        record = chunk.data[chunk.offsets[number] : chunk.offsets[number + 1]].tobytes()
        kind = chr(record[0])
        detail = {"I": lambda r: str(int(r[13:])), "R": lambda r: str(int.from_bytes(r[1:5], "big"))}.get(kind)
        found.append(kind + (detail(record) if detail else ""))
    assert found == expected
    ends = chunk.controls["end_lsn"][chunk.controls["kind"] == int(ControlKind.COMMIT)].tolist()
    assert ends == [one.end.value for one in listed if any(by == one.id for _, by, _ in numbered)]
    assert set(chunk.relations) == {i for i, each in enumerate(found) if each[0] == "R"}


def test_parts_of_a_transaction_begin_and_end_once() -> None:
    one = Transactions.of([Transaction(1, Lsn(9), 0)])
    first = chunk_of(one, [table_rows(1, [(1, 1)])], Lsn(0), begins=True, ends=False)
    last = chunk_of(one, [table_rows(1, [(2, 1)])], Lsn(9), begins=False, ends=True)
    assert [chr(first.data[at]) for at in first.offsets[:-1]] == list("BRI")
    assert [chr(last.data[at]) for at in last.offsets[:-1]] == list("RIC")
    alone = [chunk_of(one, [], Lsn(0), begins=begins, ends=ends) for begins, ends in ((True, False), (False, True))]
    assert [bytes(part.data[:1]) for part in alone] == [b"B", b"C"], "a part without rows of followed tables"


def test_nothing_is_a_chunk_without_records() -> None:
    chunk = chunk_of(Transactions.of([]), [], Lsn(7), begins=True, ends=True)
    assert (chunk.count, chunk.wal_end) == (0, Lsn(7))
    assert np.array_equal(chunk.offsets, [0])


@pytest.mark.parametrize(("after", "kept"), [(11, 1), (12, 0), (13, 0)])
def test_a_copy_at_the_end_of_a_transaction_has_its_changes(after: int, kept: int) -> None:
    """Also where the ranges that are read begin earlier, so that BEGIN alone tells the transactions apart."""
    rows = rows_of(line(1, 5, "I", [None], ["1"]).encode(), SOME, 1, [0], whole=False, announcement=None)
    chunk = chunk_of(Transactions.of([Transaction(5, Lsn(12), 0)]), [rows], Lsn(12), begins=True, ends=True)
    schema = TableSchema(
        TableName("public", "t"),
        SOME,
        (Column("id", SourceType("int8", oid=20), 1),),
        ("id",),
        KeyMode.KEYED,
        ReplicaIdentity.DEFAULT,
    )
    part = TablePart(TableId("t1"), (schema,), Lsn(after))
    first = np.arange(chunk.count, dtype=np.int64)
    found = RecordScanner().scan(
        chunk.data, chunk.offsets.astype(np.int64), first, [LogRange(Ordinal(0), Ordinal(chunk.count), Lsn(20))], [part]
    )
    assert len(found.op) == kept
