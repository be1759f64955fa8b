"""Identifies the last transaction of the log that the engine holds, so that a new session can verify that it reads the same log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.model.merged_logs import MergedLogs
from engine.model.position import Lsn
from engine.model.subscription import OriginFilter

_UNCERTAIN = "uncertain"
_LOGS = "logs="


@dataclass(frozen=True, slots=True)
class LastCommit:
    """The last transaction with changes up to some position; none with changes is between its end and that position.

    After a restore of the source the same positions hold other records. No other commit record ends at the same byte in the same
    microsecond, so a session that finds this one reads the same log up to it.
    """

    after: Lsn
    """A position at or before its commit record, and at or after the end of the previous transaction."""
    end: Lsn
    time_us: int
    """Commit time by the source's clock, microseconds since 1970 UTC. 0: it is unknown which transaction ends there."""
    origin: OriginFilter = OriginFilter.ANY
    """The origin filter of the session: with another one, other transactions have changes."""
    certain: bool = True
    """It has changes. False: it may have none, because part of it was rolled back; another session may then not deliver it."""
    logs: MergedLogs | None = None
    """If the log is merged from several: their state up to the position for which this is the last transaction. None: it is not, or no
    state has begun yet."""

    @classmethod
    def unknown(
        cls, position: Lsn, origin: OriginFilter = OriginFilter.ANY, logs: MergedLogs | None = None
    ) -> LastCommit:
        """For a log of which nothing is known up to `position`, except what is included of the logs that it is merged from."""
        return cls(position, position, 0, origin, logs=logs)

    @property
    def known(self) -> bool:
        return self.time_us != 0

    def __str__(self) -> str:
        text = f"{self.after} {self.end} {self.time_us} {self.origin.value}"
        text = text if self.certain else f"{text} {_UNCERTAIN}"
        return text if self.logs is None else f"{text} {_LOGS}{self.logs.text}"

    @classmethod
    def parse(cls, text: str) -> LastCommit | None:
        """Parse the result of `str`; None for an empty text."""
        if not text:
            return None
        after, end, time_us, origin, *more = text.split(" ")
        logs = next((MergedLogs.parse(word.removeprefix(_LOGS)) for word in more if word.startswith(_LOGS)), None)
        return cls(Lsn.parse(after), Lsn.parse(end), int(time_us), OriginFilter(origin), _UNCERTAIN not in more, logs)


@dataclass(frozen=True, slots=True)
class CommitTimes:
    """Commit times of transactions, as numpy arrays: `ends` (uint64, ascending), `times_us` (int64, as in LastCommit), `xids` (uint32,
    their ids on the source; None: not given)."""

    ends: Any
    times_us: Any
    xids: Any | None = None
    messages: tuple[tuple[int, bytes], ...] = ()
    """Of those that have a message about merged logs: the end, and the message's content."""


def reached_in(last: LastCommit | None, names: Sequence[str]) -> dict[str, Lsn]:
    """By name, up to where each of several logs is included; empty for a source with one. `names`: of the logs, by number."""
    logs = None if last is None else last.logs
    return {} if logs is None else {name: log.read for name, log in zip(names, logs.nodes, strict=False)}
