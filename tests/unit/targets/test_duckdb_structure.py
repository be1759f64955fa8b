"""The pure parts: structure as text, steps from one structure to the next, names."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.duckdb.value_text import literal
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableId, TableName
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.targets.duckdb.errors import fault_of, is_broken, is_disk_full, is_out_of_memory
from engine.targets.duckdb.identifiers import folded, same_to_duckdb
from engine.targets.duckdb.structure import create_statements, evolve_statements
from engine.targets.evolution import evolution
from engine.targets.identifiers import quoted
from engine.targets.structure_text import from_text, to_text
from tests.contract.target_material import source_type, structure

T = TableId("t1")
CONNECTION = duckdb.connect()
base = structure(TableName("s", "t"), {"id": "int4", "a": "text", "b": "jsonb"}, ["id"])
words = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)), min_size=1)
types = st.recursive(
    st.builds(SourceType, words, st.integers(-1, 2**31), st.sampled_from("bcdermp"), st.none(), st.integers(0, 2**32)),
    lambda inner: st.builds(SourceType, words, element=inner),
    max_leaves=3,
)
columns = st.builds(
    Column, words, types, st.integers(1, 1600), st.booleans(), st.none() | words, st.none() | st.just("text")
)


@settings(deadline=None)
@given(
    st.builds(
        TableSchema,
        st.builds(TableName, words, words),
        st.integers(0, 2**32).map(RelationId),
        st.lists(columns, max_size=4).map(tuple),
        st.lists(words, max_size=3).map(tuple),
        st.sampled_from(KeyMode),
        st.sampled_from(ReplicaIdentity),
        st.integers(0, 2**32),
    )
)
def test_a_structure_survives_as_text(schema: TableSchema) -> None:
    assert from_text(to_text(schema)) == schema


def test_a_structure_of_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 2"):
        from_text(to_text(base).replace('"format":1', '"format":2'))


def test_a_table_is_made_without_constraints() -> None:
    assert create_statements("x", base) == [
        'CREATE TABLE x ("id" INTEGER, "a" VARCHAR, "b" VARCHAR)',
        "COMMENT ON COLUMN x.\"b\" IS 'PostgreSQL jsonb, in its text form'",
    ]


def changed(*made: Column) -> list[str]:
    return evolve_statements(T, "x", evolution(T, base, dataclasses.replace(base, columns=made)))


def test_columns_are_added_before_others_go() -> None:
    fresh = Column("n", source_type("int4"), 4, fill="7")
    assert changed(base.columns[0], base.columns[2], fresh) == [
        "ALTER TABLE x ADD COLUMN \"n\" INTEGER DEFAULT CAST('7' AS INTEGER)",
        'ALTER TABLE x ALTER COLUMN "n" DROP DEFAULT',
        'ALTER TABLE x DROP COLUMN "a"',
    ]


def test_a_name_that_comes_back_is_freed_first() -> None:
    again = Column("A", source_type("int4"), 4)
    assert changed(base.columns[0], base.columns[2], again) == [
        'ALTER TABLE x RENAME COLUMN "a" TO "__penstock_aside_2"',
        'ALTER TABLE x ADD COLUMN "A" INTEGER',
        'ALTER TABLE x DROP COLUMN "__penstock_aside_2"',
    ]


def test_the_same_structure_needs_nothing() -> None:
    assert changed(*base.columns) == []


def test_a_fill_beyond_the_type_parks_the_table() -> None:
    with pytest.raises(EngineFault) as caught:
        changed(*base.columns, Column("n", source_type("numeric(3,1)"), 4, fill="NaN"))
    assert (caught.value.kind, caught.value.subject) == (FaultKind.VALUE_OUT_OF_DOMAIN, T)
    assert "NaN" not in caught.value.detail


@settings(deadline=None)
@given(words, words)
def test_folding_agrees_with_duckdb(one: str, other: str) -> None:
    connection = CONNECTION.cursor()
    statement = f"CREATE OR REPLACE TEMP TABLE t ({quoted(one)} INTEGER, {quoted(other)} INTEGER)"
    if same_to_duckdb([one, other]) is None and one != other:
        connection.execute(statement)
        assert [row[0] for row in connection.execute("DESCRIBE t").fetchall()] == [one, other]
    else:
        assert folded(one) == folded(other)
        with pytest.raises(duckdb.CatalogException):
            connection.execute(statement)


@settings(deadline=None)
@given(words)
def test_literals_are_themselves(text: str) -> None:
    assert CONNECTION.cursor().execute(f"SELECT {literal(text)}").fetchall() == [(text,)]


def test_the_drivers_errors_have_their_kinds(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    full = duckdb.IOException("Could not write file: No space left on device")
    assert is_disk_full(full, path)
    assert fault_of(full, path).kind is FaultKind.TARGET_DISK_FULL
    assert not is_disk_full(duckdb.IOException("Could not read"), path)
    assert not is_disk_full(duckdb.ConversionException("No space left on device"), path)
    kinds = {
        duckdb.IOException("x"): FaultKind.TARGET_UNAVAILABLE,
        duckdb.FatalException("x"): FaultKind.TARGET_UNAVAILABLE,
        duckdb.TransactionException("x"): FaultKind.TARGET_UNAVAILABLE,
        duckdb.OutOfMemoryException("x"): FaultKind.TARGET_UNAVAILABLE,
        duckdb.ConversionException("secret"): FaultKind.VALUE_OUT_OF_DOMAIN,
        duckdb.BinderException("x"): FaultKind.INTERNAL,
    }
    for error, kind in kinds.items():
        fault = fault_of(error, path, T)
        assert fault.kind is kind
        assert "secret" not in str(fault)
    assert is_broken(duckdb.FatalException("x"))
    assert not is_broken(full)
    assert is_out_of_memory(OSError("Out of Memory Error: failed to allocate"))
    assert not is_out_of_memory(OSError("Conversion Error: Out of Memory Error:"))
