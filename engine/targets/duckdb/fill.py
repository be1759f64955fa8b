"""SQL constants for the value that old rows of an added column hold, from PostgreSQL's text of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.model.values import Kind, ValueType
from engine.targets.duckdb.identifiers import literal
from engine.targets.duckdb.types import duckdb_type

_DECIMAL = re.compile(r"-?(\d+)(?:\.(\d+))?")
_DATE = re.compile(r"(\d{4,})-(\d\d)-(\d\d)( BC)?")
_STAMP = re.compile(r"(\d{4,}-\d\d-\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(\+00)?( BC)?")
_TIME = re.compile(r"\d\d:\d\d:\d\d(\.\d{1,6})?")
_US_PER_DAY = 86_400_000_000
_LAST_DAY = 2**31 - 2
_LAST_US = 9_223_372_022_400_000_000
"""DuckDB builds timestamps from no greater number of microseconds."""


class OutsideDomain(ValueError):
    """The text is no value of the column's type on the target. The message holds no value."""


def fill_expression(text: str, value: ValueType, delimiter: str = ",") -> str:
    """SQL for the value that PostgreSQL prints as `text`. `delimiter`: what parts the elements, where it is an array.

    Raises:
        OutsideDomain: DuckDB's type cannot hold it exactly.
    """
    kind = value.kind
    if kind is Kind.TEXT:
        return literal(text)
    if kind is Kind.LIST:
        return _list(text, value, delimiter)
    if kind is Kind.BOOL:
        return _bool(text)
    if kind is Kind.BYTES:
        return _bytes(text)
    if kind in (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ) and text in ("infinity", "-infinity"):
        return _cast(text, value)
    if kind is Kind.DATE:
        return f"(DATE '1970-01-01' + CAST({_days(text)} AS INTEGER))"
    if kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ):
        return f"CAST(make_timestamp({_microseconds(text)}) AS {duckdb_type(value)})"
    _check(text, value)
    return _cast(text, value)


def _cast(text: str, value: ValueType) -> str:
    return f"CAST({literal(text)} AS {duckdb_type(value)})"


def _check(text: str, value: ValueType) -> None:
    if value.kind is Kind.DECIMAL:
        match = _DECIMAL.fullmatch(text)
        whole, fraction = (match.group(1).lstrip("0"), match.group(2) or "") if match else ("", "")
        if match is None or len(whole) > value.precision - value.scale or len(fraction) > value.scale:
            raise OutsideDomain("not a number of the declared precision and scale")
    if value.kind is Kind.TIME and _TIME.fullmatch(text) is None:
        raise OutsideDomain("not a time of day")


def _bool(text: str) -> str:
    if text not in ("t", "f", "true", "false"):
        raise OutsideDomain("not a boolean")
    return "TRUE" if text.startswith("t") else "FALSE"


def _bytes(text: str) -> str:
    digits = text.removeprefix("\\x")
    if digits == text or re.fullmatch(r"([0-9a-fA-F]{2})*", digits) is None:
        raise OutsideDomain("not bytes in hexadecimal form")
    return f"from_hex('{digits}')"


def _days(text: str) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar, which PostgreSQL and DuckDB both keep."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise OutsideDomain("not a date")
    year, month, day = int(match.group(1)), int(match.group(2)), int(match.group(3))
    days = _civil(1 - year if match.group(4) else year, month, day)
    if abs(days) > _LAST_DAY:
        raise OutsideDomain("a date beyond the target's range")
    return days


def _civil(year: int, month: int, day: int) -> int:
    """Day number; years are counted from March, so that a leap day is the last day of one."""
    shifted = year - 1 if month <= 2 else year
    month_from_march = (month + 9) % 12
    leaps = shifted // 4 - shifted // 100 + shifted // 400
    return 365 * shifted + leaps + (153 * month_from_march + 2) // 5 + day - 1 - 719_468


def _microseconds(text: str) -> int:
    match = _STAMP.fullmatch(text)
    if match is None:
        raise OutsideDomain("not a timestamp in UTC")
    hours, minutes, seconds = int(match.group(2)), int(match.group(3)), int(match.group(4))
    fraction = int((match.group(5) or "").ljust(6, "0"))
    of_day = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction
    total = _days(match.group(1) + (match.group(7) or "")) * _US_PER_DAY + of_day
    if abs(total) > _LAST_US:
        raise OutsideDomain("a timestamp beyond the target's range")
    return total


def _list(text: str, value: ValueType, delimiter: str) -> str:
    if value.element is None:
        raise OutsideDomain("a list without an element type")
    parts = [
        "NULL" if element is None else fill_expression(element, value.element)
        for element in _array_elements(text, delimiter)
    ]
    return f"CAST([{', '.join(parts)}] AS {duckdb_type(value)})"


def _array_elements(text: str, delimiter: str) -> Iterator[str | None]:
    """Elements of a one-dimensional array literal with default bounds; None for NULL."""
    if len(text) < 2 or text[0] != "{" or text[-1] != "}":
        raise OutsideDomain("not an array with the default bounds")
    at, end = 1, len(text) - 1
    while at < end:
        if text[at] == "{":
            raise OutsideDomain("an array of several dimensions")
        element, at = _quoted_element(text, at) if text[at] == '"' else _bare_element(text, at, end, delimiter)
        yield element
        if at < end and text[at] != delimiter:
            raise OutsideDomain("not an array")
        at += 1


def _quoted_element(text: str, at: int) -> tuple[str, int]:
    out: list[str] = []
    at += 1
    while text[at] != '"':
        if text[at] == "\\":
            at += 1
        out.append(text[at])
        at += 1
        if at >= len(text):
            raise OutsideDomain("not an array")
    return "".join(out), at + 1


def _bare_element(text: str, at: int, end: int, delimiter: str) -> tuple[str | None, int]:
    out: list[str] = []
    while at < end and text[at] != delimiter:
        if text[at] == "\\":
            at += 1
        out.append(text[at])
        at += 1
    word = "".join(out)
    return (None if word.upper() == "NULL" else word), at
