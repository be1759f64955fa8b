"""Hours of the day in which cycles may begin by schedule."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

_DAY_MIN = 24 * 60
"""Minutes of a day."""


@dataclass(frozen=True, slots=True)
class Hours:
    """From `first` up to but without `end`, in minutes after midnight of the time zone `zone`; over midnight if `end` is not later."""

    first: int
    end: int
    zone: str = "UTC"

    @staticmethod
    def of(first: str, end: str, zone: str) -> Hours:
        """Of times as `22:00`."""
        return Hours(_minutes(first), _minutes(end), zone)

    def hold(self, at_us: int) -> bool:
        """Whether this moment, in microseconds since 1970, is within them."""
        local = self._local(at_us)
        return (local.hour * 60 + local.minute - self.first) % _DAY_MIN < (
            (self.end - self.first) % _DAY_MIN or _DAY_MIN
        )

    def next_within(self, at_us: int) -> int:
        """This moment if it is within them, or else the next one that is."""
        if self.hold(at_us):
            return at_us
        local = self._local(at_us)
        begins = local.replace(hour=self.first // 60, minute=self.first % 60, second=0, microsecond=0)
        if begins <= local:
            begins = begins + timedelta(days=1)
        return int(begins.astimezone(UTC).timestamp()) * 1_000_000

    def _local(self, at_us: int) -> datetime:
        return datetime.fromtimestamp(at_us / 1e6, tz=ZoneInfo(self.zone))


def _minutes(text: str) -> int:
    hours, _, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes)
