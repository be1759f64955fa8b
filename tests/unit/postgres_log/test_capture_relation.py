"""What a relation record announces, against a catalog that may be further on."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableId, TableName
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.subscription import TableSpec
from engine.records.catalog_table import CatalogColumn, CatalogTable, UniqueIndex, schema_of
from engine.records.relation import parse_relation
from engine.sources.postgres.relation import complete
from engine.sources.postgres.types import TypeRow

NAME = TableName("public", "t")
TYPES = {
    23: TypeRow("int4", "pg_catalog", "b", 0, -1, 0, is_array=False),
    25: TypeRow("text", "pg_catalog", "b", 0, -1, 0, is_array=False),
}
INT, TEXT = SourceType("int4", oid=23), SourceType("text", oid=25)
OIDS = {"i": (23, INT), "t": (25, TEXT)}


def record(columns: str, identity: str = "d", keys: str = "id", oid: int = 7, schema: str = "public") -> bytes:
    """`columns` like "id:i v:t"."""
    fields = [c.split(":") for c in columns.split()]
    body = (
        b"R" + struct.pack(">I", oid) + schema.encode() + b"\0t\0" + identity.encode() + struct.pack(">H", len(fields))
    )
    for name, kind in fields:
        body += bytes([name in keys.split()]) + name.encode() + b"\0" + struct.pack(">Ii", OIDS[kind][0], -1)
    return body


def catalog(columns: str, key: str = "id", **options: Any) -> CatalogTable:
    """`columns` like "id:i:1 v:t:2"; a fourth part `default` or `missing=x` or `notnull` or `generated`."""
    table = CatalogTable(7, NAME, "r", "p", ReplicaIdentity.DEFAULT, 100, 0.0, **options)
    for name, kind, attnum, *rest in (c.split(":") for c in columns.split()):
        fill = next((r.removeprefix("missing=") for r in rest if r.startswith("missing=")), None)
        column = Column(
            name, OIDS[kind][1], int(attnum), nullable="notnull" not in rest, fill=fill, generated="generated" in rest
        )
        has_default = "default" in rest or fill is not None
        table.columns.append(CatalogColumn(column, OIDS[kind][0], -1, has_default, fill is not None))
    if key:
        table.indexes.append(UniqueIndex(True, False, True, tuple(key.split()), True))
    return table


def known(columns: str, key: str = "id", relfilenode: int = 100, oid: int = 7) -> TableSchema:
    fields = [c.split(":") for c in columns.split()]
    made = tuple(Column(name, OIDS[kind][1], int(attnum)) for name, kind, attnum in fields)
    return TableSchema(
        NAME, RelationId(oid), made, tuple(key.split()), KeyMode.KEYED, ReplicaIdentity.DEFAULT, relfilenode
    )


def resolve(
    payload: bytes, table: CatalogTable | None, before: TableSchema | None = None, **options: Any
) -> TableSchema:
    return complete(parse_relation(payload), TableSpec(TableId("t1"), NAME, NAME, **options), before, table, TYPES)


def columns_of(schema: TableSchema) -> list[tuple[str, int, str]]:
    return [(c.name, c.attnum, c.type.name) for c in schema.columns]


def changed(*args: Any, kind: FaultKind = FaultKind.TABLE_STRUCTURE_CHANGED, **options: Any) -> str:
    with pytest.raises(EngineFault) as raised:
        resolve(*args, **options)
    assert raised.value.kind is kind
    return raised.value.detail


def test_first_sight_takes_everything_from_the_catalog() -> None:
    schema = resolve(record("id:i v:t"), catalog("id:i:1 v:t:3"), map_as={"v": "text"})
    assert columns_of(schema) == [("id", 1, "int4"), ("v", 3, "text")]
    assert (schema.key, schema.mode, schema.relfilenode) == (("id",), KeyMode.KEYED, 100)
    assert schema.column("v").map_as == "text"


def test_the_systems_schema_is_not_spelt_out() -> None:
    assert parse_relation(record("id:i", schema="")).name == TableName("pg_catalog", "t")


def test_key_columns_come_in_key_order() -> None:
    assert resolve(record("a:i b:t", keys="a b"), catalog("a:i:1 b:t:2", key="b a")).key == ("b", "a")


def test_an_added_column_has_its_fill() -> None:
    schema = resolve(record("id:i v:t"), catalog("id:i:1 v:t:2:missing=x"), known("id:i:1"))
    assert schema.column("v").fill == "x"
    assert resolve(record("id:i v:t"), catalog("id:i:1 v:t:2:default"), known("id:i:1")).column("v").fill is None


def test_a_column_that_follows_another_one_which_came_and_went_is_not_certain() -> None:
    """The record may be of that one, and have its values."""
    before, record_of_both = replace(known("id:i:1"), last_number=1), record("id:i v:t")
    detail = "column v was added after another one was, which may have had its name and is gone"
    assert changed(record_of_both, catalog("id:i:1 v:t:3", dropped={2: -1}), before) == detail
    # Of another type, known of when the structure was learnt, or nothing is known of it: as ever.
    assert resolve(record_of_both, catalog("id:i:1 v:t:3", dropped={2: 24}), before).column("v").attnum == 3
    later = replace(before, last_number=2)
    found = resolve(record_of_both, catalog("id:i:1 v:t:3", dropped={2: -1}), later)
    assert (found.column("v").attnum, found.last_number) == (3, 3)
    unknown = replace(before, last_number=0)
    assert resolve(record_of_both, catalog("id:i:1 v:t:3", dropped={2: -1}), unknown).last_number == 3


def test_what_was_dropped_last_is_remembered() -> None:
    assert resolve(record("id:i"), catalog("id:i:1", dropped={2: -1}), known("id:i:1 v:t:2")).last_number == 2
    older = replace(known("id:i:1 v:t:2"), last_number=2)
    assert resolve(record("id:i v:t"), catalog("id:i:1", dropped={2: -1, 3: -1}), older).last_number == 2


def test_a_dropped_column_is_gone_and_one_dropped_since_keeps_its_number() -> None:
    assert columns_of(resolve(record("id:i"), catalog("id:i:1"), known("id:i:1 v:t:2"))) == [("id", 1, "int4")]
    schema = resolve(record("id:i v:t"), catalog("id:i:1"), known("id:i:1 v:t:2"))
    assert columns_of(schema) == [("id", 1, "int4"), ("v", 2, "text")]


def test_a_table_dropped_since_is_as_it_was_known() -> None:
    before = known("id:i:1 v:t:2")
    assert columns_of(resolve(record("id:i v:t"), None, before)) == [("id", 1, "int4"), ("v", 2, "text")]
    assert changed(record("id:i v:t"), None)


def test_a_rename_keeps_the_number_before_and_after() -> None:
    after = catalog("id:i:1 w:t:2")
    assert columns_of(resolve(record("id:i w:t"), after, known("id:i:1 v:t:2")))[1] == ("w", 2, "text")
    assert columns_of(resolve(record("id:i v:t"), after, known("id:i:1 v:t:2")))[1] == ("v", 2, "text")


def test_a_changed_type_is_announced_as_it_is() -> None:
    assert columns_of(resolve(record("id:i v:i"), catalog("id:i:1 v:i:2"), known("id:i:1 v:t:2")))[1] == (
        "v",
        2,
        "int4",
    )
    assert columns_of(resolve(record("id:i v:t"), catalog("id:i:1 v:i:2"), known("id:i:1 v:t:2")))[1] == (
        "v",
        2,
        "text",
    )


def test_dropped_and_added_again_is_not_certain() -> None:
    assert "added again" in changed(record("id:i v:t"), catalog("id:i:1 v:t:3"), known("id:i:1 v:t:2"))


def test_names_swapped_between_columns_are_not_certain() -> None:
    assert changed(record("a:t b:t", keys="a"), catalog("b:t:1 a:t:2", key="a"), known("a:t:1 b:t:2", key="a"))


def test_a_name_that_went_from_column_to_column_and_to_a_new_one_is_not_certain() -> None:
    """a and b exchanged their names; then the one that was b from there on was dropped, and another b of its type added."""
    before = known("id:i:1 a:i:2 b:t:3")
    assert "was dropped" in changed(record("id:i b:i a:t"), catalog("id:i:1 a:t:3 b:i:4"), before)


def test_a_column_in_the_place_of_a_dropped_one_is_followed() -> None:
    after = resolve(record("id:i b:t"), catalog("id:i:1 b:t:3"), known("id:i:1 a:t:2"))
    assert columns_of(after) == [("id", 1, "int4"), ("b", 3, "text")]
    after = resolve(record("id:i a:i"), catalog("id:i:1 a:i:3"), known("id:i:1 a:t:2"))
    assert columns_of(after) == [("id", 1, "int4"), ("a", 3, "int4")]


def test_a_column_that_came_and_went_unseen_is_not_certain() -> None:
    assert changed(record("id:i x:t"), catalog("id:i:1"), known("id:i:1"))


@pytest.mark.parametrize("column", ["v:t:2:default", "v:t:2:notnull", "v:t:2"])
def test_values_that_a_rewrite_put_into_a_new_column_are_not_in_the_log(column: str) -> None:
    before = known("id:i:1", relfilenode=99)
    assert "values that the log does not carry" in changed(record("id:i v:t"), catalog(f"id:i:1 {column}"), before)
    # Without a rewrite, or with the value noted, the fill is certain.
    assert resolve(record("id:i v:t"), catalog(f"id:i:1 {column}"), known("id:i:1")).column("v").fill is None
    assert resolve(record("id:i v:t"), catalog("id:i:1 v:t:2:missing=x"), before).column("v").fill == "x"


def test_a_column_that_was_computed_before_is_not_a_new_one() -> None:
    before = replace(known("id:i:1"), unsent=(2,))
    assert "values that the log does not carry" in changed(record("id:i v:t"), catalog("id:i:1 v:t:2"), before)


def test_a_generated_column_that_the_log_begins_to_send_is_not_a_new_one() -> None:
    now = catalog("id:i:1 v:t:2:generated")
    assert "values that the log does not carry" in changed(record("id:i v:t"), now, known("id:i:1"))
    schema = resolve(record("id:i"), now, known("id:i:1"))
    assert ([c.name for c in schema.columns], schema.unsent) == (["id"], (2,))
    # Also where it is an ordinary one by then.
    assert "values that the log does not carry" in changed(record("id:i v:t"), catalog("id:i:1 v:t:2"), schema)


def test_whether_a_column_is_generated_is_taken_from_the_catalog_as_it_is_now() -> None:
    before = known("id:i:1 v:t:2")
    assert resolve(record("id:i v:t"), catalog("id:i:1 v:t:2:generated"), before).column("v").generated
    assert not resolve(record("id:i v:t"), catalog("id:i:1 v:t:2:generated w:t:3"), before).column("v").generated


def test_a_known_fill_outlives_a_rewrite() -> None:
    before = known("id:i:1 v:t:2", relfilenode=99)
    before = replace(before, columns=(before.columns[0], replace(before.columns[1], fill="x")))
    assert resolve(record("id:i v:t"), catalog("id:i:1 v:t:2:default"), before).column("v").fill == "x"


def test_a_table_made_again_under_its_name_is_a_new_one() -> None:
    schema = resolve(record("id:i v:t"), catalog("id:i:1 v:t:2"), known("v:t:1 id:i:5", oid=6))
    assert (schema.relation, columns_of(schema)) == (7, [("id", 1, "int4"), ("v", 2, "text")])


def test_identity_decides_the_mode() -> None:
    assert resolve(record("id:i", "f"), catalog("id:i:1")).mode is KeyMode.KEYED
    assert resolve(record("id:i", "f"), catalog("id:i:1", key="")).mode is KeyMode.BAG
    assert resolve(record("id:i v:t", "f", "id v"), catalog("id:i:1 v:t:2", key=""), key=("v",)).key == ("v",)
    assert resolve(record("id:i", "d", ""), catalog("id:i:1", key=""), insert_only=True).mode is KeyMode.APPEND
    nothing = FaultKind.TABLE_NO_IDENTITY
    assert "no primary key" in changed(record("id:i", "d", ""), catalog("id:i:1", key=""), kind=nothing)
    assert "declared key" in changed(record("id:i v:t"), catalog("id:i:1 v:t:2"), key=("v",), kind=nothing)


def test_a_table_that_has_got_a_key_since_is_copied_anew() -> None:
    assert "has got one since" in changed(record("id:i", "d", ""), catalog("id:i:1"))


@given(st.binary(max_size=60), st.integers(0, 60))
def test_a_damaged_record_is_a_fault_and_nothing_else(noise: bytes, at: int) -> None:
    whole = record("id:i v:t")
    damaged = whole[:at] + noise
    found = None
    try:
        parse_relation(damaged)
    except EngineFault as fault:
        found = fault.kind
    assert found is FaultKind.LOG_UNREADABLE or (found is None and damaged[:1] == b"R")


def test_a_declared_key_is_taken_only_where_the_log_sends_it() -> None:
    declared = TableSpec(TableId("t1"), NAME, NAME, key=("v",))
    table = catalog("id:i:1 v:t:2:notnull")
    assert schema_of(table, declared) is None
    table.indexes.append(UniqueIndex(False, True, True, ("v",), True))
    assert schema_of(table, declared) is None
    for identity in (ReplicaIdentity.INDEX, ReplicaIdentity.FULL):
        table.identity = identity
        schema = schema_of(table, declared)
        assert schema is not None
        assert (schema.key, schema.mode, schema.identity) == (("v",), KeyMode.KEYED, identity)
    assert schema_of(table, replace(declared, key=("absent",))) is None
    assert schema_of(replace(table, indexes=[], identity=ReplicaIdentity.DEFAULT), replace(declared, key=())) is None


def test_the_storage_of_a_later_structure_does_not_hide_that_rows_were_written_anew() -> None:
    """A record from before the change, read when the catalog has the change already, and then one from after it."""
    before = known("id:i:1 v:t:2", relfilenode=99)
    now = catalog("id:i:1 v:t:2 w:t:3:default")
    now.columns[1] = replace(now.columns[1], column=replace(now.columns[1].column, edition=9))
    older = resolve(record("id:i v:t"), now, before)
    assert (older.relfilenode, older.inferred, older.column("v").edition) == (99, True, 0)
    assert "values that the log does not carry" in changed(record("id:i v:t w:t"), now, older)
    assert resolve(record("id:i v:t w:t"), now).inferred is False
