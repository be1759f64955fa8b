"""The queue of reports to be sent: keeps order, keeps only the newest progress per subscription, bounds memory. Pure."""

from __future__ import annotations

from engine.link.messages import BatchReport, CopyProgress, Progress, Report, TableStateReport

_Key = tuple[str, ...]


def _replaceable_by(report: Report) -> _Key | None:
    """Key of a report: a later report with the same key replaces it. None: it is always sent."""
    if isinstance(report, Progress):
        return ("progress", report.subscription)
    if isinstance(report, CopyProgress):
        return ("copy", report.subscription, report.table)
    return None


_UNHURRIED = (Progress, CopyProgress, BatchReport)
"""Reports that need not be sent at once, and of which waits depend on the progress only."""


def is_unhurried(report: Report) -> bool:
    """Whether it may be sent with later reports, and progress after it needs nothing of it."""
    return isinstance(report, _UNHURRIED)


class Outgoing:
    """Reports in the order in which they were added. Not thread-safe.

    A new progress replaces an older unsent one, but is added at the end of the queue, so that it overtakes no other report.
    Above `capacity` the oldest batch reports are dropped, then table states that a later one supersedes; nothing else is ever
    dropped. `dropped` counts them.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._items: dict[int, Report] = {}
        self._place: dict[_Key, int] = {}
        self._next = 0
        self._batches = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def only_unhurried(self) -> bool:
        """True if no queued report has to be sent at once: they are progress, or batches, which the next progress takes along."""
        return len(self._place) + self._batches == len(self._items)

    @property
    def only_batches(self) -> bool:
        """True if all queued reports are batches: the progress that they led to follows in a moment."""
        return self._batches == len(self._items)

    def progress(self, subscription: str) -> Progress | None:
        """The unsent progress of a subscription, None if there is none."""
        place = self._place.get(("progress", subscription))
        report = self._items.get(place) if place is not None else None
        return report if isinstance(report, Progress) else None

    def _is_of_an_ended_run(self, report: Progress) -> bool:
        """Whether it belongs to an earlier run: a thread of an ended run may report late, which must not replace the current run's."""
        unsent = self.progress(report.subscription)
        return unsent is not None and (report.epoch, report.run) < (unsent.epoch, unsent.run)

    def put(self, report: Report) -> None:
        if isinstance(report, Progress) and self._is_of_an_ended_run(report):
            return
        key = _replaceable_by(report)
        if key is not None:
            before = self._place.pop(key, None)
            if before is not None:
                del self._items[before]
            self._place[key] = self._next
        elif len(self._items) >= self._capacity:
            self._make_room()
        self._items[self._next] = report
        self._next += 1
        self._batches += isinstance(report, BatchReport)

    def take_reports(self, most: int) -> list[Report]:
        """Remove and return the first reports, in order."""
        taken = []
        for number in list(self._items)[:most]:
            report = self._remove(number)
            key = _replaceable_by(report)
            if key is not None:
                del self._place[key]
            taken.append(report)
        return taken

    def _make_room(self) -> None:
        number = self._oldest_batch()
        if number is None:
            number = self._oldest_superseded_state()
        if number is not None:
            self._remove(number)
            self.dropped += 1

    def _remove(self, number: int) -> Report:
        report = self._items.pop(number)
        self._batches -= isinstance(report, BatchReport)
        return report

    def _oldest_batch(self) -> int | None:
        return next((number for number, report in self._items.items() if isinstance(report, BatchReport)), None)

    def _oldest_superseded_state(self) -> int | None:
        seen: set[tuple[str, str]] = set()
        found = None
        for number, report in reversed(self._items.items()):
            if isinstance(report, TableStateReport):
                table = (report.subscription, report.table)
                if table in seen:
                    found = number
                seen.add(table)
        return found
