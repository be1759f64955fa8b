"""Values of every type of DuckDB as fields of COPY text: what is decoded is the value, or it is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.schema import Column, KeyMode, ReplicaIdentity, TableSchema
from engine.net import decode_copy_text
from engine.sources.duckdb.types import ColumnKind, kind_of, line_of, printed, text_kind_of

MEMORY = duckdb.connect(":memory:")
MEMORY.execute("SET TimeZone = 'UTC'").fetchall()
_TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"))


def lines(kinds: Sequence[ColumnKind], values: Sequence[object], *, as_text: bool = False, key: bool = False) -> bytes:
    """The line of a row. `as_text`: its values are texts of a CSV file."""
    cells = ", ".join(
        f"CAST(? AS {'VARCHAR' if as_text else kind.declared}) AS c{place}" for place, kind in enumerate(kinds)
    )
    fields = [printed(f"t.c{place}", kind, key=key) for place, kind in enumerate(kinds)]
    rows = MEMORY.execute(line_of(fields, f"FROM (SELECT {cells}) AS t"), list(values)).fetchall()
    line: bytes = rows[0][0]
    return line


def decoded(kinds: Sequence[ColumnKind], line: bytes) -> list[Any]:
    columns = tuple(Column(f"c{place}", kind.type, place + 1) for place, kind in enumerate(kinds))
    name = TableName("main", "t")
    schema = TableSchema(name, RelationId(1), columns, (), KeyMode.APPEND, ReplicaIdentity.NOTHING)
    return [column[0].as_py() for column in decode_copy_text(line, schema).columns]


def read(declared: str, value: object) -> Any:
    kind = kind_of(declared)
    assert kind is not None
    return decoded([kind], lines([kind], [value]))[0]


_WHOLE = {
    "TINYINT": (-(2**7), 2**7 - 1),
    "UTINYINT": (0, 2**8 - 1),
    "SMALLINT": (-(2**15), 2**15 - 1),
    "USMALLINT": (0, 2**16 - 1),
    "INTEGER": (-(2**31), 2**31 - 1),
    "UINTEGER": (0, 2**32 - 1),
    "BIGINT": (-(2**63), 2**63 - 1),
    "UBIGINT": (0, 2**64 - 1),
    "HUGEINT": (-(2**127), 2**127 - 1),
    "UHUGEINT": (0, 2**128 - 1),
}


@given(st.data())
def test_whole_numbers_of_every_size_are_read_exactly(data: st.DataObject) -> None:
    for declared, (low, high) in _WHOLE.items():
        value = data.draw(st.integers(low, high) | st.sampled_from([low, high, 0]))
        assert int(read(declared, str(value))) == value


@given(st.data())
def test_decimals_are_read_exactly(data: st.DataObject) -> None:
    precision = data.draw(st.integers(1, 38))
    scale = data.draw(st.integers(0, precision) | st.just(precision))
    digits = data.draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    whole = f"{abs(digits):0{precision + 1}}"
    text = f"{'-' if digits < 0 else ''}{whole[: len(whole) - scale]}.{whole[len(whole) - scale :]}".rstrip(".")
    assert read(f"DECIMAL({precision},{scale})", text) == Decimal(text)


@given(st.floats(allow_nan=True), st.floats(width=32, allow_nan=True))
def test_floats_are_read_exactly(double: float, single: float) -> None:
    for declared, value in (("DOUBLE", double), ("FLOAT", single)):
        found = read(declared, value)
        assert (math.isnan(found) and math.isnan(value)) or found == value
        assert math.copysign(1, found) == math.copysign(1, value) or math.isnan(value)


@given(_TEXT, st.binary(), st.uuids(), st.booleans())
def test_texts_and_bytes_are_read_exactly(text: str, data: bytes, number: UUID, truth: bool) -> None:
    assert read("VARCHAR", text) == text
    assert read("BLOB", data) == data
    assert read("UUID", str(number)) == str(number)
    assert read("BOOLEAN", truth) is truth


@given(st.datetimes(), st.dates(), st.times())
def test_times_are_read_exactly(at: datetime, day: date, clock: time) -> None:
    assert read("TIMESTAMP", at) == at
    assert read("TIMESTAMP_S", at.replace(microsecond=0)) == at.replace(microsecond=0)
    assert read("DATE", day) == day
    assert read("TIME", clock) == clock
    assert read("TIMESTAMP WITH TIME ZONE", f"{at}+00").replace(tzinfo=None) == at


@given(st.datetimes(datetime.fromisoformat("1700-01-01"), datetime.fromisoformat("2200-01-01")), st.integers(0, 999))
def test_nanoseconds_are_read_only_if_nothing_is_lost(at: datetime, rest: int) -> None:
    text = f"{at:%Y-%m-%d %H:%M:%S.%f}{rest:03}"
    if rest:
        with pytest.raises(EngineFault) as refused:
            read("TIMESTAMP_NS", text)
        assert refused.value.kind is FaultKind.VALUE_OUT_OF_DOMAIN
    else:
        assert read("TIMESTAMP_NS", text) == at


@pytest.mark.parametrize(
    ("declared", "value", "text"),
    [
        ("INTERVAL", "1 year 2 months 3 days 04:05:06.7", "1 year 2 mons 3 days 04:05:06.7"),
        ("INTERVAL", "-1 year 3 days", "-1 years +3 days"),
        ("INTERVAL", "1 month", "1 mon"),
        ("INTERVAL", "-3 days 1 hour", "-3 days +01:00:00"),
        ("INTERVAL", "2 days -1 hour", "2 days -01:00:00"),
        ("INTERVAL", "0 days", "00:00:00"),
        ("INTERVAL", "123 hours", "123:00:00"),
        ("INTERVAL", "-0.000001 seconds", "-00:00:00.000001"),
        ("DATE", "0044-03-15 (BC)", "0044-03-15 BC"),
        ("DATE", "infinity", "infinity"),
        ("TIMESTAMP", "0044-03-15 (BC) 10:00:00", "0044-03-15 10:00:00 BC"),
        ("TIMESTAMP WITH TIME ZONE", "2024-01-01 12:00:00.5+02", "2024-01-01 10:00:00.5+00"),
        ("TIMESTAMP WITH TIME ZONE", "-infinity", "-infinity"),
        ("TIME WITH TIME ZONE", "12:00:00+02:30", "12:00:00+02:30"),
        ("DOUBLE", "inf", "Infinity"),
        ("FLOAT", "1e20", "1e+20"),
        ("DECIMAL(3,3)", "-0.5", "-0.500"),
        ("BIT", "0101", "0101"),
        ("JSON", '{"a":  1}', '{"a":  1}'),
        ("ENUM('a\tb', 'c')", "a\tb", r"a\tb"),
        ("TIMESTAMP_MS", "2024-01-01 00:00:00.123", "2024-01-01 00:00:00.123"),
    ],
)
def test_values_are_printed_as_postgresql_does(declared: str, value: str, text: str) -> None:
    kind = kind_of(declared)
    assert kind is not None
    assert lines([kind], [value]).decode() == f"{text}\n"


@given(
    st.lists(st.sampled_from(["BIGINT", "VARCHAR", "BLOB", "DOUBLE", "TIMESTAMP", "DATE"]), min_size=1, max_size=6),
    st.data(),
)
def test_null_is_read_in_every_place(types: list[str], data: st.DataObject) -> None:
    values = {"BIGINT": "7", "VARCHAR": "", "BLOB": b"", "DOUBLE": 0.5, "TIMESTAMP": "2024-01-01", "DATE": "2024-01-01"}
    absent = data.draw(st.lists(st.booleans(), min_size=len(types), max_size=len(types)))
    kinds = [kind for each in types if (kind := kind_of(each)) is not None]
    row = [None if gone else values[each] for each, gone in zip(types, absent, strict=True)]
    assert [each is None for each in decoded(kinds, lines(kinds, row))] == absent


@pytest.mark.parametrize(
    "declared",
    ["INTEGER[]", "STRUCT(a INTEGER)", "MAP(INTEGER, VARCHAR)", "INTEGER[3]", "UNION(a INTEGER)", "GEOMETRY"],
)
def test_types_of_several_values_are_not_read(declared: str) -> None:
    assert kind_of(declared) is None


@given(_TEXT, _TEXT)
def test_a_text_with_a_nul_character_is_refused_and_nothing_else(before: str, after: str) -> None:
    kind = kind_of("VARCHAR")
    assert kind is not None
    line = lines([kind, kind], [before, f"{before}\0{after}"])
    assert line.startswith(lines([kind], [before])[:-1])
    with pytest.raises(EngineFault) as refused:
        decoded([kind, kind], line)
    assert refused.value.kind is FaultKind.VALUE_OUT_OF_DOMAIN


def test_null_in_a_key_is_refused() -> None:
    kind = kind_of("VARCHAR")
    assert kind is not None
    with pytest.raises(EngineFault):
        decoded([kind], lines([kind], [None], key=True))
    assert decoded([kind], lines([kind], [None])) == [None]


@pytest.mark.parametrize(
    ("declared", "texts", "refused"),
    [
        ("bigint", {"1": 1, "+1": 1, "007": 7}, ["1.0", "1.5", "1e3", " 1", "", "x", "9223372036854775808", "1_000"]),
        (
            "decimal(5, 2)",
            {"1.5": Decimal("1.50"), "1.500": Decimal("1.50"), ".25": Decimal("0.25")},
            ["1.239", "1000", "x", "1e2"],
        ),
        ("Numeric(4)", {"12": Decimal(12), "12.0": Decimal(12)}, ["12.1", "12345"]),
        ("double", {"1.5": 1.5, "-2e3": -2000.0, "inf": math.inf}, ["", "x", "1,5"]),
        ("boolean", {"true": True, "F": False, "1": True}, ["yes", "", "2"]),
        ("date", {"2024-02-29": date(2024, 2, 29)}, ["2023-02-29", "2024-2-9", "29.02.2024", "2024-02-29 10:00:00"]),
        (
            "timestamp",
            {"2024-02-29T10:00:00.5": datetime.fromisoformat("2024-02-29T10:00:00.500000")},
            ["2024-02-29 10:00:00.1234567", "10:00"],
        ),
        ("text", {"": "", " x ": " x ", "NULL": "NULL"}, []),
        ("uuid", {"12345678-1234-1234-1234-123456789ABC": "12345678-1234-1234-1234-123456789abc"}, ["x", "{12345678}"]),
    ],
)
def test_texts_are_read_exactly_or_refused(declared: str, texts: dict[str, object], refused: list[str]) -> None:
    kind = text_kind_of(declared)
    assert kind is not None
    for text, value in texts.items():
        assert decoded([kind], lines([kind], [text], as_text=True)) == [value]
    for text in refused:
        with pytest.raises(EngineFault) as fault:
            decoded([kind], lines([kind], [text], as_text=True))
        assert fault.value.kind is FaultKind.VALUE_OUT_OF_DOMAIN
    assert decoded([kind], lines([kind], [None], as_text=True)) == [None]


@given(st.text(st.sampled_from("0123456789+-.eE xTZ:"), max_size=24))
def test_no_text_is_read_as_a_number_that_it_does_not_show(text: str) -> None:
    for declared in ("bigint", "decimal(9, 3)", "decimal(38, 0)"):
        kind = text_kind_of(declared)
        assert kind is not None
        value = None
        with suppress(EngineFault):  # Refused.
            (value,) = decoded([kind], lines([kind], [text], as_text=True))
        assert value is None or Decimal(text) == value


@pytest.mark.parametrize(
    "declared", ["int[]", "interval", "blob", "decimal(39,1)", "decimal(3,4)", "", "varchar; drop"]
)
def test_types_that_text_is_not_read_as(declared: str) -> None:
    assert text_kind_of(declared) is None
