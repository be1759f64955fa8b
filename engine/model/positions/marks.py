"""Positions in one log or in several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from engine.model.position import Lsn

ONLY_LOG = ""
"""Name of the log of a source that has one."""


class Mark(NamedTuple):
    """A position in one log of a source."""

    log: str
    position: Lsn


Marks = tuple[Mark, ...]
"""A position of a source: one mark for each log that it names, in ascending order of their names, at least one."""

Reached = Mapping[str, Lsn]
"""Position that is reached in each log; a log without one has not begun."""


def single_mark(position: Lsn) -> Marks:
    """The marks of a position in the only log of a source."""
    return (Mark(ONLY_LOG, position),)


def first_uncovered(reached: Reached, marks: Marks) -> Mark | None:
    """The first mark that is not reached; None if all are."""
    for mark in marks:
        at = reached.get(mark.log)
        if at is None or at < mark.position:
            return mark
    return None
