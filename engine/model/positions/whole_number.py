"""Positions of sources that number their transactions."""

from __future__ import annotations

from engine.model.position import Lsn, MalformedPosition
from engine.model.positions.marks import Marks, single_mark


class WholeNumberForm:
    """Decimal digits without sign or leading zeros."""

    example = "4711"
    origin = "the number that the source gives to the transaction"
    horizon = 1_000_000

    def parse(self, text: str) -> Marks:
        if not (text.isascii() and text.isdigit()) or (len(text) > 1 and text[0] == "0") or len(text) > 20:
            raise MalformedPosition(f"{text!r} is not a position; write a whole number, like {self.example}")
        return single_mark(Lsn(int(text)))

    def text(self, marks: Marks) -> str:
        return str(marks[0].position.value)

    def lag(self, source: Lsn, applied: Lsn) -> int | None:
        del source, applied  # Transaction numbers do not count bytes.
        return None
