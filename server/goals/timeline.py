"""What was measured of a freshness goal, in minutes and hours. Pure.

Times are in milliseconds since 1970. A minute holds the time in which the copy was fresh, late or excluded; the rest of it is unknown, so
time that was not measured, for whatever reason, is never counted as fresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
_MINUTES = 60
"""Minutes of an hour."""
_MOST_REVISIONS = 100
"""Revisions that wait to be stored; beyond them, they are joined."""


class Outcome(StrEnum):
    """How the copy was. EXCLUDED: the goal did not apply."""

    FRESH = "fresh"
    LATE = "late"
    EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """From `begin_ms` to `end_ms`."""

    begin_ms: int
    end_ms: int

    @property
    def length_ms(self) -> int:
        return max(0, self.end_ms - self.begin_ms)

    def overlap_ms(self, other: Interval) -> int:
        return max(0, min(self.end_ms, other.end_ms) - max(self.begin_ms, other.begin_ms))


@dataclass(frozen=True, slots=True)
class Shares:
    """Milliseconds of each outcome."""

    fresh_ms: int = 0
    late_ms: int = 0
    excluded_ms: int = 0

    @property
    def known_ms(self) -> int:
        return self.fresh_ms + self.late_ms + self.excluded_ms

    def __add__(self, other: Shares) -> Shares:
        return Shares(
            self.fresh_ms + other.fresh_ms, self.late_ms + other.late_ms, self.excluded_ms + other.excluded_ms
        )

    def capped(self, most_ms: int) -> Shares:
        """At most `most_ms` in all. After the clock was set back a minute is measured twice: late time remains, fresh time is dropped."""
        late = min(self.late_ms, most_ms)
        excluded = min(self.excluded_ms, most_ms - late)
        return Shares(min(self.fresh_ms, most_ms - late - excluded), late, excluded)

    def revised(self, late_ms: int) -> Shares:
        """With up to `late_ms` of its fresh time as late time."""
        moved = min(self.fresh_ms, late_ms)
        return Shares(self.fresh_ms - moved, self.late_ms + moved, self.excluded_ms)


FULL = Shares(fresh_ms=MINUTE_MS)


@dataclass(slots=True)
class Hour:
    """One hour. `minutes` None: only the total is known. `worst`: the longest time without interruption in which the copy was late, of
    those that ended in this hour or lasted beyond it; it may have begun before."""

    total: Shares = Shares()
    minutes: dict[int, Shares] | None = field(default_factory=dict)
    worst: Interval | None = None

    def set_minute(self, minute: int, shares: Shares) -> None:
        if self.minutes is None:
            raise ValueError("an hour of which only the total is known does not change")
        before = self.minutes.get(minute, Shares())
        self.minutes[minute] = shares
        self.total = Shares(
            self.total.fresh_ms + shares.fresh_ms - before.fresh_ms,
            self.total.late_ms + shares.late_ms - before.late_ms,
            self.total.excluded_ms + shares.excluded_ms - before.excluded_ms,
        )

    def add_late(self, late: Interval) -> None:
        if self.worst is None or late.length_ms > self.worst.length_ms:
            self.worst = late

    def to_document(self) -> list[int | list[int]]:
        """For each minute 0: unknown, 1: fresh, or its milliseconds [fresh, late, excluded]."""
        return [_minute_document((self.minutes or {}).get(minute, Shares())) for minute in range(_MINUTES)]


def _minute_document(shares: Shares) -> int | list[int]:
    if shares in {Shares(), FULL}:
        return int(shares == FULL)
    return [shares.fresh_ms, shares.late_ms, shares.excluded_ms]


def hour_from_document(minutes: Iterable[int | list[int]], worst: Interval | None) -> Hour:
    """The hour whose minutes were stored by `Hour.to_document`."""
    known = {
        minute: Shares(*each) if isinstance(each, list) else FULL for minute, each in enumerate(minutes) if each != 0
    }
    return Hour(sum(known.values(), Shares()), known, worst)


@dataclass(slots=True)
class Timeline:
    """Hours by their number since 1970."""

    hours: dict[int, Hour] = field(default_factory=dict)

    def add(self, span: Interval, outcome: Outcome) -> None:
        """Add measured time."""
        for minute, part_ms in _by_minute(span):
            more = Shares(**{f"{outcome.value}_ms": part_ms})
            self._change(minute, (self._minute(minute) + more).capped(MINUTE_MS))

    def add_late(self, late: Interval) -> None:
        """The copy has been late during `late` without interruption. A later call with the same begin extends it."""
        self._hour(max(late.begin_ms, late.end_ms - 1) // HOUR_MS).add_late(late)

    def revise(self, span: Interval) -> None:
        """What was counted as fresh in this span was late. Exact to a minute at its ends."""
        for minute, part_ms in _by_minute(span):
            if minute // _MINUTES in self.hours:
                self._change(minute, self._minute(minute).revised(part_ms))

    def merge(self, later: Timeline) -> None:
        """Add what was measured later. The order of merges has no effect on the late time up to a whole minute."""
        for number, hour in later.hours.items():
            for minute, shares in (hour.minutes or {}).items():
                at = number * _MINUTES + minute
                self._change(at, (self._minute(at) + shares).capped(MINUTE_MS))
            if hour.worst is not None:
                self._hour(number).add_late(hour.worst)

    def shares(self, begin_minute: int, end_minute: int) -> Shares:
        """What was measured from one minute since 1970 up to another, without the latter.

        Raises:
            ValueError: only the total is known of an hour that is in it in part.
        """
        found = Shares()
        for number in range(begin_minute // _MINUTES, -(-end_minute // _MINUTES)):
            hour = self.hours.get(number)
            if hour is None:
                continue
            first, last = max(begin_minute - number * _MINUTES, 0), min(end_minute - number * _MINUTES, _MINUTES)
            if last - first == _MINUTES:
                found += hour.total
            elif hour.minutes is None:
                raise ValueError("the minutes of the hour are not known")
            else:
                found += sum((each for at, each in hour.minutes.items() if first <= at < last), Shares())
        return found

    @property
    def end_ms(self) -> int:
        """End of the last minute of which something is known; 0 if there is none.

        Raises:
            ValueError: only the total is known of the last hour.
        """
        last = max((number for number, hour in self.hours.items() if hour.total.known_ms), default=None)
        if last is None:
            return 0
        minutes = self.hours[last].minutes
        if minutes is None:
            raise ValueError("the minutes of the last hour are not known")
        known = max(minute for minute, shares in minutes.items() if shares.known_ms)
        return (last * _MINUTES + known + 1) * MINUTE_MS

    def longest_late(self, within: Interval) -> Interval | None:
        """The longest time without interruption in which the copy was late, as far as it is in `within`."""
        inside = [
            Interval(max(hour.worst.begin_ms, within.begin_ms), min(hour.worst.end_ms, within.end_ms))
            for hour in self.hours.values()
            if hour.worst is not None and hour.worst.overlap_ms(within)
        ]
        return max(inside, key=lambda late: (late.length_ms, late.end_ms), default=None)

    def _minute(self, minute: int) -> Shares:
        hour = self.hours.get(minute // _MINUTES)
        return (hour.minutes or {}).get(minute % _MINUTES, Shares()) if hour is not None else Shares()

    def _change(self, minute: int, shares: Shares) -> None:
        self._hour(minute // _MINUTES).set_minute(minute % _MINUTES, shares)

    def _hour(self, number: int) -> Hour:
        return self.hours.setdefault(number, Hour())


@dataclass(slots=True)
class Changes:
    """What was measured and is not stored yet."""

    added: Timeline = field(default_factory=Timeline)
    revisions: list[Interval] = field(default_factory=list)

    @property
    def hours(self) -> set[int]:
        """The hours that they may change."""
        revised = (range(each.begin_ms // HOUR_MS, each.end_ms // HOUR_MS + 1) for each in self.revisions)
        return set(self.added.hours).union(*revised)

    def revise(self, span: Interval) -> None:
        self.revisions.append(span)
        if len(self.revisions) > _MOST_REVISIONS:
            begin, end = min(each.begin_ms for each in self.revisions), max(each.end_ms for each in self.revisions)
            self.revisions = [Interval(begin, end)]

    def apply_to(self, stored: Timeline) -> None:
        stored.merge(self.added)
        for span in self.revisions:
            stored.revise(span)

    def copy(self) -> Changes:
        """The same, unaffected by later changes."""
        copied = Changes(revisions=list(self.revisions))
        copied.added.merge(self.added)
        return copied

    def follow(self, earlier: Changes) -> None:
        """Put changes that could not be stored before these."""
        earlier.added.merge(self.added)
        self.added = earlier.added
        self.revisions, later = list(earlier.revisions), self.revisions
        for span in later:
            self.revise(span)


def _by_minute(span: Interval) -> Iterator[tuple[int, int]]:
    """The minutes since 1970 that a span touches, with its milliseconds in each."""
    at = span.begin_ms
    while at < span.end_ms:
        minute = at // MINUTE_MS
        end = min(span.end_ms, (minute + 1) * MINUTE_MS)
        yield minute, end - at
        at = end


def totals_only(hours: Mapping[int, tuple[Shares, Interval | None]]) -> Timeline:
    """A timeline of hours whose minutes were not read."""
    return Timeline({number: Hour(total, None, worst) for number, (total, worst) in hours.items()})
