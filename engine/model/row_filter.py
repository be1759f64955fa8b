"""Row filters: the conditions that a table may declare. Pure; server and source judge alike.

A condition is pasted into SQL in parentheses. It may only hold what is listed here, so it cannot end them, call anything or read
anything but columns of the row. Types, operators and immutability are judged by the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<name>[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]*)
    |(?P<quoted>"(?:[^"\x00]|"")+")
    |(?P<string>'(?:[^'\\\x00]|'')*')
    |(?P<number>[0-9]+(?:\.[0-9]+)?(?![A-Za-z0-9_.$\u0080-\U0010ffff]))
    |(?P<operator>[-+*/<>=~!%|]+)
    |(?P<mark>[(),])""",
    re.VERBOSE,
)
_WORDS = frozenset(
    ["and", "or", "not", "in", "is", "null", "true", "false", "like", "ilike", "between", "distinct", "from", "unknown"]
)
_OPERATORS = frozenset(["=", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "~", "~*", "!~", "!~*", "||"])
_NOTHING = ""


class UnfitFilterError(ValueError):
    """The condition holds something that row filters may not hold; the message says what."""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A condition over columns of one row. `text`: as declared. `columns`: number and name of each column that it reads."""

    text: str
    columns: tuple[tuple[int, str], ...]


def columns_of(condition: str) -> frozenset[str]:
    """The names of the columns that a condition reads.

    Raises:
        UnfitFilterError: it is no condition of columns, literals and operators.
    """
    names = set()
    depth = 0
    before, gap = _NOTHING, True
    for kind, text in _tokens(condition):
        if kind == "space":
            gap = True
            continue
        word = text.lower() if kind == "name" else text
        if kind == "name" and word not in _WORDS:
            names.add(word if text.isascii() else _folded(text))
        elif kind == "quoted":
            names.add(text[1:-1].replace('""', '"'))
        elif kind == "operator" and text not in _OPERATORS:
            raise UnfitFilterError(f"a row filter cannot hold the operator {text}")
        elif text == "(":
            depth += 1
            if before in {"name", "quoted"}:
                raise UnfitFilterError("a row filter cannot call functions")
        elif text == ")":
            depth -= 1
        if depth < 0:
            raise UnfitFilterError("a parenthesis is closed that was not opened")
        if kind == "string" and not gap:
            raise UnfitFilterError("a string cannot follow a name or a number directly")
        before = kind if kind != "name" or word not in _WORDS else _NOTHING
        gap = kind in {"operator", "mark"}
    if depth:
        raise UnfitFilterError("a parenthesis is not closed")
    if not names:
        raise UnfitFilterError("a row filter reads at least one column")
    return frozenset(names)


def strings_of(condition: str) -> frozenset[str]:
    """The texts that a condition without `UnfitFilterError` holds as literals."""
    return frozenset(text[1:-1].replace("''", "'") for kind, text in _tokens(condition) if kind == "string")


def row_filter(condition: str, numbers: Mapping[str, int]) -> RowFilter:
    """The condition over columns with these numbers.

    Raises:
        UnfitFilterError: see `columns_of`; or a column is not in `numbers`.
    """
    names = sorted(columns_of(condition))
    unknown = [name for name in names if name not in numbers]
    if unknown:
        raise UnfitFilterError(f"the table does not have these columns of the row filter: {', '.join(unknown)}")
    return RowFilter(condition, tuple((numbers[name], name) for name in names))


def _tokens(condition: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(condition):
        found = _TOKEN.match(condition, at)
        if found is None or found.lastgroup is None:
            raise UnfitFilterError(f"a row filter cannot hold {condition[at]!r}")
        yield found.lastgroup, found[0]
        at = found.end()


def _folded(name: str) -> str:
    """As PostgreSQL folds names that are not quoted, in UTF-8: ASCII letters only."""
    return "".join(each.lower() if each.isascii() else each for each in name)
