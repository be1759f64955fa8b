"""The syntax of durations and table names on the command line."""

from __future__ import annotations

import re

_UNITS_MS = {"ms": 1, "": 1000, "s": 1000, "m": 60_000, "h": 3_600_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|)")
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


def duration_ms(text: str) -> int:
    """Milliseconds in `500ms`, `30s`, `30` (seconds), `5m` or `1h`.

    Raises:
        ValueError: the text has another form.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write it like 500ms, 30s or 5m")
    return round(float(match[1]) * _UNITS_MS[match[2]])


def table_name(text: str) -> tuple[str, str]:
    """Schema and name in `schema.name`; `public` if no schema is given.

    Names are case-sensitive. A name with a dot or a quote is written in double quotes, as in SQL: `"a.b".orders`.

    Raises:
        ValueError: the text has another form.
    """
    parts: list[str] = []
    at = 0
    while match := _PART.match(text, at):
        parts.append(match[1].replace('""', '"') if match[1] is not None else match[2])
        at = match.end()
        if at == len(text):
            break
        if text[at] != ".":
            parts.clear()
            break
        at += 1
    if at != len(text) or (text.endswith(".") and not text.endswith('."')) or len(parts) not in (1, 2):
        raise ValueError(f'{text!r} is not a table; write it like public.orders, or "odd.schema"."odd.name"')
    return ("public", parts[0]) if len(parts) == 1 else (parts[0], parts[1])
