"""The times in which a killed process may cause errors: from the kill until every session has read, fresh, what it committed after it."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(slots=True)
class Outage:
    """Times in seconds by one monotonic clock. `doors`: for each, how long its last session took to read again."""

    kind: str
    began: float
    waiting: set[str]
    ended: float | None = None
    doors: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float | None:
        return None if self.ended is None else self.ended - self.began

    def document(self) -> dict[str, Any]:
        took = None if self.seconds is None else round(self.seconds, 2)
        doors = {door: round(seconds, 2) for door, seconds in self.doors.items()}
        return {"kind": self.kind, "recovered_s": took, "doors_s": doors, "without_answer": sorted(self.waiting)}


class Outages:
    """Outages in order, one at a time. Thread-safe."""

    def __init__(self, sessions: Collection[str]) -> None:
        self.all: list[Outage] = []
        self._sessions = frozenset(sessions)
        self._changed = threading.Condition()

    def begin(self, kind: str, now: float) -> Outage:
        with self._changed:
            self.all.append(Outage(kind, now, set(self._sessions)))
            return self.all[-1]

    def withdraw(self) -> None:
        """The last outage did not happen: nothing was killed."""
        with self._changed:
            self.all.pop()

    def answered(self, session: str, door: str, began: float, now: float) -> None:
        """A session read, at `now`, a commit of its own that it began at `began`."""
        with self._changed:
            last = self.all[-1] if self.all else None
            if last is None or last.ended is not None or began < last.began or session not in last.waiting:
                return
            last.waiting.discard(session)
            last.doors[door] = now - last.began
            if not last.waiting:
                last.ended = now
                self._changed.notify_all()

    def wait_for_end(self, timeout_s: float) -> bool:
        """Whether the last outage has ended in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.all or self.all[-1].ended is not None, timeout_s)

    def covers(self, began: float, ended: float) -> bool:
        """Whether an outage overlaps this time."""
        with self._changed:
            return any(one.began <= ended and (one.ended is None or began <= one.ended) for one in self.all)

    def document(self) -> dict[str, Any]:
        kinds: dict[str, list[float]] = {}
        for one in self.all:
            if one.seconds is not None:
                kinds.setdefault(one.kind, []).append(one.seconds)
        spread = {
            kind: {"count": len(each), "median": round(median(each), 2), "most": round(max(each), 2)}
            for kind, each in kinds.items()
        }
        return {"recovery_s": spread, "kills": [one.document() for one in self.all]}
