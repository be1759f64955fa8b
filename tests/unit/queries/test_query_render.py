"""How values look in JSON and CSV: golden file, and the calendar against Python's own."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import uuid
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from server.queries import render

_GOLDEN = Path(__file__).parents[2] / "golden" / "query_render" / "values.txt"
_INT64 = 2**63 - 1


def columns() -> dict[str, pa.Array]:
    return {
        "bigint": pa.array([_INT64, -_INT64 - 1, None], pa.int64()),
        "ubigint": pa.array([2**64 - 1, 0, None], pa.uint64()),
        "float": pa.array([1.5, 1e300, -0.0], pa.float64()),
        "float_special": pa.array([float("nan"), float("inf"), float("-inf")], pa.float64()),
        "decimal": pa.array([decimal.Decimal("1.50"), decimal.Decimal("-0.01"), None], pa.decimal128(10, 2)),
        "decimal_large": pa.array([decimal.Decimal(10) ** 37, decimal.Decimal(0), None], pa.decimal128(38, 0)),
        "bool": pa.array([True, False, None]),
        "text": pa.array(["", 'a,"b"\r\n', "\u2028ü"]),
        "bytes": pa.array([b"", b"\xff\x00", None], pa.binary()),
        "date": pa.array([0, -719_163, 2_932_897], pa.int32()).cast(pa.date32()),
        "date_infinite": pa.array([2**31 - 1, -(2**31) + 1, -800_000], pa.int32()).cast(pa.date32()),
        "timestamp": pa.array([0, 1, -1], pa.timestamp("us")),
        "timestamptz": pa.array([_INT64, -_INT64, 253_402_300_800_000_000], pa.timestamp("us", "UTC")),
        "timestamp_s": pa.array([0, None, 86_399], pa.timestamp("s")),
        "time": pa.array([0, 86_400_000_000, 1], pa.int64()).cast(pa.time64("us")),
        "uuid": pa.array([uuid.UUID(int=1).bytes, None, None], pa.uuid()),
        "list": pa.array([[1, None], [], None], pa.list_(pa.int32())),
        "list_of_dates": pa.array([[0], None, []], pa.list_(pa.int32())).cast(pa.list_(pa.date32())),
        "struct": pa.array([{"a": 1, "b": b"\x01"}, None, {"a": None, "b": None}]),
        "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int32())),
        "enum": pa.array(["x", "y", None]).dictionary_encode(),
        "null": pa.nulls(3),
    }


def written(writer: render.Writer, table: pa.Table, *, truncated: bool = False) -> bytes:
    """The whole answer, its rows in pieces of one."""
    pieces = [writer.rows(table.slice(number, 1)) for number in range(table.num_rows)]
    return writer.begin(table.schema) + b"".join(pieces) + writer.end(truncated=truncated)


def test_values_look_as_in_the_golden_file() -> None:
    lines = []
    for name, column in columns().items():
        table = pa.table({name: column})
        body = json.loads(written(render.JsonWriter("0/1"), table))
        lines.append(f"{name} ({body['columns'][0]['type']})")
        lines += [f"  json  {json.dumps(row[0], ensure_ascii=True)}" for row in body["rows"]]
        lines.append(f"  csv   {written(render.CsvWriter(), table)!r}")
    found = "\n".join(lines) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        _GOLDEN.write_text(found, encoding="utf-8")
    assert found == _GOLDEN.read_text(encoding="utf-8")


@given(st.datetimes())
def test_the_calendar_agrees_with_pythons(moment: datetime.datetime) -> None:
    table = pa.table({"t": pa.array([moment], pa.timestamp("us"))})
    body = json.loads(written(render.JsonWriter("0/1"), table))
    assert datetime.datetime.fromisoformat(body["rows"][0][0]) == moment


def test_an_empty_result_has_its_columns() -> None:
    table = pa.table({"n": pa.array([], pa.int64())})
    body = json.loads(written(render.JsonWriter("0/1"), table, truncated=True))
    assert body["columns"] == [{"name": "n", "type": "int64"}]
    assert body["rows"] == []
    assert body["truncated"] is True
    assert written(render.CsvWriter(), table) == b"n\r\n"


def test_a_sliced_column_shows_its_own_rows() -> None:
    rows = pa.table(
        {"l": pa.array([[1], [2, 3], [4]], pa.list_(pa.int64())), "s": pa.array([{"a": i} for i in range(3)])}
    )
    body = json.loads(written(render.JsonWriter("0/1"), rows.slice(1, 1)))
    assert body["rows"] == [[[2, 3], {"a": 1}]]
