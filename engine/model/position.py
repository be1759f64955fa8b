"""Positions in a source's log, as the engine orders them. A position is the end of a transaction, never its start."""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering

_MAX_LSN = 2**64 - 1
"""Positions are unsigned 64-bit numbers."""


class MalformedPosition(ValueError):
    """The text is not a position; the message says what one looks like."""


@total_ordering
@dataclass(frozen=True, slots=True)
class Lsn:
    """A log sequence number, 0 to 2**64 - 1: everything that committed up to it is included. Compare with `<=` and `>=`.

    What it counts depends on the kind of source (`engine.model.positions`), which also has its form for users. `str` and `parse` are the
    form of stored records and messages.
    """

    value: int

    def __post_init__(self) -> None:
        if not 0 <= self.value <= _MAX_LSN:
            raise MalformedPosition(f"{self.value} is not a log position; positions are 64-bit numbers")

    def __lt__(self, other: Lsn) -> bool:
        return self.value < other.value

    def __str__(self) -> str:
        return f"{self.value >> 32:X}/{self.value & 0xFFFFFFFF:X}"

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """Parse the stored form, two halves in hexadecimal digits such as `0/16B3748`. It is PostgreSQL's form too.

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
