"""What can happen to nodes and to the coordinator of their transactions."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg

from server.cli.client import Document
from tests.chaos.failpoint_kills import NothingToKillError
from tests.chaos.killer import Kind
from tests.chaos.node_bank import NODES, NodeBank
from tests.chaos.node_coordinator import Step
from tests.fixtures.senders import SENDERS, stopped

_SHORT_S, _LONG_S = (0.0, 3.0), (6.0, 25.0)
"""How long a node is away. Waits of readers end after 20 s."""
_DEAD_S = (0.0, 6.0)
"""How long there is no coordinator."""
_STOPPED_S = (0.5, 6.0)
"""How long a session that sends the log is stopped."""
_REACHED_S = 20.0
_CUT = "SELECT count(pg_terminate_backend(pid)) FROM unnest(%s) AS pid"
_SESSIONS = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
)
KINDS: tuple[Kind, ...] = ("node", "node_away", "walsender", "sender_stopped", "sessions", "coordinator")


class NodeKills:
    """`failure`: what ended the thread that starts a node again."""

    def __init__(self, bank: NodeBank, rng: random.Random) -> None:
        self.failure: BaseException | None = None
        self._bank = bank
        self._rng = rng
        self._pause = threading.Event()
        self._there = [threading.Lock() for _ in bank.places.clusters]
        """Held while a cluster is away."""
        self._steps: list[Step] = []

    def kinds(self) -> Mapping[Kind, Callable[[], Document]]:
        return {
            "node": self._node,
            "node_away": self._node_away,
            "walsender": self._walsender,
            "sender_stopped": self._sender_stopped,
            "sessions": self._sessions,
            "coordinator": self._coordinator,
        }

    @contextmanager
    def calm(self) -> Iterator[None]:
        """All nodes are there."""
        with ExitStack() as stack:
            for there in self._there:
                stack.enter_context(there)
            yield

    def _node(self) -> Document:
        number = self._away()
        try:
            how, away_s = self._stop(number), self._rng.uniform(*_SHORT_S)
            self._pause.wait(away_s)
            self._bank.places.clusters[number].start()
        finally:
            self._there[number].release()
        return {"node": number, "how": how, "away_s": round(away_s, 1)}

    def _node_away(self) -> Document:
        """It comes back by itself, while other things are killed."""
        number = self._away()
        how, away_s = self._stop(number), self._rng.uniform(*_LONG_S)

        def come_back() -> None:
            try:
                self._pause.wait(away_s)
                self._bank.places.clusters[number].start()
            except BaseException as error:
                self.failure = error
            finally:
                self._there[number].release()

        threading.Thread(target=come_back, name=f"node-{number}-away", daemon=True).start()
        return {"node": number, "how": how, "away_s": round(away_s, 1)}

    def _away(self) -> int:
        """The number of a cluster, which is this thread's from now on."""
        number = self._rng.randrange(len(self._there))
        if not self._there[number].acquire(timeout=_LONG_S[1] + 5):
            raise NothingToKillError("the node is away")
        return number

    def _stop(self, number: int) -> str:
        cluster = self._bank.places.clusters[number]
        if self._rng.random() < 0.3:
            cluster.kill9()
            return "kill -9"
        cluster.stop("immediate")
        return "immediate"

    def _walsender(self) -> Document:
        node, senders = self._senders()
        with self._on(node) as session:
            ((ended,),) = session.execute(_CUT, [senders]).fetchall()
        return {"node": node, "ended": ended}

    def _sender_stopped(self) -> Document:
        node, senders = self._senders()
        seconds = self._rng.uniform(*_STOPPED_S)
        with stopped(senders):
            self._pause.wait(seconds)
        return {"node": node, "stopped_s": round(seconds, 1)}

    def _senders(self) -> tuple[int, list[int]]:
        node = self._rng.randrange(NODES)
        with self._on(node) as session:
            found = [int(pid) for (pid,) in session.execute(SENDERS).fetchall()]
        if not found:
            raise NothingToKillError("the log is not being read")
        return node, found

    def _sessions(self) -> Document:
        """All sessions of a database, but not those that send its log."""
        node = self._rng.randrange(NODES)
        with self._on(node) as session:
            ((ended,),) = session.execute(_SESSIONS).fetchall()
        return {"node": node, "ended": ended}

    def _coordinator(self) -> Document:
        """It dies at a step, each in turn, and has a successor after a while."""
        self._steps = self._steps or self._rng.sample(list(Step), len(Step))
        step = self._steps.pop()
        if not self._bank.coordinator.kill(step, _REACHED_S):
            raise NothingToKillError("no transaction came to this step")
        dead_s = self._rng.uniform(*_DEAD_S)
        self._pause.wait(dead_s)
        self._bank.coordinator.follow()
        return {"step": step, "dead_s": round(dead_s, 1)}

    @contextmanager
    def _on(self, node: int) -> Iterator[Any]:
        try:
            with self._bank.places.connect(node) as session:
                yield session
        except psycopg.OperationalError as error:
            raise NothingToKillError("the node is away") from error
