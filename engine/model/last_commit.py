"""The last transaction of a log that is held: by it a session shows that it reads the log of which that is held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.model.position import Lsn
from engine.model.subscription import OriginFilter

_UNCERTAIN = "uncertain"


@dataclass(frozen=True, slots=True)
class LastCommit:
    """The last transaction with changes up to some position, and that none with changes lies between the two.

    After a restore the same positions hold other records. No other commit record ends at the same byte in the same microsecond, so who
    finds this one reads the same log up to it.
    """

    after: Lsn
    """At or before its commit record, and not before the end of the transaction before it."""
    end: Lsn
    time_us: int
    """When it was committed, by the source's clock. 0: which transaction ends there is not known."""
    origin: OriginFilter = OriginFilter.ANY
    """What was read: with another filter other transactions have changes."""
    certain: bool = True
    """It has changes. False: it may have none, since some of it was rolled back; then another session may not bring it."""

    @classmethod
    def unknown(cls, position: Lsn, origin: OriginFilter = OriginFilter.ANY) -> LastCommit:
        """Nothing is known of the log up to `position`."""
        return cls(position, position, 0, origin)

    @property
    def known(self) -> bool:
        return self.time_us != 0

    def __str__(self) -> str:
        text = f"{self.after} {self.end} {self.time_us} {self.origin.value}"
        return text if self.certain else f"{text} {_UNCERTAIN}"

    @classmethod
    def parse(cls, text: str) -> LastCommit | None:
        """What `str` gave; None for an empty text."""
        if not text:
            return None
        after, end, time_us, origin, *more = text.split(" ")
        return cls(Lsn.parse(after), Lsn.parse(end), int(time_us), OriginFilter(origin), _UNCERTAIN not in more)


@dataclass(frozen=True, slots=True)
class CommitTimes:
    """When transactions were committed, as numpy arrays: `ends` (uint64) ascend, `times_us` (int64) are as in LastCommit."""

    ends: Any
    times_us: Any
