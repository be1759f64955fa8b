"""Rows of a query as a Parquet file in pieces."""

from __future__ import annotations

import datetime
import io
import json
import os
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from server.queries import parquet
from server.queries.parquet import ParquetUnsupported, ParquetWriter
from tests.unit.queries.test_query_render import columns


def _pieces(table: pa.Table, step: int, writer: ParquetWriter | None = None) -> Iterator[bytes]:
    """The file of a table whose rows come this many at a time."""
    made = writer or ParquetWriter("0/1")
    yield made.begin(table.schema)
    for number in range(0, table.num_rows, step):
        yield made.rows(table.slice(number, step))
    yield made.end(truncated=False)


def test_every_value_is_what_it_was() -> None:
    table = pa.table(columns())
    found = pq.read_table(io.BytesIO(b"".join(_pieces(table, 1))))
    # Parquet has no seconds.
    seconds = table.schema.field("timestamp_s").with_type(pa.timestamp("ms"))
    at = table.schema.get_field_index("timestamp_s")
    expected = table.set_column(at, seconds, table["timestamp_s"].cast(seconds.type))
    nan = pa.compute.is_nan(expected["float_special"]).to_pylist()
    assert pa.compute.is_nan(found["float_special"]).to_pylist() == nan == [True, False, False]
    for name in expected.column_names:
        # A NaN equals nothing.
        begin = 1 if name == "float_special" else 0
        assert found[name].slice(begin).equals(expected[name].slice(begin)), name
    assert found.schema.equals(expected.schema)


def test_the_metadata_have_the_position_and_what_else_an_answer_says() -> None:
    table = pa.table({"n": [1]}).replace_schema_metadata({"kept": "too"})
    body = b"".join(_pieces(table, 1, ParquetWriter("0/16B3748", {"receipt": {"position": "0/5"}})))
    metadata = pq.read_schema(io.BytesIO(body)).metadata
    assert (metadata[b"penstock.position"], metadata[b"kept"]) == (b"0/16B3748", b"too")
    assert json.loads(metadata[b"penstock.receipt"]) == {"position": "0/5"}


def test_an_empty_result_has_its_columns() -> None:
    table = pa.table({"n": pa.array([], pa.int64())})
    assert pq.read_table(io.BytesIO(b"".join(_pieces(table, 1)))).equals(table)


def test_no_more_is_held_than_a_row_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 100_000)
    table = pa.table({"t": [os.urandom(500).hex() for _ in range(1_000)]})
    pieces = list(_pieces(table, 10))
    file = pq.ParquetFile(io.BytesIO(b"".join(pieces)))
    assert file.read().equals(table)
    assert file.num_row_groups == 10
    assert max(map(len, pieces)) < 150_000
    monkeypatch.undo()
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 250)
    assert pq.ParquetFile(io.BytesIO(b"".join(_pieces(table, 50)))).num_row_groups == 4


def test_a_file_without_its_end_cannot_be_opened() -> None:
    *begun, _ = _pieces(pa.table({"n": list(range(100))}), 10)
    with pytest.raises(pa.ArrowInvalid):
        pq.read_table(io.BytesIO(b"".join(begun)))


def test_columns_that_parquet_has_no_type_for_are_named() -> None:
    pause = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    table = pa.table({"n": [1], "pause": pause, "day": [datetime.date(2026, 1, 2)]})
    with pytest.raises(ParquetUnsupported) as refused:
        ParquetWriter("0/1").begin(table.schema)
    assert str(refused.value.detail) == "Parquet has no type for 'pause' (month_day_nano_interval)."
    assert "Cast it to text" in refused.value.remedy
