"""Positions of a source whose changes are read in windows: a window's end, or a transaction within a window."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.model.fault import EngineFault, FaultKind
from engine.model.position import Lsn, MalformedPosition
from engine.model.positions.marks import Marks, single_mark

PLACE_BITS = 28
"""Low bits of a position, for the place in its window: 268 million transactions; and 2**36 windows, for 400 years of five a second."""
WINDOW_END = (1 << PLACE_BITS) - 1
"""The place after every transaction of a window. A window's transactions have the places 1, 2, …"""
_LAST_WINDOW = (1 << (64 - PLACE_BITS)) - 1
_TEXT = re.compile(r"(0|[1-9][0-9]{0,11})(?:\.(0|[1-9][0-9]{0,8}))?")


def end_of(window: int) -> Lsn:
    """The position at which everything in the window, and in all windows before it, is included."""
    return Lsn(window << PLACE_BITS | WINDOW_END)


def places_in(windows: Any, numbers: Any) -> Any:
    """The positions of windows' transactions, counted from 1 in each; all are int64 arrays.

    Raises EngineFault(LOG_UNREADABLE) beyond those that have one.
    """
    if len(numbers) and numbers.max() >= WINDOW_END:
        detail = (
            f"window {windows[numbers.argmax()]} has more transactions than positions: nothing was read for too long"
        )
        raise EngineFault(FaultKind.LOG_UNREADABLE, "the shadow log", detail)
    return windows << PLACE_BITS | numbers


def whole_window(position: Lsn) -> int:
    """The last window that the position includes as a whole; -1 if there is none."""
    window, place = divmod(position.value, 1 << PLACE_BITS)
    return window if place == WINDOW_END else window - 1


@dataclass(frozen=True, slots=True)
class WindowForm:
    """`w4711` is the end of window 4711, `w4711.3` its third transaction. `origin`: see PositionForm."""

    origin: str = "the window that includes the commit"
    letter: ClassVar[str] = "w"
    noun: ClassVar[str] = "window"
    example: ClassVar[str] = "w4711"
    horizon: ClassVar[int] = 10_000 << PLACE_BITS

    def parse(self, text: str) -> Marks:
        found = _TEXT.fullmatch(text.removeprefix(self.letter)) if text.startswith(self.letter) else None
        window = int(found[1]) if found else _LAST_WINDOW + 1
        place = int(found[2]) if found and found[2] else WINDOW_END
        if window > _LAST_WINDOW or place > WINDOW_END:
            raise MalformedPosition(
                f"{text!r} is not a position; write the number of a {self.noun}, like {self.example}"
            )
        return single_mark(Lsn(window << PLACE_BITS | place))

    def text(self, marks: Marks) -> str:
        window, place = divmod(marks[0].position.value, 1 << PLACE_BITS)
        return f"{self.letter}{window}" if place == WINDOW_END else f"{self.letter}{window}.{place}"

    def lag(self, source: Lsn, applied: Lsn) -> int | None:
        del source, applied  # Windows do not count bytes.
        return None


@dataclass(frozen=True, slots=True)
class CycleForm(WindowForm):
    """`c4711` is the end of cycle 4711 of a source that is only queried: a cycle is a window that one reading of the tables found."""

    origin: str = "ask for `now` after the commit"
    letter: ClassVar[str] = "c"
    noun: ClassVar[str] = "cycle"
    example: ClassVar[str] = "c4711"
