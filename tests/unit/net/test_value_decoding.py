"""Printed values become exactly the values they print, for every kind; what does not fit is refused."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.model.values import Kind, ValueType
from engine.net.decode import ValueOutOfDomain, decode_column
from engine.net.plan import ColumnPlan

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - zoneless, as PostgreSQL's timestamp is
_DAY_US = 86_400_000_000
_INT64_MAX = 2**63 - 1
many = settings(deadline=None, max_examples=50)


def decode(held: ValueType | Kind, texts: Sequence[str | None], delimiter: str = ",") -> pa.Array:
    held = held if isinstance(held, ValueType) else ValueType(held)
    raw = [b"" if text is None else text.encode() for text in texts]
    # A byte in front of each value, so that no value begins where the one before it ends.
    data = np.frombuffer(b"".join(b"!" + text for text in raw) + b"!", np.uint8).copy()
    length = np.array([len(text) for text in raw], np.int32)
    off = np.cumsum(length + 1) - length
    length[[i for i, text in enumerate(texts) if text is None]] = -1
    array = decode_column(data, off.astype(np.int64), length, ColumnPlan("v", held, ord(delimiter)))
    array.validate(full=held.kind is not Kind.TIME)
    return array


def numbers(array: pa.Array, width: pa.DataType) -> list[int | None]:
    """The stored integers of a date or time column; `to_pylist` cannot show those outside Python's years."""
    values: list[int | None] = array.view(width).to_pylist()
    return values


@many
@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
@example([-(2**63), 2**63 - 1, 0, None])
def test_int64(values: list[int | None]) -> None:
    assert decode(Kind.INT64, [None if v is None else str(v) for v in values]).to_pylist() == values


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (Kind.INT16, -(2**15), 2**15 - 1),
        (Kind.INT32, -(2**31), 2**31 - 1),
        (Kind.INT64, -(2**63), 2**63 - 1),
        (Kind.UINT32, 0, 2**32 - 1),
    ],
)
def test_int_borders(kind: Kind, low: int, high: int) -> None:
    assert decode(kind, [str(low), str(high)]).to_pylist() == [low, high]
    for outside in (low - 1, high + 1, high * 100):
        with pytest.raises(ValueOutOfDomain):
            decode(kind, [str(outside)])


@pytest.mark.parametrize("text", ["", "-", "1 ", "+1", "1.0", "x", "1e3"])
def test_what_is_no_integer(text: str) -> None:
    with pytest.raises(ValueOutOfDomain):
        decode(Kind.INT64, [text])


def test_bool() -> None:
    assert decode(Kind.BOOL, ["t", None, "f", *["t"] * 9]).to_pylist() == [True, None, False, *[True] * 9]
    with pytest.raises(ValueOutOfDomain):
        decode(Kind.BOOL, ["true"])


@many
@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)))
@example([5e-324, 1.7976931348623157e308, -0.0, 2.2250738585072011e-308])
def test_float64(values: list[float | None]) -> None:
    found = decode(Kind.FLOAT64, [None if v is None else repr(v) for v in values]).to_pylist()
    assert [None if v is None else struct.pack("d", v) for v in found] == [
        None if v is None else struct.pack("d", v) for v in values
    ]


@many
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_float32(values: list[float]) -> None:
    texts = [str(np.float32(v)) for v in values]
    assert decode(Kind.FLOAT32, texts).to_pylist() == values


@pytest.mark.parametrize("kind", [Kind.FLOAT32, Kind.FLOAT64])
def test_float_specials(kind: Kind) -> None:
    nan, *rest = decode(kind, ["NaN", "Infinity", "-Infinity", None]).to_pylist()
    assert math.isnan(nan)
    assert rest == [math.inf, -math.inf, None]


@st.composite
def _decimals(draw: st.DrawFn) -> tuple[int, int, list[int | None]]:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    most = 10**precision - 1
    return precision, scale, draw(st.lists(st.none() | st.integers(-most, most)))


