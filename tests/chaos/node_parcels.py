"""Parcels that carriers bring from node to node by ordinary transactions: a delete on the one node, then an insert with the same key on the
other, which nothing but the key relates.

A carrier is one client, which begins the next transaction when the last one is committed. So a parcel is on one node at every moment, or
between two of them. On its way it may come back, be updated in between, or leave and arrive by changes of its key. Every transaction makes
the parcel's version greater by one.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import psycopg

from server.cli.client import NoServerError, ProblemError
from tests.chaos.node_coordinator import NodeSessions, Session, Work
from tests.fixtures.rig import Rig

_CARRIERS, _EACH = 2, 20
PARCELS = _CARRIERS * _EACH
_NOTE = 3_200
_RATE = 3.0
"""Journeys per second of all carriers: about as many transactions as the rest of the load has. Not measured."""
_PATIENCE = "SET statement_timeout = '20s'; SET lock_timeout = '300ms'"
_ARRIVAL_S = 120.0
"""Within which carriers arrive once all nodes are there. Not measured."""
_AWAY = (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction)
"""Errors of nodes that are away, or whose place a standby takes."""
_SETTLED_S = 3.0
"""See `Carriers.quick`: twice what it takes while all logs are read. Not measured."""
_LOOK_S = 0.25
_VERSIONS = f"SELECT id, version FROM parcels WHERE id <= {PARCELS}"
DDL = f"""
CREATE TABLE parcels (id int PRIMARY KEY, version int NOT NULL, depot smallint NOT NULL, note text NOT NULL);
ALTER TABLE parcels ALTER COLUMN note SET STORAGE EXTERNAL;
INSERT INTO parcels SELECT n, 0, {{node}}, repeat('x', {_NOTE}) FROM generate_series(1, {PARCELS}) AS n
    WHERE n % {{nodes}} = {{node}}
