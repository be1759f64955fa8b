"""Positions in a source's log. A position is an end LSN: the byte after a commit record, never its start."""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering

_MAX_LSN = 2**64 - 1
"""Positions are unsigned 64-bit numbers, as PostgreSQL's `pg_lsn`."""


class MalformedPosition(ValueError):
    """The text is not a position; the message says what one looks like."""


@total_ordering
@dataclass(frozen=True, slots=True)
class Lsn:
    """An end LSN: a byte offset in PostgreSQL's write-ahead log, 0 to 2**64 - 1. Compare with `<=` and `>=`."""

    value: int

    def __post_init__(self) -> None:
        if not 0 <= self.value <= _MAX_LSN:
            raise MalformedPosition(f"{self.value} is not a log position; positions are 64-bit offsets")

    def __lt__(self, other: Lsn) -> bool:
        return self.value < other.value

    def __str__(self) -> str:
        return f"{self.value >> 32:X}/{self.value & 0xFFFFFFFF:X}"

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """Parse PostgreSQL's text form, such as `0/16B3748`.

        Raises:
            MalformedPosition: the text has another form.
        """
        high, slash, low = text.partition("/")
        if not slash or not _is_hex32(high) or not _is_hex32(low):
            raise MalformedPosition(f"{text!r} is not a position; write it as PostgreSQL prints it, like 0/16B3748")
        return cls(int(high, 16) << 32 | int(low, 16))


def _is_hex32(text: str) -> bool:
    return 1 <= len(text) <= 8 and all(c in "0123456789abcdefABCDEF" for c in text)


ZERO = Lsn(0)
