"""Stamps: values of a column that every insert and update sets to the time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stamp:
    """A column, and the text of a value of it."""

    column: str
    value: str


OLDEST = "-infinity"
"""Text of a stamp that is not newer than any: of a relation without rows, whose next ones are all new."""
UNKNOWN_S = 900.0
"""Age in seconds of an open transaction whose beginning cannot be known. Not measured."""


@dataclass(frozen=True, slots=True)
class Touched:
    """Rows of a view whose `columns` have one of the values, and which are not among those of `others`: their relations changed. `lines`:
    the values of the columns as COPY text, without the ends of lines, none of which is NULL."""

    columns: tuple[str, ...]
    lines: tuple[bytes, ...]
    others: tuple[Touched, ...] = ()


Since = Stamp | Touched
"""Which rows of a table or view a cycle by stamps reads."""
