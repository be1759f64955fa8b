"""Positions of a source whose log is merged from those of several nodes."""

from __future__ import annotations

import re

from engine.model.position import Lsn, MalformedPosition
from engine.model.positions.marks import ONLY_LOG, Mark, Marks, single_mark

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


class SeveralLogsForm:
    """`4711`: a number of the merged log. `n1=0/16B3748,n2=0/2000148`: positions of nodes, in the order of their names; those of some nodes
    are enough."""

    example = "n1=0/16B3748,n2=0/2000148"
    origin = "SELECT pg_current_wal_insert_lsn() on each node that the transaction wrote to, after the commit"
    horizon = 1 << 42
    """Numbers follow the clock: an hour."""

    def parse(self, text: str) -> Marks:
        if text.isascii() and text.isdigit() and len(text) <= 20 and (len(text) == 1 or text[0] != "0"):
            return single_mark(Lsn(int(text)))
        found: dict[str, Lsn] = {}
        for part in text.split(","):
            name, equals, position = part.partition("=")
            if not equals or _NAME.fullmatch(name) is None or name in found:
                raise MalformedPosition(
                    f"{text!r} is not a position; write one of each node that matters, like {self.example}"
                )
            found[name] = Lsn.parse(position)
        return tuple(Mark(name, at) for name, at in sorted(found.items()))

    def text(self, marks: Marks) -> str:
        if marks[0].log == ONLY_LOG:
            return str(marks[0].position.value)
        return ",".join(f"{name}={position}" for name, position in marks)

    def lag(self, source: Lsn, applied: Lsn) -> int | None:
        del source, applied  # Numbers do not count bytes.
        return None
