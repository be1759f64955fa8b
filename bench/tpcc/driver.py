"""Clients that run the mix: as fast as they can up to a number of transactions, or at a steady rate."""

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
    """The load cannot go on."""


@dataclass(frozen=True, slots=True)
class Done:
    """One transaction that ended, in seconds of the monotonic clock."""

    kind: Kind
    due: float
    """When it was meant to begin. From here to `ended` is what a user would have waited."""
    ended: float
    committed: bool


class Driver:
    """`clients` threads, each with a connection in autocommit mode from `connect`.

    Without `rate`, clients begin the next transaction when the last one has ended. With it they are an open loop: `rate`
    transactions a second over all clients are due at fixed times, whether or not earlier ones have ended, and nothing that is
    due is left out. Either way it ends after `transactions`, where given, or at `stop`.

    A transaction that lost a deadlock or could not be serialized is run again with the same inputs until it succeeds. Any other
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
        """Connect all clients, then let them begin."""
        with self._connect() as connection:
            scale = Scale.of(connection)
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
        """Wait until all transactions are done; returns `counts`. TimeoutError where they are not in time."""
        deadline = None if timeout_s is None else monotonic() + timeout_s
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - monotonic()))
            if thread.is_alive():
                raise TimeoutError("the load has not ended")
        if self._failure is not None:
            raise TpccError("a client of the load failed") from self._failure
        return self.counts

    def stop(self, timeout_s: float = 10.0) -> dict[str, int]:
        """Begin no more transactions, let those under way end, and return `counts`. TimeoutError where they do not end."""
        self._stopping.set()
        return self.join(timeout_s)

    @property
    def counts(self) -> dict[str, int]:
        """Committed transactions by kind; orders `rolled_back` as they are meant to be; what was run again after `deadlocks`
        and `serialization_failures`; and `row_changes` of all that committed, an update counting once."""
        total = Counter(dict.fromkeys((*Kind, ROLLED_BACK, DEADLOCKS, SERIALIZATION_FAILURES, ROW_CHANGES), 0))
        for counts in self._counts:
            total.update(counts.copy())
        return {str(name): number for name, number in total.items()}

    @property
    def failure(self) -> BaseException | None:
        """What ended the load before its time."""
        return self._failure

    @property
    def late_s(self) -> float:
        """How far the last transaction of an open loop began behind its appointed time."""
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
            # Not what a client meets whose neighbour failed first.
            self._failure = self._failure or error
            self._stopping.set()
            ready.abort()

    def _once(self, connection: Connection, kind: Kind, parameters: list[str | None], counts: Counter[str]) -> bool:
        """Run it until it commits, or is rolled back as meant; whether it committed."""
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
        """Wait for the next turn that is nobody's yet; None when the load is over."""
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
