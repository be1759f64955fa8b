"""Old rows that a cycle found are in the records of its changes, as whole rows; changes without one have records as before."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from engine.model.identity import RelationId, TableName
from engine.model.schema import ReplicaIdentity
from engine.records.relation import Announced, AnnouncedColumn, relation_record
from engine.sources.query_diff.cycle_files import CycleFiles, CycleFound, TableFound, deletes_schema, rows_schema
from engine.sources.query_diff.folder import Folder
from engine.sources.query_diff.stream import CycleLog, Cycles

KEYS = (2, 0)
"""Places of the key's columns, in the order of the key."""
RECORD = relation_record(
    Announced(
        RelationId(7),
        TableName("public", "t"),
        ReplicaIdentity.DEFAULT,
        tuple(AnnouncedColumn(name, name != "b", 25, -1) for name in "abc"),
    )
)
Row = tuple[str | None, ...]
_TEXT = st.text(st.sampled_from("a1\t\n\\Né\x00"), max_size=4).filter(lambda text: "\x00" not in text)
_ROW = st.tuples(_TEXT, st.none() | _TEXT, _TEXT)
_KNOWN = st.booleans()
CHANGES = st.lists(st.tuples(st.sampled_from("IUD"), _ROW, _ROW, _KNOWN), max_size=12)


def line_of(row: Row) -> bytes:
    """COPY text of a row."""
    escaped = {"\\": r"\\", "\t": r"\t", "\n": r"\n"}
    fields = [r"\N" if v is None else "".join(escaped.get(each, each) for each in v) for v in row]
    return "\t".join(fields).encode() + b"\n"


def records_in(folder: Path, table: TableFound) -> list[bytes]:
    """The records of cycle 1, in which this was found."""
    log = CycleLog(Folder(folder), cast("Any", None), "", 0)
    found = CycleFound(1, 0, 0, 0, snapshot=True, tables=(table,))
    chunks = list(log.chunks(Cycles((found,))))
    return [
        bytes(chunk.data[begin:end])
        for chunk in chunks
        for begin, end in zip(chunk.offsets[:-1], chunk.offsets[1:], strict=True)
    ]


def change_of(record: bytes) -> tuple[str, dict[str, Row]]:
    """The operation of a row's record, and its rows by their letters."""
    rows: dict[str, Row] = {}
    at = 5
    while at < len(record):
        letter, (count,) = chr(record[at]), struct.unpack_from(">H", record, at + 1)
        at, values = at + 3, []
        for _ in range(count):
            kind, at = record[at : at + 1], at + 1
            assert kind in {b"n", b"t"}
            size = struct.unpack_from(">I", record, at)[0] if kind == b"t" else 0
            at += 4 if kind == b"t" else 0
            values.append(record[at : at + size].decode() if kind == b"t" else None)
            at += size
        rows[letter] = tuple(values)
    return chr(record[0]), rows


def written(
    folder: Path, changes: list[tuple[str, Row, Row, bool]], *, olds: bool, at_once: int = 20_000
) -> TableFound:
    """A cycle's files with these changes: operation, row before, row after, and whether the row before is known."""
    files = CycleFiles(folder)
    files.make()
    writer = files.begin(1)
    gone = [(old, known) for op, old, _, known in changes if op == "D"]
    others = [(op, old, new, known) for op, old, new, known in changes if op != "D"]
    keys = [line_of(tuple(old[place] for place in KEYS)) for old, _ in gone]
    left = pa.table({"line": keys, "old": [line_of(old) if known else None for old, known in gone]})
    rows = pa.table(
        {
            "op": [ord(op) for op, *_ in others],
            "line": [line_of(new) for _, _, new, _ in others],
            "old": [line_of(old) if known and op == "U" else None for op, old, _, known in others],
        }
    )
    for name, table, schema in (
        ("7.deletes", left, deletes_schema(olds=olds)),
        ("7.rows", rows, rows_schema(olds=olds)),
    ):
        file = writer.file(name, schema)
        for begin in range(0, table.num_rows, at_once):
            file.write(table.slice(begin, at_once).select(schema.names).cast(schema))
    found = TableFound("public", "t", 7, RECORD, 3, KEYS, "outer_join", deletes="7.deletes", rows="7.rows")
    writer.finish(CycleFound(1, 0, 0, 0, snapshot=True, tables=(found,)))
    files.publish(1)
    return found


def expected(changes: list[tuple[str, Row, Row, bool]], *, olds: bool) -> list[tuple[str, dict[str, Row]]]:
    """The changes as records have them; deletes come first."""
    found: list[tuple[str, dict[str, Row]]] = []
    for op, old, new, known in sorted(changes, key=lambda change: change[0] != "D"):
        key: Row = tuple(value if place in KEYS else None for place, value in enumerate(old))
        before = {"O": old} if known and olds else {"K": key} if op == "D" else {}
        found.append((op, {**(before if op != "I" else {}), **({"N": new} if op != "D" else {})}))
    return found


@given(changes=CHANGES, olds=st.booleans(), at_once=st.sampled_from([1, 3, 20_000]))
def test_records_have_the_old_rows_that_are_known(
    tmp_path_factory: Any, changes: list[tuple[str, Row, Row, bool]], olds: bool, at_once: int
) -> None:
    """Without the column `old`: as earlier versions wrote files, and as methods without a copy do."""
    folder = tmp_path_factory.mktemp("cycles")
    table = written(folder, changes, olds=olds, at_once=at_once)
    records = records_in(folder, table)
    found = [change_of(record) for record in records if record[:1] in {b"I", b"U", b"D"}]
    wanted = expected(changes, olds=olds)
    # Deletes of a batch are in any order.
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    assert [op for op, _ in found] == [op for op, _ in wanted]
    assert [change for change in found if change[0] != "D"] == [change for change in wanted if change[0] != "D"]
    assert [record for record in records if record[:1] == b"R"] == ([RECORD] if changes else [])
