"""Statements without their literals, so that they can be shown and logged."""

from __future__ import annotations

import re

MOST = 200
"""Most characters of a redacted statement."""
_LITERAL = re.compile(
    r"""--[^\n]*|/\*.*?(?:\*/|\Z)            # comments may hold values
    |(?:\b[eEbBxXnN]|\b[uU]&)?'(?:[^']|'')*(?:'|\Z)
    |\$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z)
    |(?<![\w"$])[+-]?\d[\w.]*""",
    re.DOTALL | re.VERBOSE,
)


def redacted(statement: str) -> str:
    """The statement on one line, with `?` for each literal and without comments; at most MOST characters.

    A literal that the server has cut off is removed to its end. Whether a backslash escapes a quote depends on the session, so a statement
    with backslashes is shown up to its first quote only.
    """
    if "\\" in statement:
        statement = statement.partition("'")[0] + "'"
    if statement.count("/*") > 1:  # Comments may be nested.
        statement = statement.partition("/*")[0]
    shown = " ".join(_LITERAL.sub(lambda found: " " if found[0][:2] in {"--", "/*"} else "?", statement).split())
    return shown if len(shown) <= MOST else shown[: MOST - 1] + "…"