def _print_decimal(unscaled: int, scale: int) -> str:
    return f"{Decimal(unscaled).scaleb(-scale):.{scale}f}" if abs(unscaled) < 10**27 else _print_long(unscaled, scale)


def _print_long(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return sign + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits)


@many
@given(_decimals())
@example((38, 0, [10**38 - 1, -(10**38) + 1, 2**64, -(2**64), 2**64 - 1]))
def test_decimal(case: tuple[int, int, list[int | None]]) -> None:
    precision, scale, values = case
    texts = [None if v is None else _print_decimal(v, scale) for v in values]
    found = decode(ValueType(Kind.DECIMAL, precision, scale), texts).to_pylist()
    assert found == [None if v is None else Decimal(_print_long(v, scale)) for v in values]


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "-Infinity", "100.00", "1.234", "0.001", "", ".", "-", "1..2", "1.2.3", "1e1"]
)
def test_outside_numeric_4_2(text: str) -> None:
    with pytest.raises(ValueOutOfDomain):
        decode(ValueType(Kind.DECIMAL, 4, 2), [text])


def test_decimal_of_fewer_digits() -> None:
    texts = ["1", "1.5", "1.50", "1.500", "-0.05", "99.99", "0"]
    expected = [Decimal(t) for t in texts]
    assert decode(ValueType(Kind.DECIMAL, 4, 2), texts).to_pylist() == expected


@many
@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8"))))
def test_text(values: list[str | None]) -> None:
    assert decode(Kind.TEXT, values).to_pylist() == values


def test_long_texts() -> None:
    values = ["x" * n for n in (0, 1, 47, 48, 49, 50, 1000)]
    assert decode(Kind.TEXT, list(values)).to_pylist() == values


def test_text_that_is_not_utf8() -> None:
    data = np.frombuffer(b"\xff\xfe", np.uint8).copy()
    with pytest.raises(ValueOutOfDomain):
        decode_column(data, np.zeros(1, np.int64), np.full(1, 2, np.int32), ColumnPlan("v", ValueType(Kind.TEXT)))


@many
@given(st.lists(st.none() | st.binary()))
def test_bytes(values: list[bytes | None]) -> None:
    assert decode(Kind.BYTES, [None if v is None else rf"\x{v.hex()}" for v in values]).to_pylist() == values


@pytest.mark.parametrize("text", ["", r"\x0", r"\x0g", "00", r"\000", r"\X00"])
def test_what_is_no_hex(text: str) -> None:
    with pytest.raises(ValueOutOfDomain):
        decode(Kind.BYTES, [text])


def _print_date(days: int) -> str:
    """As PostgreSQL prints it, for any year: by moving whole cycles of 400 years into Python's range."""
    cycles, rest = divmod(days, 146_097)
    day = date(1970, 1, 1) + timedelta(days=rest)
    year = day.year + 400 * cycles
    return f"{year:04}-{day:%m-%d}" if year > 0 else f"{1 - year:04}-{day:%m-%d} BC"


_DAYS = st.integers(-2_440_588, 2_145_031_948)


@many
@given(st.lists(st.none() | _DAYS))
@example([-2_440_588, 2_145_031_948, -719_162, -719_163, -719_528, -719_529, 0, -1, None])
def test_dates(days: list[int | None]) -> None:
    found = decode(Kind.DATE, [None if d is None else _print_date(d) for d in days])
    assert numbers(found, pa.int32()) == days


def test_every_day_of_a_leap_cycle() -> None:
    days = list(range(-146_097, 146_098, 13)) + [_days_of(y, 2, 29) for y in (1996, 2000, 2400)]
    assert numbers(decode(Kind.DATE, [_print_date(d) for d in days]), pa.int32()) == days


def _days_of(year: int, month: int, day: int) -> int:
    return (date(year, month, day) - date(1970, 1, 1)).days


def test_infinite_dates() -> None:
    assert numbers(decode(Kind.DATE, ["infinity", "-infinity"]), pa.int32()) == [2**31 - 1, -(2**31) + 1]


