"""Concurrent transactions of every kind: streamed, partly rolled back, aborted, prepared, one long, one with continuous inserts.

Every connection has its own rows in `vault`, so that none waits for another. Changes that will be rolled back write the note UNDONE and
violate the sums: neither may ever be visible in the copy.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

import psycopg

from tests.chaos.pouring import pour

KEEPERS = 24
"""Connections that take turns, in THREADS threads; the long transaction has one more."""
THREADS = 2
ROWS = 300
AMOUNT = 100
UNDONE = "undone"
DDL = f"""
CREATE TABLE vault (keeper integer, place integer, amount bigint NOT NULL, note text NOT NULL, PRIMARY KEY (keeper, place));
INSERT INTO vault SELECT k, p, {AMOUNT}, 'kept' FROM generate_series(0, {KEEPERS}) AS k, generate_series(1, {ROWS}) AS p;
"""
INVARIANTS = (
    "(SELECT sum(amount) FROM vault)::BIGINT,"
    f" (SELECT count(*) FROM vault WHERE abs(place) <= {ROWS}),"
    f" (SELECT count(*) FROM vault WHERE note = '{UNDONE}')"
)
EXPECTED = [(KEEPERS + 1) * ROWS * AMOUNT, (KEEPERS + 1) * ROWS, 0]

_TURN_S = 0.04
_TRANSACT_AGAIN_S = 0.2
_POUR_AGAIN_S = 2.0
_STOP_S = 30.0
_LONGEST_S = 20.0
"""A new slot's snapshot waits for those that are open: a copy or a cut must not run into its timeout for one of ours."""
_FAILURES = 6
_ENDS = ("commit", "rollback", "commit prepared", "rollback prepared")
_END_WEIGHTS = (60, 20, 12, 8)
_STEPS = ("move", "all", "savepoint", "exceptions", "keys", "extra")
_STEP_WEIGHTS = (60, 12, 12, 6, 3, 3)
_SUMS = {False: "CASE WHEN place % 2 = 0 THEN {d} ELSE -{d} END", True: "{d}"}
"""What is added to a place's amount: nothing in sum, or something where it is going to be undone."""

Connection = psycopg.Connection[Any]
Connect = Callable[[], Connection]


