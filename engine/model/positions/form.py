"""Text form and distances of the positions of one kind of capture."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from engine.model.position import Lsn, MalformedPosition
from engine.model.positions.marks import Marks, single_mark
from engine.model.positions.several_logs import SeveralLogsForm
from engine.model.positions.whole_number import WholeNumberForm
from engine.model.positions.windows import CycleForm, WindowForm

POSITION_EXAMPLE = "0/16B3748"
"""A position of the usual kind of source."""
_READERS: tuple[Callable[[str], object], ...] = (
    Lsn.parse,
    WholeNumberForm().parse,
    WindowForm().parse,
    CycleForm().parse,
    SeveralLogsForm().parse,
)
"""Of the forms that positions of any kind of source have."""


class PositionForm(Protocol):
    """Text and measures of one kind's positions. `parse(text(p)) == p` for every position of the kind, and the order is kept."""

    @property
    def example(self) -> str:
        """A text that `parse` accepts."""
        ...

    @property
    def origin(self) -> str:
        """How a user gets the position of their own commit, as part of a sentence."""
        ...

    @property
    def horizon(self) -> int:
        """How far beyond the last known position a position may be to be demanded with others, in units of the 64-bit integer.

        A later one may never be reached, and must not delay others.
        """
        ...

    def parse(self, text: str) -> Marks:
        """Read a text. Raises MalformedPosition where it is not of this form."""
        ...

    def text(self, marks: Marks) -> str: ...

    def lag(self, source: Lsn, applied: Lsn) -> int | None:
        """Bytes of the source's log between two positions, 0 if `applied` is later; None if positions do not count bytes."""
        ...


def text_of(form: PositionForm, position: Lsn | None) -> str | None:
    """The text of a position in the only log of a source; None for None."""
    return None if position is None else form.text(single_mark(position))


def is_position(text: str) -> bool:
    """Whether a text has the form of a position of some kind of source."""
    for read in _READERS:
        with suppress(MalformedPosition):
            read(text)
            return True
    return False
