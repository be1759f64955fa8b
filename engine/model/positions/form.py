"""What a kind of capture says about its positions."""

from __future__ import annotations

from typing import Protocol

from engine.model.position import Lsn
from engine.model.positions.marks import Marks, single_mark


class PositionForm(Protocol):
    """Text and measures of one kind's positions. `parse(text(p)) == p` for every position of the kind, and the order is kept."""

    @property
    def example(self) -> str:
        """A text that `parse` takes."""
        ...

    @property
    def origin(self) -> str:
        """How a user gets the position of a commit of their own, as a part of a sentence."""
        ...

    @property
    def horizon(self) -> int:
        """How far ahead of everything known a position may be to be waited for at once, in the order's own unit.

        One further ahead may never come, and must not hold up others.
        """
        ...

    def parse(self, text: str) -> Marks:
        """Read a text. Raises MalformedPosition where it is not of this form."""
        ...

    def text(self, marks: Marks) -> str: ...

    def lag(self, source: Lsn, applied: Lsn) -> int | None:
        """Bytes of the source's log between two positions, 0 where `applied` is further; None where the order counts no bytes."""
        ...


def text_of(form: PositionForm, position: Lsn | None) -> str | None:
    """The text of a position in the only log of a source; None for None."""
    return None if position is None else form.text(single_mark(position))
