"""Long outages of one node under load, a standby in its place, and nodes that are added or removed: what is seen of them, and when."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from time import monotonic
from typing import Any, Protocol

from server.cli.client import Document, NoServerError, ProblemError
from server.demo.embedded import EmbeddedPostgres, server_folder
from tests.chaos.node_bank import NODES, NodeBank
from tests.fixtures.rig import Rig
from tests.fixtures.senders import SENDERS, stopped

OUTAGES = ("silent", "stopped", "promoted", "nodes")
_NODE = 0
_VISIBLE_S = 10.0
"""Within which an outage has to be seen everywhere."""
_BACK_S = 240.0


class Note(Protocol):
    def __call__(self, event: str, **more: Any) -> None: ...


class Outage:
    """One trial. `figures`: what was measured, in seconds after the node was lost, or after it was back."""

    def __init__(self, rig: Rig, bank: NodeBank, note: Note, away_s: float, sums: AbstractContextManager[Any]) -> None:
        """`sums`: held while tables are at different positions."""
        self.figures: dict[str, Any] = {}
        self._rig = rig
        self._bank = bank
        self._note = note
        self._away_s = away_s
        self._sums = sums

    def run(self, kind: str) -> None:
        """AssertionError if something is not as promised. All nodes are there afterwards."""
        if kind == "silent":
            self._outage(self._silenced)
        elif kind == "stopped":
            self._outage(self._stopped)
        elif kind == "promoted":
            self._promoted()
        else:
            self._nodes()

    def _outage(self, lost: Callable[[], Any]) -> None:
        began = monotonic()
        with lost():
            before = self._applied()
            self._watch(began, began + self._away_s, lost == self._stopped)
            after = self._applied()
            for name in ("n1", "n2"):
                self.figures[f"{name}_applied_bytes_meanwhile"] = after[name] - before[name]
        self._note("back")
        back = monotonic()
        waited = self._wait_for_all(back + _BACK_S)
        self.figures["all_applied_after_s"] = round(waited - back, 1)
        self._rig.wait_until(lambda: not any(node["late"] for node in self._nodes_now()), _BACK_S, "no node is late")
        self._rig.wait_until(lambda: self._events("node_heard"), 30, "an event that it is heard")
        found = {code: [event["subject"] for event in self._events(code)] for code in ("node_silent", "node_heard")}
        self.figures["events"] = found
        assert self._rig.api.get(self._rig.path)["state"] == "running"
        assert all(subjects == [f"n{_NODE}"] for subjects in found.values()), f"one outage has these events: {found}"

    def _watch(self, began: float, until: float, stopped: bool) -> None:
        seen: dict[str, float] = {}
        states, lag = set(), 0.0
        wanted = {"late", "explained", "event", *(("away", "health") if stopped else ())}
        while monotonic() < until:
            with suppress(NoServerError, ProblemError):
                at = round(monotonic() - began, 1)
                subscription = self._rig.api.get(self._rig.path)
                states.add(subscription["state"])
                lag = max(lag, (subscription["lag"] or {}).get("seconds") or 0.0)
                node = self._nodes_now()[_NODE]
                found = {
                    "late": node["late"],
                    "away": node["away"] is not None,
                    "health": subscription["health"]["word"] == "node_away",
                    "explained": self._is_explained(),
                    "event": bool(self._events("node_silent")),
                }
                for name in (name for name, is_seen in found.items() if is_seen and name not in seen):
                    seen[name] = at
                    self._note("seen", what=name)
            self._bank.pause(0.5)
        self.figures.update(seen_after_s=seen, lag_shown_s=round(lag, 1), states=sorted(states))
        assert states == {"running"}, states
        assert wanted <= seen.keys(), seen
        assert all(seen[name] <= _VISIBLE_S for name in wanted), seen

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        cluster = self._bank.places.clusters[_NODE]
        cluster.stop("immediate")
        try:
            yield
        finally:
            cluster.start()

    @contextmanager
    def _silenced(self) -> Iterator[None]:
        with self._bank.places.connect(_NODE) as session:
            senders = [int(pid) for (pid,) in session.execute(SENDERS).fetchall()]
        with stopped(senders):
            yield

    def _promoted(self) -> None:
        """A clean switch-over, of which nothing is promised but that it is seen, and that a reload repairs it."""
        primary = self._bank.places.clusters[_NODE]
        standby = EmbeddedPostgres(server_folder(), durable=True, settings=primary.settings)
        copy = [primary.program("pg_basebackup"), "-D", str(standby.data), "-R", "-d", primary.dsn(), "-c", "fast"]
        subprocess.run(copy, check=True, capture_output=True)
        owner = primary.data.stat()
        for path in [standby.folder, standby.data, *standby.data.rglob("*")]:
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
        standby.start()
        primary.stop()  # It waits until the standby has everything.
        standby.stop()
        standby.port = primary.port
        self._bank.places.former.append(primary)
        self._bank.places.clusters[_NODE] = standby
        standby.start()
        began = monotonic()
        standby.execute("SELECT pg_promote()")
        self._rig.wait_until(lambda: self._rig.api.get(self._rig.path)["state"] == "failed", 60, "it has failed")
        failed = self._rig.api.get(self._rig.path)
        self.figures.update(failed_after_s=round(monotonic() - began, 1), code=failed["code"], reason=failed["reason"])
        assert failed["code"] == "log_gap", failed
        self._reload()

    def _nodes(self) -> None:
        """One node more, and one less."""
        nodes = self._bank.body["settings"]["nodes"]
        refused = self._refused({"settings": {"nodes": nodes[:-1]}})
        self.figures["removed"] = refused
        assert refused == "nodes_fixed"
        database = "added"
        cluster = self._bank.places.clusters[-1]
        cluster.execute(f"CREATE DATABASE {database}")
        with cluster.connect(database) as session:
            session.execute("CREATE TABLE follows (move bigint PRIMARY KEY)")
            session.execute("CREATE TABLE accounts (id int PRIMARY KEY, amount bigint NOT NULL, note text NOT NULL)")
            session.execute("CREATE TABLE moves (move bigint PRIMARY KEY)")
            session.execute("INSERT INTO moves VALUES (-1000000)")
        settings = {"host": cluster.host, "port": cluster.port, "database": database, "user": cluster.user}
        self._rig.api.put("/connections/n3", {"kind": "postgres", "settings": {**settings, "sslmode": "disable"}})
        more = [*nodes, {"name": f"n{NODES}", "connection": f"n{NODES}"}]
        self._rig.api.send("PATCH", "/connections/source", {"settings": {"nodes": more}})
        self._rig.wait_until(lambda: self._events("nodes_added"), 30, "an event that nodes were added")
        self._reload()
        self.figures["nodes"] = [node["name"] for node in self._nodes_now()]
        added = "SELECT count(*) FROM moves WHERE move = -1000000"
        self._rig.wait_until(lambda: self._rig.query(added) == [[1]], 60, "the rows of the new node")
        with cluster.connect(database) as session:
            session.execute("DELETE FROM moves")
        self._rig.wait_until(lambda: self._rig.query(added) == [[0]], 60, "a change of the new node")

    def _reload(self) -> None:
        began = monotonic()
        with self._sums:
            self._rig.api.post(f"{self._rig.path}/reloads", {})
            self._rig.wait_until(self._is_live, _BACK_S, "all tables are live after the reload")
        self.figures["live_after_reload_s"] = round(monotonic() - began, 1)

    def _is_live(self) -> bool:
        with suppress(NoServerError, ProblemError):
            if self._rig.api.get(self._rig.path)["state"] == "running":
                listed = list(self._rig.api.items(f"{self._rig.path}/tables"))
                return bool(listed) and all(table["state"] == "live" for table in listed)
        return False

    def _refused(self, body: Document) -> str:
        try:
            self._rig.api.send("PATCH", "/connections/source", body)
        except ProblemError as problem:
            return str(problem.code)
        return "accepted"

    def _wait_for_all(self, until: float) -> float:
        """Until a wait for "now" ends; returns when."""
        while monotonic() < until:
            with suppress(NoServerError, ProblemError):
                self._rig.api.post(f"{self._rig.path}/freshness-waits", {"timeout_ms": 20_000}, timeout_s=30)
                return monotonic()
            self._bank.pause(0.2)
        raise AssertionError("no wait ended after the node was back")

    def _is_explained(self) -> bool:
        causes = self._rig.api.get(f"{self._rig.path}/lag/explanation")["causes"]
        return any(cause["cause"] == "silent_node" and "n0" in str(cause["evidence"]) for cause in causes)

    def _events(self, code: str) -> list[Document]:
        found: list[Document] = self._rig.api.get("/events", kind=code)["items"]
        return found

    def _nodes_now(self) -> list[Document]:
        found: list[Document] = self._rig.api.get(f"{self._rig.path}/nodes")["items"]
        return found

    def _applied(self) -> dict[str, int]:
        found = {}
        for node in self._nodes_now():
            high, _, low = node["applied"].partition("/")
            found[node["name"]] = (int(high, 16) << 32) + int(low, 16)
        return found
