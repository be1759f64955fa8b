"""Clients that run the transaction mix: at full speed up to a number of transactions, or at a steady rate."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from time import monotonic

from psycopg import errors

from bench.tpcc.inputs import Inputs, Kind, Skew
from bench.tpcc.procedures import UnknownItem, call
from bench.tpcc.schema import Connection, Scale

Connect = Callable[[], Connection]

ROLLED_BACK = "rolled_back"
DEADLOCKS = "deadlocks"
SERIALIZATION_FAILURES = "serialization_failures"
ROW_CHANGES = "row_changes"

_ATTEMPTS = 1_000
_NAP_MOST_S = 0.2


class TpccError(RuntimeError):
    """The load cannot continue."""


@dataclass(frozen=True, slots=True)
class Done:
    """One transaction that ended; times in seconds of the monotonic clock."""

    kind: Kind
    due: float
    """The scheduled start. The time from here to `ended` is what a user would have waited."""
    ended: float
    committed: bool


class Driver:
    """`clients` threads, each with a connection in autocommit mode from `connect`.

    Without `rate`, each client begins its next transaction when the previous one has ended. With it, they are an open
    loop: `rate` transactions a second over all clients are scheduled at fixed times, whether or not earlier ones have
    ended, and none is skipped. Both end after `transactions`, if given, or at `stop`.

    A transaction that failed by deadlock or serialization is repeated with the same inputs until it succeeds. Any other
    error ends the load; `join` and `stop` raise TpccError from it. `observe` is called in the clients' threads.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        clients: int,
        seed: int = 1,
        transactions: int | None = None,
        rate: float | None = None,
        observe: Callable[[Done], None] | None = None,
    ) -> None:
        if clients < 1 or (rate is not None and rate <= 0):
            raise ValueError("at least one client, and a rate above zero")
        self._connect = connect
        self._clients = clients
        self._seed = seed
        self._transactions = transactions
        self._rate = rate
        self._observe = observe
        self._turns = itertools.count()
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._counts: list[Counter[str]] = []
        self._threads: list[threading.Thread] = []
        self._began = 0.0
        self._late_s = 0.0

    def start(self) -> None:
        """Connect all clients, then start them."""
        with self._connect() as connection:
            scale = Scale.from_database(connection)
        skew = Skew.drawn(Random(f"{self._seed}/skew"))  # noqa: S311
        ready = threading.Barrier(self._clients + 1, action=self._begin)
        for number in range(self._clients):
            counts: Counter[str] = Counter()
            inputs = Inputs(scale, Random(f"{self._seed}/{number}"), skew)  # noqa: S311
            thread = threading.Thread(
                target=self._run, args=(inputs, counts, ready), name=f"tpcc-{number}", daemon=True
            )
            self._counts.append(counts)
            self._threads.append(thread)
            thread.start()
        try:
            ready.wait()
        except threading.BrokenBarrierError:
            self.stop()

    def join(self, timeout_s: float | None = None) -> dict[str, int]:
        """Wait until all transactions have ended; returns `counts`. TimeoutError if they do not end in time."""
        deadline = None if timeout_s is None else monotonic() + timeout_s
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - monotonic()))
            if thread.is_alive():
                raise TimeoutError("the load has not ended")
        if self._failure is not None:
            raise TpccError("a client of the load failed") from self._failure
        return self.counts

    def stop(self, timeout_s: float = 10.0) -> dict[str, int]:
        """Begin no more transactions, wait for those in progress, and return `counts`.

        TimeoutError if they do not end in time.
        """
        self._stopping.set()
        return self.join(timeout_s)

    @property
    def counts(self) -> dict[str, int]:
        """Committed transactions by kind; orders `rolled_back` as intended; repetitions after `deadlocks` and
        `serialization_failures`; and `row_changes` of all committed transactions, an update counting once.
        """
        total = Counter(dict.fromkeys((*Kind, ROLLED_BACK, DEADLOCKS, SERIALIZATION_FAILURES, ROW_CHANGES), 0))
        for counts in self._counts:
            total.update(counts.copy())
        return {str(name): number for name, number in total.items()}

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the load early."""
        return self._failure

    @property
    def late_s(self) -> float:
        """The delay of an open loop's last transaction after its scheduled time, in seconds."""
        return self._late_s

    def _begin(self) -> None:
        self._began = monotonic()

    def _run(self, inputs: Inputs, counts: Counter[str], ready: threading.Barrier) -> None:
        try:
            with self._connect() as connection:
                ready.wait()
                while (due := self._next_due()) is not None:
                    kind, parameters = inputs.draw()
                    committed = self._once(connection, kind, parameters, counts)
                    if self._observe is not None:
                        self._observe(Done(kind, due, monotonic(), committed))
        except threading.BrokenBarrierError:
            return
        except Exception as error:
            # A client stopped by another client's failure is not itself a failure.
            self._failure = self._failure or error
            self._stopping.set()
            ready.abort()

    def _once(self, connection: Connection, kind: Kind, parameters: list[str | None], counts: Counter[str]) -> bool:
        """Run the transaction until it commits or is rolled back as intended; returns whether it committed."""
        for _ in range(_ATTEMPTS):
            try:
                changes = call(connection, kind, parameters)
            except UnknownItem:
                counts[ROLLED_BACK] += 1
                return False
            except errors.DeadlockDetected:
                counts[DEADLOCKS] += 1
            except errors.SerializationFailure:
                counts[SERIALIZATION_FAILURES] += 1
            else:
                counts[kind] += 1
                counts[ROW_CHANGES] += changes
                return True
        raise TpccError(f"{kind} did not succeed in {_ATTEMPTS} attempts")

    def _next_due(self) -> float | None:
        """Take the next scheduled time and wait for it; None when the load is over."""
        turn = next(self._turns)
        if self._stopping.is_set() or (self._transactions is not None and turn >= self._transactions):
            return None
        if self._rate is None:
            return monotonic()
        due = self._began + turn / self._rate
        while (left := due - monotonic()) > 0:
            if self._stopping.wait(min(left, _NAP_MOST_S)):
                return None
        self._late_s = -left
        return due
