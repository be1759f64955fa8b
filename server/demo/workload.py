"""An open-loop workload: transactions begin at their scheduled times, whether or not earlier ones have ended."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

import psycopg
from psycopg import errors

from server.demo.transactions import MIX, ROLLED_BACK, Kind, Shop

_NAP_MOST_S = 0.2

Connect = Callable[[], psycopg.Connection[Any]]


class Workload:
    """Runs `rate` transactions a second over `connections` threads, between `start` and `stop`.

    A transaction that lost a deadlock counts as rolled back. Any other error ends the workload; `failure` has it.
    """

    def __init__(self, connect: Connect, rate: float, *, connections: int = 6, seed: int = 1) -> None:
        self.rate = rate
        self.failure: BaseException | None = None
        self._connect = connect
        self._connections = connections
        self._seed = seed
        self._turns = itertools.count()
        self._stopping = threading.Event()
        self._counts: list[Counter[str]] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        with self._connect() as connection:
            shop = Shop.read_from(connection)
        began = monotonic()
        for number in range(self._connections):
            counts: Counter[str] = Counter()
            self._counts.append(counts)
            rng = random.Random(f"{self._seed}/{number}")  # noqa: S311
            thread = threading.Thread(
                target=self._run, args=(shop, rng, counts, began), name=f"load-{number}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def stop(self, timeout_s: float = 10.0) -> None:
        """Start no more transactions, and wait up to the timeout for those in progress."""
        self._stopping.set()
        deadline = monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))

    @property
    def transactions(self) -> int:
        """Transactions committed and acknowledged so far."""
        return sum(counts["committed"] for counts in self._counts)

    @property
    def rolled_back(self) -> int:
        return sum(counts["rolled_back"] for counts in self._counts)

    def _run(self, shop: Shop, rng: random.Random, counts: Counter[str], began: float) -> None:
        kinds, weights = [kind for kind, _ in MIX], [weight for _, weight in MIX]
        try:
            with self._connect() as connection:
                while self._appointed(began):
                    kind = rng.choices(kinds, weights)[0]
                    counts[_once(kind, connection, rng, shop)] += 1
        except Exception as error:
            if not self._stopping.is_set():
                self.failure = error
                self._stopping.set()

    def _appointed(self, began: float) -> bool:
        """Take the next scheduled time and wait for it; False when the workload stops."""
        due = began + next(self._turns) / self.rate
        while not self._stopping.is_set():
            left = due - monotonic()
            if left <= 0:
                return True
            sleep(min(left, _NAP_MOST_S))
        return False


def _once(kind: Kind, connection: psycopg.Connection[Any], rng: random.Random, shop: Shop) -> str:
    try:
        kind(connection, rng, shop)
    except (errors.DeadlockDetected, errors.SerializationFailure):
        return "rolled_back"
    return "rolled_back" if kind in ROLLED_BACK else "committed"