class Counts:
    """What happened how often, and the most of something; counted by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, what: str, times: int = 1) -> None:
        with self._lock:
            self._counts[what] += times

    def most(self, what: str, value: int) -> None:
        with self._lock:
            self._counts[what] = max(self._counts[what], value)

    def document(self) -> dict[str, int]:
        with self._lock:
            return dict(sorted(self._counts.items()))


@dataclass(frozen=True, slots=True)
class Habits:
    """What transactions do. `prepares`: some are prepared. `flag`: a column that DELETE sets, in place of removing the row; the key of such
    a row is not free, so that keys stay what they are, and rows come back by an update."""

    prepares: bool = True
    flag: str | None = None


USUAL = Habits()


class _Transaction:
    """One connection's rows, and the transaction it has open on them, if any."""

    def __init__(self, keeper: int, connection: Connection, rng: random.Random, counts: Counts, habits: Habits) -> None:
        self.open = False
        self.gid: str | None = None
        """Prepared under this name, and not yet decided."""
        self.steps_left = 0
        self._keeper = keeper
        self._connection = connection
        self._rng = rng
        self._counts = counts
        self._habits = habits
        self._end = "commit"
        self._large = False

    def begin(self) -> None:
        self._end = self._rng.choices(_ENDS, _END_WEIGHTS)[0]
        if not self._habits.prepares:
            self._end = self._end.removesuffix(" prepared")
        self.steps_left = self._rng.randint(1, 5)
        self._large = False
        self._connection.execute("BEGIN")
        self.open = True

    def step(self) -> None:
        """One more statement or few; what they do is undone with the transaction, or before it commits, or stays."""
        self.steps_left -= 1
        kind = self._rng.choices(_STEPS, _STEP_WEIGHTS)[0]
        if kind == "savepoint":
            self._savepoint()
        elif kind == "exceptions":
            self._exceptions()
        elif kind == "keys" and self._habits.flag is None:
            self._run("UPDATE vault SET place = -place WHERE keeper = {k}")
            self._large = True
        elif kind == "extra":
            self._extra()
        else:
            self.change(whole=kind in {"all", "keys"})

    def change(self, *, whole: bool, undone: bool | None = None) -> None:
        """Move amounts between a few places, or between all of them, with notes so wide that the source streams them."""
        gone = self.is_rolled_back if undone is None else undone
        first = self._rng.randint(1, ROWS // 2) * 2 - 1
        where = "true" if whole else f"abs(place) BETWEEN {first} AND {min(first + 9, ROWS)}"
        note = f"'{UNDONE}'" if gone else "repeat(md5(random()::text), 12)" if whole else "'kept'"
        self._large |= whole
        added = _SUMS[gone].format(d=self._rng.randint(1, 9))
        self._run(f"UPDATE vault SET amount = amount + {added}, note = {note} WHERE keeper = {{k}} AND {where}")

    def end(self, gid: str | None) -> None:
        """Commit, roll back, or prepare as `gid` (None: do not prepare, because the end is awaited)."""
        self.open = False
        prepares = self._end.endswith("prepared")
        if prepares and gid is not None:
            self._connection.execute(f"PREPARE TRANSACTION '{gid}'".encode())
            self.gid = gid
            return
        self._connection.execute("ROLLBACK" if self.is_rolled_back else "COMMIT")
        self._count("rolled_back" if self.is_rolled_back else "committed")

    def decide(self) -> None:
        """COMMIT PREPARED or ROLLBACK PREPARED, as was chosen at the beginning."""
        decide(self._connection, str(self.gid), commit=not self.is_rolled_back)
        self.gid = None
        self._count("rolled_back_prepared" if self.is_rolled_back else "committed_prepared")

    @property
    def is_rolled_back(self) -> bool:
        return self._end.startswith("rollback")

    def _count(self, end: str) -> None:
        self._counts.add(end)
        if self._large:
            self._counts.add("large_aborted" if self.is_rolled_back else "large_committed")

    def _savepoint(self) -> None:
        """Two levels: the inner one is kept by the outer, and goes with it."""
        self._connection.execute("SAVEPOINT outer_one")
        self.change(whole=self._rng.random() < 0.3, undone=True)
        self._connection.execute("SAVEPOINT inner_one")
        self.change(whole=False, undone=True)
        self._connection.execute("RELEASE inner_one; ROLLBACK TO outer_one; RELEASE outer_one")
        self._counts.add("savepoints_undone")
        self.change(whole=False)

    def _exceptions(self) -> None:
        """PL/pgSQL blocks that fail after their changes: each is an aborted subtransaction."""
        self._run(
            f"DO $$ BEGIN FOR n IN 1..{_FAILURES} LOOP BEGIN"
            f" UPDATE vault SET note = '{UNDONE}', amount = amount + 1 WHERE keeper = {{k}} AND abs(place) % {_FAILURES} = n - 1;"
            " RAISE EXCEPTION 'on purpose'; EXCEPTION WHEN raise_exception THEN NULL; END; END LOOP; END $$"
        )
        self._counts.add("exceptions_caught", _FAILURES)
        self.change(whole=False)

    def _extra(self) -> None:
        """Rows come and go: as many with more as with less."""
        self._run("DELETE FROM vault WHERE keeper = {k} AND abs(place) > " + str(ROWS))
        note, flag = f"'{UNDONE}'" if self.is_rolled_back else "repeat('x', 200)", self._habits.flag
        again = "ON CONFLICT (keeper, place) DO UPDATE SET amount = excluded.amount, note = excluded.note"
        self._run(
            "INSERT INTO vault SELECT {k}, n, CASE WHEN n % 2 = 0 THEN 7 ELSE -7 END, "
            f"{note} FROM generate_series({ROWS + 1}, {ROWS * 3}) AS n"
            + ("" if flag is None else f" {again}, {flag} = false")
        )
        self._large = True

    def _run(self, sql: str) -> None:
        self._connection.execute(sql.replace("{k}", str(self._keeper)).encode())


def decide(connection: Connection, gid: str, *, commit: bool) -> None:
    """The second phase of a prepared transaction."""
    connection.execute(f"{'COMMIT' if commit else 'ROLLBACK'} PREPARED '{gid}'".encode())


class OpenTransactions:
    """Threads that each keep many transactions open across each other's commits, one with a long one, and one that pours rows in.

    They keep working through restarts of the source. `counts` says what came to its end; `failure` is what ended a thread.
    """

    def __init__(
        self, connect: Connect, seed: int, rest: Callable[[], object] | None = None, habits: Habits = USUAL
    ) -> None:
        """`rest`: returns when the next transaction may begin."""
        self.counts = Counts()
        self.failure: BaseException | None = None
        self._connect = connect
        self._rest = rest or (lambda: None)
        self._habits = habits
        self._stopping = threading.Event()
        self._calm = threading.Event()
        self._still = threading.Event()
        self._ended = threading.Event()
        """The long transaction is not open."""
        self._ended.set()
        self._gids = itertools.count(1)
        share = KEEPERS // THREADS
        self._threads = [
            self._thread(
                f"open-{n}", self._juggle, random.Random(f"{seed}/open/{n}"), range(n * share, (n + 1) * share)
            )
            for n in range(THREADS)
        ]
        self._threads.append(
            self._thread("open-long", self._long, random.Random(f"{seed}/long"), range(KEEPERS, KEEPERS + 1))
        )
        self._threads.append(self._thread("pouring", self._pour, random.Random(f"{seed}/poured")))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Come to an end: nothing stays open or prepared on the source."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(_STOP_S)

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Without the long transaction, for which a new snapshot would wait."""
        self._calm.set()
        try:
            self._ended.wait(_STOP_S)
            yield
        finally:
            self._calm.clear()

    @contextmanager
    def still(self) -> Iterator[None]:
        """Calm, and open transactions end without new ones: a new slot need not wait."""
        self._still.set()
        try:
            with self.calm():
                yield
        finally:
            self._still.clear()

    def _thread(self, name: str, work: Callable[..., None], *given: Any) -> threading.Thread:
        def guarded() -> None:
            while True:
                try:
                    work(*given)
                    return
                except psycopg.OperationalError:
                    self._stopping.wait(_TRANSACT_AGAIN_S)
                except BaseException as error:
                    self.failure = error
                    return
                finally:
                    self._ended.set()

        return threading.Thread(target=guarded, name=name, daemon=True)

    @contextmanager
    def _transactions(self, rng: random.Random, keepers: range) -> Iterator[list[_Transaction]]:
        """Connections without anything open; what an earlier connection left prepared is decided first."""
        connections: list[Connection] = []
        try:
            for _ in keepers:
                connections.append(self._connect())
                connections[-1].execute("SET statement_timeout = '20s'")
            left = connections[0].execute(
                "SELECT gid FROM pg_prepared_xacts WHERE gid LIKE %s ORDER BY gid", [f"vault-{keepers.start}-%"]
            )
            for (gid,) in left.fetchall():
                decide(connections[0], gid, commit=gid.endswith("commit"))
                self.counts.add("prepared_found_again")
            transactions = [
                _Transaction(k, c, rng, self.counts, self._habits) for k, c in zip(keepers, connections, strict=True)
            ]
            try:
                yield transactions
            except psycopg.OperationalError:
                self.counts.add("lost_with_the_source", sum(one.open for one in transactions))
                raise
        finally:
            for connection in connections:
                with suppress(psycopg.Error):
                    connection.close()

    def _juggle(self, rng: random.Random, keepers: range) -> None:
        with self._transactions(rng, keepers) as transactions:
            while not self._stopping.wait(_TURN_S):
                self._turn(rng, keepers, rng.choice(transactions), transactions)
            for one in transactions:
                if one.open:
                    one.end(None)
                if one.gid is not None:
                    one.decide()

    def _turn(self, rng: random.Random, keepers: range, one: _Transaction, beside: list[_Transaction]) -> None:
        if one.gid is not None:
            if rng.random() < 0.5:
                one.decide()
        elif not one.open and self._still.is_set():
            return
        elif not one.open:
            self._rest()
            one.begin()
            one.step()
            now_open = sum(other.open or other.gid is not None for other in beside)
            self.counts.most("most_open_in_a_thread", now_open)
        elif one.steps_left > 0:
            one.step()
        else:
            self.counts.add("ended_beside_open_ones", any(other.open for other in beside if other is not one))
            one.end(f"vault-{keepers.start}-{next(self._gids)}-{'rollback' if one.is_rolled_back else 'commit'}")

    def _long(self, rng: random.Random, keepers: range) -> None:
        """Open for a long time and now and then at work, then ended; about as long a rest before the next."""
        with self._transactions(rng, keepers) as (one,):
            while not self._stopping.is_set():
                lasting = rng.uniform(_LONGEST_S / 3, _LONGEST_S)
                self._rest()
                if not self._calm.is_set():
                    self._keep_open(one, lasting)
                self._stopping.wait(lasting)

    def _pour(self, rng: random.Random) -> None:
        with self._connect() as connection:
            connection.execute("SET statement_timeout = '20s'")
            while not self._stopping.wait(rng.uniform(0, _POUR_AGAIN_S)):
                self._rest()
                if self._still.is_set():
                    continue
                flag = self._habits.flag
                unmarked = "true" if flag is None else f"NOT {flag}"
                committed = pour(connection, rng, self._stopping.wait, unmarked)
                self.counts.add("poured_committed" if committed else "poured_aborted")

    def _keep_open(self, one: _Transaction, lasting: float) -> None:
        self._ended.clear()
        try:
            began = monotonic()
            one.begin()
            while monotonic() - began < lasting and not self._calm.is_set():
                one.change(whole=True)
                if self._stopping.wait(1.0):
                    break
            one.end(None)
            self.counts.add("long_aborted" if one.is_rolled_back else "long_committed")
            self.counts.most("longest_open_s", round(monotonic() - began))
        finally:
            self._ended.set()
