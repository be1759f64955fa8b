"""Keys as whole numbers that sort as the source sorts the keys: places between two keys can be computed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.sources.mariadb.types import HEX_MARK, ColumnFacts, Printed

_EXACT = {"utf8mb4": 0x110000, "utf8mb3": 0x10000, "utf8": 0x10000, "ascii": 0x80}
"""Code points of the character sets whose binary collations sort texts by their characters."""
_SURROGATES = (0xD800, 0x800)
"""The first code point that is no character, and how many there are."""
_LENGTH = re.compile(r"\((\d+)")
_DAY_US = 86_400_000_000
"""Microseconds of a day."""
_DIGITS = 20
"""Digits of numbers whose precision the catalog does not have: of years."""


@dataclass(frozen=True, slots=True)
class KeyNumbers:
    """The numbers of one column: from 0, below `size`. `text` has for each number a value, which may be the next lower one."""

    size: int
    number: Callable[[str], int]
    text: Callable[[int], str]


def sorts_exactly(facts: ColumnFacts, how: Printed) -> bool:
    """Whether the source sorts texts of the column by their characters, without padding; true for other types."""
    charset, _, order = facts.collation.partition("_")
    return how.name != "text" or (charset in _EXACT and order == "nopad_bin")


def numbers_of(facts: ColumnFacts, how: Printed) -> KeyNumbers:
    """For a column that sorts exactly."""
    found = _LENGTH.search(facts.column_type)
    length = int(found[1]) if found else 1
    if how.name == "text":
        points = _EXACT[facts.collation.partition("_")[0]]
        return KeyNumbers((points + 1) ** length, _of_text(points + 1, length), _to_text(points + 1, length))
    if how.name == "bytea":
        return KeyNumbers(257**length, _of_bytes(length), _to_bytes(length))
    if how.name in {"date", "timestamp"}:
        return KeyNumbers(10_000 * 13 * 32 * _DAY_US, _of_time, _to_date if how.name == "date" else _to_time)
    middle = 10 ** int(facts.precision or _DIGITS)
    return KeyNumbers(
        2 * middle, lambda text: int(text.replace(".", "")) + middle, _to_decimal(middle, facts.scale or 0)
    )


def key_number(columns: Sequence[KeyNumbers], texts: Sequence[str]) -> int:
    """The number of a key."""
    found = 0
    for column, text in zip(columns, texts, strict=True):
        found = found * column.size + column.number(text)
    return found


def key_texts(columns: Sequence[KeyNumbers], number: int) -> list[str]:
    """A key at the number, or shortly before it."""
    found: list[str] = []
    for column in reversed(columns):
        number, own = divmod(number, column.size)
        found.insert(0, column.text(own))
    return found


def _number(digits: Sequence[int], base: int, length: int) -> int:
    """Of digits above 0; what follows the last one is lower than all others."""
    found = 0
    for at in range(length):
        found = found * base + (digits[at] if at < len(digits) else 0)
    return found


def _digits(number: int, base: int, length: int) -> list[int]:
    """The digits before the first 0."""
    found: list[int] = []
    for _ in range(length):
        number, digit = divmod(number, base)
        found.append(digit)
    found.reverse()
    return found[: found.index(0)] if 0 in found else found


def _of_text(base: int, length: int) -> Callable[[str], int]:
    first, count = _SURROGATES
    return lambda text: _number([p + 1 if (p := ord(c)) < first else p + 1 - count for c in text], base, length)


def _to_text(base: int, length: int) -> Callable[[int], str]:
    first, count = _SURROGATES

    def text(number: int) -> str:
        points = (digit - 1 for digit in _digits(number, base, length))
        return "".join(chr(min(p if p < first else p + count, base - 2)) for p in points)

    return text


def _of_bytes(length: int) -> Callable[[str], int]:
    return lambda text: _number([each + 1 for each in bytes.fromhex(text.removeprefix(HEX_MARK))], 257, length)


def _to_bytes(length: int) -> Callable[[int], str]:
    return lambda number: HEX_MARK + bytes(digit - 1 for digit in _digits(number, 257, length)).hex()


def _to_decimal(middle: int, scale: int) -> Callable[[int], str]:
    def text(number: int) -> str:
        digits = f"{abs(number - middle):0{scale + 1}}"
        whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
        return f"{'-' if number < middle else ''}{whole}{'.' if scale else ''}{fraction}"

    return text


def _of_time(text: str) -> int:
    """Of a date, or a date and time; parts of a date may be 0."""
    date, _, time = text.partition(" ")
    year, month, day = map(int, date.split("-"))
    hour, minute, second = (time or "0:0:0").split(":")
    whole, _, fraction = second.partition(".")
    us = int(whole) * 1_000_000 + int(f"{fraction:0<6}")
    return ((year * 13 + month) * 32 + day) * _DAY_US + (int(hour) * 60 + int(minute)) * 60_000_000 + us


def _to_date(number: int) -> str:
    days = number // _DAY_US
    # Every month has these days.
    return f"{days // 416:04}-{max(1, days // 32 % 13):02}-{min(28, max(1, days % 32)):02}"


def _to_time(number: int) -> str:
    us = number % _DAY_US
    seconds = us // 1_000_000
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{us % 1_000_000:06}"
    return f"{_to_date(number)} {clock}"