@pytest.mark.parametrize(
    "text",
    ["", "2023-02-29", "1900-02-29", "2023-13-01", "2023-00-01", "2023-01-00", "2023-04-31", "0000-01-01", "23-01-01",
     "2023-1-01", "2023/01/01", "2023-01-01 AD", "2023-01-01x", "-2023-01-01", "+infinity", "infinity "],
)  # fmt: skip
def test_what_is_no_date(text: str) -> None:
    with pytest.raises(ValueOutOfDomain):
        decode(Kind.DATE, [text])


def _print_time(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return text + (f".{fraction:06}".rstrip("0") if fraction else "")


_MICROS = st.integers(0, _DAY_US - 1)


@many
@given(st.lists(st.none() | _MICROS | st.just(_DAY_US)))
@example([_DAY_US, 0, _DAY_US - 1, 1])
def test_times(micros: list[int | None]) -> None:
    found = decode(Kind.TIME, [None if m is None else _print_time(m) for m in micros])
    assert numbers(found, pa.int64()) == micros


@pytest.mark.parametrize("text", ["", "24:00:01", "24:00:00.000001", "25:00:00", "12:60:00", "12:00:60", "1:00:00",
                                  "12:00", "12:00:00.1234567", "12-00-00", "12:00:00+00"])  # fmt: skip
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueOutOfDomain):
        decode(Kind.TIME, [text])


_STAMPS = st.integers(-2_440_588 * _DAY_US, _INT64_MAX - 1)


def _print_stamp(micros: int, zone: str) -> str:
    days, rest = divmod(micros, _DAY_US)
    day, _, era = _print_date(days).partition(" ")
    return f"{day} {_print_time(rest)}{zone}{' BC' if era else ''}"


@many
@given(st.lists(st.none() | _STAMPS), st.booleans())
@example([_INT64_MAX - 1, -2_440_588 * _DAY_US, 0, -1, None, -62_135_596_800_000_000 - 1], True)
def test_timestamps(stamps: list[int | None], zoned: bool) -> None:
    kind, zone = (Kind.TIMESTAMPTZ, "+00") if zoned else (Kind.TIMESTAMP, "")
    found = decode(kind, [None if s is None else _print_stamp(s, zone) for s in stamps])
    assert numbers(found, pa.int64()) == stamps


@many
@given(st.datetimes())
def test_timestamps_as_python_prints_them(stamp: datetime) -> None:
    text = stamp.isoformat(" ")
    assert decode(Kind.TIMESTAMP, [text]).to_pylist() == [stamp]
    zoned = decode(Kind.TIMESTAMPTZ, [f"{text}+00"])
    assert numbers(zoned, pa.int64()) == [(stamp - _EPOCH) // timedelta(microseconds=1)]
    assert zoned.to_pylist() == [stamp.replace(tzinfo=UTC)]


@pytest.mark.parametrize("kind", [Kind.TIMESTAMP, Kind.TIMESTAMPTZ])
def test_infinite_timestamps(kind: Kind) -> None:
    assert numbers(decode(kind, ["infinity", "-infinity"]), pa.int64()) == [_INT64_MAX, -_INT64_MAX]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.TIMESTAMP, "294247-01-10 04:00:54.775807"),
        (Kind.TIMESTAMP, "294276-12-31 23:59:59.999999"),
        (Kind.TIMESTAMP, "2023-01-01 00:00:00+00"),
        (Kind.TIMESTAMP, "2023-01-01T00:00:00"),
        (Kind.TIMESTAMP, "2023-01-01"),
        (Kind.TIMESTAMP, ""),
        (Kind.TIMESTAMPTZ, "2023-01-01 00:00:00"),
        (Kind.TIMESTAMPTZ, "2023-01-01 00:00:00+01"),
        (Kind.TIMESTAMPTZ, "2023-01-01 00:00:00+00:30"),
        (Kind.TIMESTAMPTZ, "+00"),
    ],
)
def test_what_is_no_timestamp(kind: Kind, text: str) -> None:
    with pytest.raises(ValueOutOfDomain):
        decode(kind, [text])


