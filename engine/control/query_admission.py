"""Admission of queries: limits how many run concurrently. A query that finds no free place waits in order of arrival.

Queries that compete with replication for processors at the same priority get fewer places than the others.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import monotonic

import structlog

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class QueryTurn:
    """A query. `run` is called with the seconds left; `refuse` is called instead if no place became free within `limit_s` seconds.

    `unyielding`: a database server on this machine computes it, with the same priority as replication.
    """

    limit_s: float
    run: Callable[[float], None]
    refuse: Callable[[], None]
    unyielding: bool = False


class QueryAdmission:
    """Runs queries on `count` threads of its own, at most `unyielding` of them unyielding ones (None: no separate limit).

    Queries of one kind start in the order of their arrival. Any thread may call its methods.
    """

    def __init__(self, count: int, unyielding: int | None = None) -> None:
        self.count = count
        self._most_unyielding = count if unyielding is None else unyielding
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="query")
        self._changed = threading.Condition()
        self._taken = 0
        self._unyielding = 0
        """Places that unyielding queries occupy."""
        self._waiting: deque[tuple[float, QueryTurn]] = deque()
        self._watch: threading.Thread | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """Number of queries that wait for a place."""
        return len(self._waiting)

    def most(self, *, unyielding: bool) -> int:
        """How many queries of this kind may run concurrently."""
        return self._most_unyielding if unyielding else self.count

    def submit_query(self, turn: QueryTurn) -> None:
        """Run the query in a thread of the pool as soon as a place is free. Returns at once.

        After `close`, neither `run` nor `refuse` is called for a query that has not started.
        """
        with self._changed:
            if self._closed:
                return
            if self._taken < self.count and self._is_admissible(turn):
                self._taken += 1
                self._unyielding += turn.unyielding
                self._pool.submit(self._work, turn)
                return
            self._waiting.append((monotonic() + turn.limit_s, turn))
            if self._watch is None:
                self._watch = threading.Thread(target=self._refuse_late_ones, name="query-places", daemon=True)
                self._watch.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Start no more queries. Does not wait for those that run; closing their target ends them."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _is_admissible(self, turn: QueryTurn) -> bool:
        return not turn.unyielding or self._unyielding < self._most_unyielding

    def _work(self, turn: QueryTurn) -> None:
        _logged(lambda: turn.run(turn.limit_s))
        while True:
            with self._changed:
                self._unyielding -= turn.unyielding
                following = next((entry for entry in self._waiting if self._is_admissible(entry[1])), None)
                if following is None:
                    self._taken -= 1
                    return
                self._waiting.remove(following)
                deadline, turn = following
                self._unyielding += turn.unyielding
            left = round(deadline - monotonic(), 3)
            _logged(partial(turn.run, left) if left > 0 else turn.refuse)

    def _refuse_late_ones(self) -> None:
        while late := self._next_late_ones():
            for turn in late:
                _logged(turn.refuse)

    def _next_late_ones(self) -> list[QueryTurn]:
        """Block until the time limit of waiting queries has passed, and return these; [] after `close`."""
        with self._changed:
            while not self._closed:
                now = monotonic()
                late = [entry for entry in self._waiting if entry[0] <= now]
                if late:
                    self._waiting = deque(entry for entry in self._waiting if entry[0] > now)
                    return [turn for _, turn in late]
                first = min((deadline for deadline, _ in self._waiting), default=None)
                self._changed.wait(None if first is None else first - now)
        return []


def _logged(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception as error:  # The place has to become free again for the queries that wait.
        log.exception("query_turn_failed", error=type(error).__name__)
