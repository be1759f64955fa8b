"""Bind parameters, and answers to metadata commands."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from engine.sql_endpoint.flight.commands import (
    GetCatalogs,
    GetDbSchemas,
    GetForeignKeys,
    GetPrimaryKeys,
    GetSqlInfo,
    GetTables,
    GetTableTypes,
    Metadata,
)
from engine.sql_endpoint.flight.metadata import rows_of, schema_of
from engine.sql_endpoint.flight.parameters import text_of, texts_of

CATALOG = pa.table(
    {
        "table_catalog": ["copy"] * 3,
        "table_schema": ["archive", "public", "public"],
        "table_name": ["orders", "lines", 'or"ders'],
    }
)

KEYS = pa.table(
    {
        "table_schema": ["public"] * 3,
        "table_name": ["lines", "lines", "secret"],
        "column_name": ["order", "n", "id"],
        "key_name": ["lines_pkey", "lines_pkey", "secret_pkey"],
        "key_sequence": pa.array([1, 2, 1], pa.int32()),
    }
)


@pytest.mark.parametrize(
    ("scalar", "text"),
    [
        (pa.scalar(None), None),
        (pa.scalar(None, pa.int64()), None),
        (pa.scalar(True), "true"),
        (pa.scalar(-(2**63)), "-9223372036854775808"),
        (pa.scalar(2**64 - 1, pa.uint64()), "18446744073709551615"),
        (pa.scalar(0.1), "0.1"),
        (pa.scalar(float("nan")), "NaN"),
        (pa.scalar(float("-inf")), "-Infinity"),
        (pa.scalar(Decimal("1E+3")), "1000"),
        (pa.scalar(Decimal("-0.000001")), "-0.000001"),
        (pa.scalar("it's"), "it's"),
        (pa.scalar("large", pa.large_string()), "large"),
        (pa.scalar("view", pa.string_view()), "view"),
        (
            pa.scalar("word").dictionary_encode()
            if hasattr(pa.scalar("word"), "dictionary_encode")
            else pa.scalar("word"),
            "word",
        ),
        (pa.scalar(date(2020, 1, 2)), "2020-01-02"),
        (pa.scalar(time(1, 2, 3, 4)), "01:02:03.000004"),
        (pa.scalar(datetime(2020, 1, 2, 3, 4, 5, 6)), "2020-01-02 03:04:05.000006"),  # noqa: DTZ001
        (pa.scalar(datetime(2020, 1, 2, tzinfo=UTC)), "2020-01-02 00:00:00.000000+00"),
        (pa.scalar(1577934245123456789, pa.timestamp("ns", "Europe/Berlin")), "2020-01-02 03:04:05.123456789+00"),
        (pa.scalar(uuid.UUID(int=1).bytes, pa.uuid()), "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_the_text_of_a_parameter(scalar: Any, text: str | None) -> None:
    assert text_of(scalar) == text


@pytest.mark.parametrize("scalar", [pa.scalar(b"\x00"), pa.scalar([1]), pa.scalar({"a": 1})])
def test_a_parameter_without_a_text_is_refused(scalar: Any) -> None:
    with pytest.raises(flight.FlightServerError, match="cannot be bound"):
        text_of(scalar)


def test_one_row_of_parameters() -> None:
    one = pa.record_batch({"a": [1], "b": ["x"]})
    assert texts_of([one.slice(0, 0), one], 2) == ["1", "x"]


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "no row"),
        ([pa.record_batch({"a": [1]})], "1 parameters are bound, and the statement has 2"),
        ([pa.record_batch({"a": [1, 2], "b": [1, 2]})], "more than one row"),
        ([pa.record_batch({"a": [1], "b": [1]})] * 2, "more than one row"),
        ([pa.record_batch({"a": ["x" * 1_100_000], "b": [1]})], "larger than"),
    ],
)
def test_other_rows_of_parameters_are_refused(batches: list[Any], message: str) -> None:
    with pytest.raises(flight.FlightServerError, match=message):
        texts_of(batches, 2)


def rows(command: Metadata) -> Any:
    def select(sql: str) -> Any:
        return CATALOG if "information_schema" in sql else CATALOG.select(["table_catalog"]).slice(0, 1)

    found = rows_of(command, select, lambda _: KEYS, lambda sql: pa.schema([pa.field(sql, pa.int64())]))
    found.validate(full=True)
    assert found.schema == schema_of(command)
    return found


def test_catalogs_schemas_and_types() -> None:
    assert rows(GetCatalogs()).to_pydict() == {"catalog_name": ["copy"]}
    assert rows(GetDbSchemas(None, None)).column("db_schema_name").to_pylist() == ["archive", "public"]
    assert rows(GetDbSchemas("copy", "pub%")).column("db_schema_name").to_pylist() == ["public"]
    assert rows(GetDbSchemas("other", None)).num_rows == 0
    assert rows(GetTableTypes()).to_pydict() == {"table_type": ["TABLE"]}
    assert rows(GetForeignKeys()).num_rows == 0


def test_primary_keys() -> None:
    lines = [("copy", "public", "lines", "order", "lines_pkey", 1), ("copy", "public", "lines", "n", "lines_pkey", 2)]
    for asked in ((None, None, "lines"), ("copy", "public", "lines"), ("copy", None, "lines")):
        assert [tuple(row.values()) for row in rows(GetPrimaryKeys(*asked)).to_pylist()] == lines
    # A pattern, others of these names, a table without a key, and one that readers do not see.
    for none in ((None, None, "l%"), ("", None, "lines"), ("copy", "archive", "lines"), (None, "public", "orders")):
        assert rows(GetPrimaryKeys(*none)).num_rows == 0
    for hidden in ('or"ders', "secret"):
        assert rows(GetPrimaryKeys(None, None, hidden)).num_rows == 0


def test_tables_by_patterns_and_with_schemas() -> None:
    assert rows(GetTables(None, "public", "l_nes", ("TABLE", "VIEW"), False)).column("table_name").to_pylist() == [
        "lines"
    ]
    assert rows(GetTables(None, None, None, ("VIEW",), True)).num_rows == 0
    (row,) = rows(GetTables("copy", "public", "or%", (), True)).to_pylist()
    schema = pa.ipc.read_schema(pa.py_buffer(row["table_schema"]))
    assert schema.names == ['SELECT * FROM "public"."or""ders"']
    assert schema.field(0).metadata[b"ARROW:FLIGHT:SQL:TABLE_NAME"] == b'or"ders'


def test_what_the_server_is() -> None:
    found = {row["info_name"]: row["value"] for row in rows(GetSqlInfo(())).to_pylist()}
    assert (found[0], found[3], found[8], found[504]) == ("Penstock", True, 0, '"')
    assert rows(GetSqlInfo((3, 999))).to_pylist() == [{"info_name": 3, "value": True}]