def _print_array(elements: list[str | None] | None, delimiter: str = ",") -> str | None:
    """As PostgreSQL's array_out does."""
    if elements is None:
        return None
    shown = []
    for element in elements:
        if element is None:
            shown.append("NULL")
        elif (
            element == ""
            or element.upper() == "NULL"
            or any(c in f'"\\{{}}{delimiter}' or c in " \t\n\r\v\f" for c in element)
        ):
            shown.append('"' + element.replace("\\", "\\\\").replace('"', '\\"') + '"')
        else:
            shown.append(element)
    return "{" + delimiter.join(shown) + "}"


_ELEMENTS = st.none() | st.text('ab"\\{},; NULé') | st.sampled_from(["NULL", "null", "Null", ""])


@many
@given(st.lists(st.none() | st.lists(_ELEMENTS)), st.sampled_from(",;"))
def test_text_arrays(values: list[list[str | None] | None], delimiter: str) -> None:
    held = ValueType(Kind.LIST, element=ValueType(Kind.TEXT))
    assert decode(held, [_print_array(v, delimiter) for v in values], delimiter).to_pylist() == values


@many
@given(st.lists(st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1))))
def test_int_arrays(values: list[list[int | None] | None]) -> None:
    held = ValueType(Kind.LIST, element=ValueType(Kind.INT32))
    texts = [None if v is None else _print_array([None if e is None else str(e) for e in v]) for v in values]
    assert decode(held, texts).to_pylist() == values


def test_arrays_of_other_kinds() -> None:
    cases: list[tuple[ValueType, str, list[object]]] = [
        (ValueType(Kind.BYTES), r'{"\\x00ff",NULL}', [b"\0\xff", None]),
        (ValueType(Kind.DECIMAL, 5, 2), "{1.50,-2.00}", [Decimal("1.50"), Decimal("-2.00")]),
        (ValueType(Kind.TIMESTAMP), '{"1970-01-01 00:00:00"}', [_EPOCH]),
        (ValueType(Kind.BOOL), "{t,f,NULL}", [True, False, None]),
        (ValueType(Kind.FLOAT64), "{1.5,Infinity}", [1.5, math.inf]),
        (ValueType(Kind.DATE), "{2023-01-01}", [date(2023, 1, 1)]),
        (ValueType(Kind.TIME), "{12:00:00}", [time(12)]),
    ]
    for element, text, expected in cases:
        assert decode(ValueType(Kind.LIST, element=element), [text, "{}"]).to_pylist() == [expected, []]


@pytest.mark.parametrize(
    "text",
    ["{{1,2},{3,4}}", "[0:1]={1,2}", "{1,{2}}", "{1", "1,2}", "", "{", "{1,}", "{,1}", "{1}x", '{"1}', '{"1"x}',
     "{1}{2}", "{1\\", "{99999999999}", "{NaN}", "{}{}", "}"],
)  # fmt: skip
def test_what_is_no_one_dimensional_array(text: str) -> None:
    with pytest.raises(ValueOutOfDomain):
        decode(ValueType(Kind.LIST, element=ValueType(Kind.INT32)), [text])


@pytest.mark.parametrize("kind", [k for k in Kind if k not in (Kind.LIST, Kind.DECIMAL)])
@pytest.mark.parametrize("shape", [list, lambda: [None], lambda: [None] * 9])
def test_nothing_but_nulls(kind: Kind, shape: Callable[[], list[None]]) -> None:
    assert decode(kind, list(shape())).to_pylist() == shape()


def test_a_refusal_names_column_and_kind_but_not_the_value() -> None:
    with pytest.raises(ValueOutOfDomain) as caught:
        decode(Kind.INT32, ["secret"])
    assert "column v" in str(caught.value)
    assert "int32" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__
