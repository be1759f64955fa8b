"""PostgreSQL's text format of arrays, of one dimension. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SPACE = " \t\n\r\v\f"
"""What PostgreSQL ignores around elements."""
_EMPTY = re.compile(rf"{{[{_SPACE}]*}}")
# Without backtracking: clients choose the text.
_ELEMENT = re.compile(
    rf"""[{_SPACE}]*+(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"[{_SPACE}]*+|(?P<plain>(?:[^"\\,{{}}]|\\.)++))(?P<after>[,}}])""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def array_literal(texts: Sequence[str | None]) -> str:
    """An array with elements of these texts; None is NULL."""
    return "{" + ",".join(map(_written, texts)) + "}"


def array_elements(literal: str) -> list[str | None]:
    """The texts of an array's elements; None is NULL.

    Raises:
        ValueError: it is malformed, or has more than one dimension or lower bounds.
    """
    text = literal.strip(_SPACE)
    if _EMPTY.fullmatch(text):
        return []
    found: list[str | None] = []
    at, after = 1, "," if text.startswith("{") else ""
    while after == ",":
        element = _ELEMENT.match(text, at)
        if element is None:
            break
        found.append(_read(element))
        at, after = element.end(), element["after"]
    if after != "}" or at != len(text):
        raise ValueError("not an array literal of one dimension")
    return found


def _read(element: re.Match[str]) -> str | None:
    quoted = element["quoted"]
    if quoted is not None:
        return _ESCAPED.sub(r"\1", quoted)
    plain = element["plain"].strip(_SPACE)
    if not plain or plain.endswith("\\"):
        raise ValueError("not an array literal: an element is empty")
    return None if plain.upper() == "NULL" else _ESCAPED.sub(r"\1", plain)


def _written(text: str | None) -> str:
    if text is None:
        return "NULL"
    plain = text and text.upper() != "NULL" and not any(c in text for c in '{}",\\' + _SPACE)
    return text if plain else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
