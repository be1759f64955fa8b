"""How many queries run at once: each takes a place, and one that finds none waits for it in its turn.

Those that take processors from replication on its own level get fewer places than the others.
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
    """A query. `run` gets the seconds it has left; `refuse` is called instead where no place came free in `limit_s`.

    `unyielding`: a server on this machine computes it, with the same right to the processors as replication.
    """

    limit_s: float
    run: Callable[[float], None]
    refuse: Callable[[], None]
    unyielding: bool = False


class QueryAdmission:
    """Runs queries on `count` threads of its own, of unyielding ones as many as `unyielding` at once (None: all may be).

    Queries of one sort run in the order of their arrival.
    """

    def __init__(self, count: int, unyielding: int | None = None) -> None:
        self.count = count
        self._most_unyielding = count if unyielding is None else unyielding
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="query")
        self._changed = threading.Condition()
        self._taken = 0
        self._unyielding = 0
        """Places that unyielding queries have taken."""
        self._waiting: deque[tuple[float, QueryTurn]] = deque()
        self._watch: threading.Thread | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """Queries that wait for a place."""
        return len(self._waiting)

    def most(self, *, unyielding: bool) -> int:
        """How many queries of this sort may run at once."""
        return self._most_unyielding if unyielding else self.count

    def take(self, turn: QueryTurn) -> None:
        """Run it as soon as there is a place. Returns at once. Forgotten where `close` comes first."""
        with self._changed:
            if self._closed:
                return
            if self._taken < self.count and self._may(turn):
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
        """Begin no more queries. Those that run end as their target lets them."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _may(self, turn: QueryTurn) -> bool:
        return not turn.unyielding or self._unyielding < self._most_unyielding

    def _work(self, turn: QueryTurn) -> None:
        _logged(lambda: turn.run(turn.limit_s))
        while True:
            with self._changed:
                self._unyielding -= turn.unyielding
                following = next((entry for entry in self._waiting if self._may(entry[1])), None)
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
        """Blocks until the time of some is over; [] at the end."""
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
    except Exception as error:  # the place must come free again, and the others be answered
        log.exception("query_turn_failed", error=type(error).__name__)
