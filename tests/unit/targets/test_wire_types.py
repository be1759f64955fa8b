"""DuckDB's types as PostgreSQL's type OIDs and modifiers."""

from __future__ import annotations

import duckdb
import pytest

from engine.postgres.wire_types import pg_type_of


@pytest.mark.parametrize(
    ("name", "oid", "modifier"),
    [
        ("BOOLEAN", 16, -1),
        ("TINYINT", 21, -1),
        ("UTINYINT", 21, -1),
        ("SMALLINT", 21, -1),
        ("USMALLINT", 23, -1),
        ("INTEGER", 23, -1),
        ("UINTEGER", 20, -1),
        ("BIGINT", 20, -1),
        ("UBIGINT", 1700, -1),
        ("HUGEINT", 1700, -1),
        ("FLOAT", 700, -1),
        ("DOUBLE", 701, -1),
        ("DECIMAL(12,2)", 1700, (12 << 16 | 2) + 4),
        ("DECIMAL(38, 0)", 1700, (38 << 16) + 4),
        ("VARCHAR", 25, -1),
        ("ENUM('a', 'b]')", 25, -1),
        ("BLOB", 17, -1),
        ("BIT", 1562, -1),
        ("DATE", 1082, -1),
        ("TIME", 1083, -1),
        ("TIME WITH TIME ZONE", 1266, -1),
        ("TIMESTAMP", 1114, -1),
        ("TIMESTAMP_NS", 1114, -1),
        ("TIMESTAMP WITH TIME ZONE", 1184, -1),
        ("INTERVAL", 1186, -1),
        ("UUID", 2950, -1),
        ("JSON", 114, -1),
        ("INTEGER[]", 1007, -1),
        ("INTEGER[][]", 1007, -1),
        ("INTEGER[3]", 1007, -1),
        ("DECIMAL(4,1)[]", 1231, (4 << 16 | 1) + 4),
        ("ENUM('a')[]", 1009, -1),
        ("STRUCT(a INTEGER, b VARCHAR[])", 114, -1),
        ("STRUCT(a INTEGER)[]", 114, -1),
        ("STRUCT(a INTEGER)[][]", 114, -1),
        ("MAP(INTEGER, VARCHAR)", 114, -1),
        ("a type of an extension", 25, -1),
    ],
)
def test_a_type_is_sent_as_one_that_holds_its_values(name: str, oid: int, modifier: int) -> None:
    assert pg_type_of(name) == (oid, modifier)


def test_of_duckdbs_own_types_only_varchar_and_enums_are_text() -> None:
    with duckdb.connect() as connection:
        names = connection.execute("SELECT typeof(COLUMNS(*)) FROM test_all_types() LIMIT 1").fetchall()[0]
    assert {name for name in names if pg_type_of(name)[0] == 25 and not name.startswith("ENUM")} == {"VARCHAR"}