"""
SUMS = (
    "(SELECT count(*) - count(DISTINCT id) FROM parcels)",
    f"(SELECT count(*) FROM parcels WHERE length(note) <> {_NOTE} OR abs(id) % 1000 NOT BETWEEN 1 AND {PARCELS})",
)
"""Questions of which each answer is 0 in every state of the copy."""


@dataclass(slots=True)
class _Parcel:
    id: int
    node: int
    version: int = 0
    arrived_s: float = 0.0

    @property
    def leaving(self) -> int:
        """The key under which it may leave a node."""
        return self.id + 1_000

    @property
    def arriving(self) -> int:
        """The key under which it may arrive on a node."""
        return self.id + 2_000


class Carriers:
    """Threads, from `start` to `stop`. `failure`: what ended one of them."""

    def __init__(self, nodes: NodeSessions, seed: int) -> None:
        self.failure: BaseException | None = None
        self.rest: Callable[[], float] = lambda: 0.0
        """Returns when the load may continue: the seconds of all rests."""
        self.quick = 1.0
        """The share of journeys that do not wait until what moved has settled in the merged log. Their table may have to be copied again if
        nothing but the order in which logs are read orders what one client did."""
        self._stopping = threading.Event()
        self._carriers = [
            _Carrier(nodes, random.Random(f"{seed}/carrier {n}"), range(n * _EACH + 1, (n + 1) * _EACH + 1))
            for n in range(_CARRIERS)
        ]
        self._threads = [
            threading.Thread(target=self._carry, args=(each,), name="carrier", daemon=True) for each in self._carriers
        ]

    @property
    def counts(self) -> Counter[str]:
        """What happened to parcels."""
        return sum((Counter(dict(each.counts)) for each in self._carriers), Counter[str]())

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Bring every parcel to where it is going. All nodes are there."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(_ARRIVAL_S)
            assert not thread.is_alive(), "a carrier has not arrived"

    def _carry(self, carrier: _Carrier) -> None:
        began, journeys = monotonic(), 0
        try:
            while not self._stopping.is_set():
                due = began + journeys * _CARRIERS / _RATE + self.rest()
                if not self._stopping.wait(max(0.0, due - monotonic())):
                    carrier.travel(quick=carrier.rng.random() < self.quick)
                    journeys += 1
        except BaseException as error:
            self.failure = error
        finally:
            carrier.close()


@dataclass
class _Carrier:
    """One client. `numbers`: of the parcels that are its own."""

    nodes: NodeSessions
    rng: random.Random
    numbers: Sequence[int]
    counts: Counter[str] = field(default_factory=Counter)
    sessions: dict[int, Session] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parcels = [_Parcel(number, number % len(self.nodes)) for number in self.numbers]

    def travel(self, *, quick: bool) -> None:
        """Bring up to three parcels of one node to another one; `quick`: to further ones, too, one after another."""
        rested = [each for each in self.parcels if quick or each.arrived_s + _SETTLED_S < monotonic()]
        if not rested:
            return
        first = self.rng.choice(rested)
        there = [each for each in rested if each.node == first.node]
        taken = self.rng.sample(there, min(len(there), self.rng.choice([1, 1, 1, 2, 3])))
        pause_s = self.rng.choice([0.0, 0.0, 0.02, 0.3])
        for node in self._path(first.node, self.rng.choice([1, 1, 2, 3, 5]) if quick else 1):
            self._handle(taken)
            self._move(taken, node, by_key=quick and self.rng.random() < 0.1)
            threading.Event().wait(pause_s * self.rng.random())
        self._handle(taken)
        self.counts["quick journeys" if quick else "journeys"] += 1

    def close(self) -> None:
        for node in list(self.sessions):
            self._drop(node)

    def _path(self, begin: int, hops: int) -> Iterator[int]:
        """Nodes, each other than that before it."""
        here, before = begin, None
        for _ in range(hops):
            others = [node for node in range(len(self.nodes)) if node != here]
            here, before = before if before is not None and self.rng.random() < 0.5 else self.rng.choice(others), here
            if here == begin:
                self.counts["returns"] += 1
            yield here

    def _handle(self, parcels: Sequence[_Parcel]) -> None:
        """Update them where they are, or undo what was begun."""
        node = parcels[0].node
        for _ in range(self.rng.choice([0, 0, 1, 2])):
            self._commit(node, lambda session: self._update(session, parcels))
            self._count(parcels, "updates")
        if self.rng.random() < 0.1:
            with suppress(psycopg.Error, psycopg.Rollback), self._session(node).transaction() as whole:
                self._delete(self._session(node), parcels)
                raise psycopg.Rollback(whole)
            self.counts["undone"] += 1

    def _move(self, parcels: Sequence[_Parcel], node: int, *, by_key: bool) -> None:
        """The transactions that bring them to a node. Each may be repeated: its answer may be lost, although it is committed. `by_key`:
        they leave by a change of their key."""
        one = parcels[0].node
        if by_key:
            self._commit(one, lambda session: self._rename(session, parcels, "leaving"))
            self._count(parcels, "left by a change of the key")
        elif self.rng.random() < 0.3:
            self._commit(
                one, lambda session: self._update(session, parcels), lambda session: self._delete(session, parcels)
            )
            self._count(parcels)
        else:
            self._commit(one, lambda session: self._delete(session, parcels))
        for parcel in parcels:
            parcel.node, parcel.version = node, parcel.version + 1
        self._arrive(parcels, node)
        for parcel in parcels:
            parcel.arrived_s = monotonic()
        self.counts["moves"] += len(parcels)
        if by_key:
            self._commit(one, lambda session: self._remove(session, [parcel.leaving for parcel in parcels]))

    def _arrive(self, parcels: Sequence[_Parcel], node: int) -> None:
        chance = self.rng.random()
        if chance < 0.15:
            self._commit(node, lambda session: self._insert(session, parcels, "arriving"))
            self._commit(node, lambda session: self._rename_back(session, parcels))
            self._count(parcels, "arrived by a change of the key")
        elif chance < 0.4:
            self._commit(
                node, lambda session: self._insert(session, parcels), lambda session: self._update(session, parcels)
            )
            self._count(parcels)
        else:
            self._commit(node, lambda session: self._insert(session, parcels))

    def _count(self, parcels: Sequence[_Parcel], what: str | None = None) -> None:
        for parcel in parcels:
            parcel.version += 1
        if what is not None:
            self.counts[what] += len(parcels)

    @staticmethod
    def _update(session: Session, parcels: Sequence[_Parcel]) -> None:
        for parcel in parcels:
            note = f", note = '{_note(parcel.version + 1)}'" if parcel.version % 4 == 3 else ""
            sql = f"UPDATE parcels SET version = version + 1{note} WHERE id = %s AND version = %s"
            session.execute(sql.encode(), [parcel.id, parcel.version])

    def _delete(self, session: Session, parcels: Sequence[_Parcel]) -> None:
        self._remove(session, [parcel.id for parcel in parcels])

    @staticmethod
    def _remove(session: Session, keys: Sequence[int]) -> None:
        session.execute("DELETE FROM parcels WHERE id = ANY(%s)", [list(keys)])

    @staticmethod
    def _insert(session: Session, parcels: Sequence[_Parcel], key: str = "id") -> None:
        for parcel in parcels:
            row = [getattr(parcel, key), parcel.version, parcel.node, _note(parcel.version)]
            session.execute("INSERT INTO parcels VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING", row)

    @staticmethod
    def _rename(session: Session, parcels: Sequence[_Parcel], key: str) -> None:
        for parcel in parcels:
            sql = "UPDATE parcels SET id = %s, version = version + 1 WHERE id = %s"
            session.execute(sql, [getattr(parcel, key), parcel.id])

    @staticmethod
    def _rename_back(session: Session, parcels: Sequence[_Parcel]) -> None:
        for parcel in parcels:
            sql = "UPDATE parcels SET id = %s, version = version + 1 WHERE id = %s"
            session.execute(sql, [parcel.id, parcel.arriving])

    def _commit(self, node: int, *works: Work) -> None:
        """Until it is committed."""
        while True:
            try:
                session = self._session(node)
                with session.transaction():
                    for work in works:
                        work(session)
                return
            except _AWAY as error:
                self.counts[f"repeated: {type(error).__name__}"] += 1
                self._drop(node)
            threading.Event().wait(0.2)

    def _session(self, node: int) -> Session:
        if node not in self.sessions:
            self.sessions[node] = self.nodes.connect(node)
            self.sessions[node].execute(_PATIENCE.encode())
        return self.sessions[node]

    def _drop(self, node: int) -> None:
        with suppress(KeyError, psycopg.Error):
            self.sessions.pop(node).close()


class Sightings:
    """Reads the copy's parcels, from `start` to `stop`. `violations`: two parcels with one key."""

    def __init__(self, rig: Rig) -> None:
        self.failure: BaseException | None = None
        self.violations: list[dict[str, Any]] = []
        self.reads = 0
        self.earlier = 0
        """Parcels that were as they had been before they were seen last: what different nodes did may change places."""
        self._rig = rig
        self._seen: dict[int, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sightings", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)

    def _watch(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            try:
                self._look(self._rig.query(_VERSIONS))
            except (NoServerError, ProblemError):
                continue  # It is killed. Refusals of queries are counted elsewhere.
            except BaseException as error:
                self.failure = error
                return

    def _look(self, rows: Sequence[Sequence[int]]) -> None:
        self.reads += 1
        if len({key for key, _ in rows}) < len(rows):
            self.violations.append({"several rows with one key": sorted(rows)})
        for key, version in rows:
            self.earlier += version < self._seen.get(key, 0)
            self._seen[key] = version


def _note(version: int) -> str:
    return chr(ord("a") + version % 26) * _NOTE
