"""Values as fields of COPY text, and the structures that are read from a file's schema."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.identity import RelationId
from engine.records.landing import rows_of
from engine.sources.sqlite.catalog import live_tables
from engine.sources.sqlite.types import (
    ANY,
    BLOB,
    INTEGER,
    NUMERIC,
    REAL,
    TEXT,
    ColumnKind,
    kind_of,
    printed,
    real_text,
)
from engine.sources.sqlite_triggers.objects import trigger_statements
from engine.sources.sqlite_triggers.recorded import as_text, followed_by, structure_of

MEMORY = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
MEMORY.create_function("penstock_real", 1, real_text, deterministic=True)


def field(value: object, kind: str, *, key: bool = False) -> bytes:
    query = f"SELECT CAST({printed('v', ColumnKind(kind), key=key)} AS BLOB) FROM (SELECT ? AS v)"
    found: bytes = MEMORY.execute(query, [value]).fetchone()[0]
    return found


@given(st.floats(allow_nan=False, allow_infinity=False) | st.decimals(-(10**9), 10**9, places=4).map(float))
def test_a_float_reads_back_as_itself(value: float) -> None:
    text = field(value, REAL).decode()
    assert float(text) == value
    assert len(text) <= len(repr(value)) + 4


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (19.99, "19.99"),
        (-0.0, "0"),
        (1.0, "1"),
        (1e15, "1e+15"),
        (-1234567890123456.0, "-1.234567890123456e+15"),
        (1 / 3, "0.3333333333333333"),
        (float("inf"), "Infinity"),
    ],
)
def test_floats_are_printed_as_postgresql_does(value: float, text: str) -> None:
    assert field(value, REAL).decode() == field(value, NUMERIC).decode() == text


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_a_text_reads_back_as_itself(value: str) -> None:
    line = b"1\t1\tI\t\\N\t" + field(value, TEXT) + b"\n"
    record = rows_of(line, RelationId(1), 1, [0], whole=False, announcement=None)
    assert record.data.tobytes().endswith(value.encode())


@pytest.mark.parametrize(
    ("value", "kind"),
    [("12", INTEGER), (1.5, INTEGER), (b"12", INTEGER), ("x", REAL), (5, TEXT), (b"x", TEXT), ("x", BLOB), (b"x", ANY)],
)
def test_a_value_of_another_class_is_no_text_of_any_type(value: object, kind: str) -> None:
    with pytest.raises(UnicodeDecodeError):
        field(value, kind).decode()


def test_null_identifies_no_row() -> None:
    assert field(None, INTEGER) == rb"\N"
    with pytest.raises(UnicodeDecodeError):
        field(None, INTEGER, key=True).decode()


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("BIGINT", INTEGER),
        ("CHARINT", INTEGER),
        ("varchar(9)", TEXT),
        ("", ANY),
        ("BLOB", BLOB),
        ("FLOATING", REAL),
        ("DATETIME", NUMERIC),
    ],
)
def test_a_type_has_the_affinity_that_sqlite_gives_it(declared: str, kind: str) -> None:
    assert kind_of(declared, strict=False).name == kind


@pytest.fixture
def memory() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection
    connection.close()


CHANGES = {
    "ALTER TABLE t ADD COLUMN w REAL DEFAULT 1": True,
    "ALTER TABLE t RENAME COLUMN v TO name": True,
    "ALTER TABLE t DROP COLUMN n": False,
    "CREATE UNIQUE INDEX later ON t (n)": False,
    "DROP INDEX part": False,
    "CREATE INDEX plain ON t (n)": True,
}


@pytest.mark.parametrize("change", CHANGES)
def test_only_columns_at_the_end_and_other_names_are_followed(memory: sqlite3.Connection, change: str) -> None:
    memory.execute('CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT COLLATE NOCASE UNIQUE, "n x" INT, n INT)')
    memory.execute("""CREATE UNIQUE INDEX part ON t ("n x") WHERE "n x" > 3 AND v <> 'a WHERE (b'""")
    before = live_tables(memory, ["T"])["t"].structure
    assert structure_of(as_text(before)) == before
    assert {u.where for u in before.uniques} == {None, "\"n x\" > 3 AND v <> 'a WHERE (b'"}
    memory.execute(change)
    assert followed_by(before, live_tables(memory)["t"].structure) is CHANGES[change]


def test_triggers_are_valid_for_quoted_names(memory: sqlite3.Connection) -> None:
    memory.execute(
        """CREATE TABLE "a ""b'" ("rowid" TEXT, "_rowid_" INT, "select" TEXT, PRIMARY KEY ("select", "rowid"))"""
    )
    memory.execute("CREATE TABLE penstock_changes (no INTEGER PRIMARY KEY, structure, op, o1, c1, o2, c2, o3, c3)")
    (found,) = [t.structure for name, t in live_tables(memory).items() if name.startswith("a")]
    for statement in trigger_statements(9, 4, found).values():
        memory.execute(statement)
    memory.execute("""INSERT INTO "a ""b'" VALUES ('k', 1, 's')""")
    memory.execute("""UPDATE "a ""b'" SET "select" = 't'""")
    memory.execute("""DELETE FROM "a ""b'" """)
    assert memory.execute("SELECT op, o3, c3 FROM penstock_changes").fetchall() == [
        ("I", None, "s"),
        ("U", "s", "t"),
        ("D", "t", None),
    ]
