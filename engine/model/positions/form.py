"""What a kind of capture says about its positions."""

from __future__ import annotations

from typing import Protocol

from engine.model.position import Lsn


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

    def parse(self, text: str) -> Lsn:
        """Read a text. Raises MalformedPosition where it is not of this form."""
        ...

    def text(self, position: Lsn) -> str: ...

    def lag(self, source: Lsn, applied: Lsn) -> int | None:
        """Bytes of the source's log between two positions, 0 where `applied` is further; None where the order counts no bytes."""
        ...
