"""A whole Penstock with a small shop on its source, for the console to show: one server, one engine, one embedded PostgreSQL."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from server.cli.client import Document, ProblemError
from tests.fixtures.rig import DATABASE, SUBSCRIPTION, Rig

TABLES = ("customers", "orders", "notes", "leftovers")
ROWS = 100
PAGES = {
    "fleet": "/",
    "subscription": f"/subscriptions/{SUBSCRIPTION}",
    "charts": f"/subscriptions/{SUBSCRIPTION}/charts",
    "batches": f"/subscriptions/{SUBSCRIPTION}/batches",
    "cycles": f"/subscriptions/{SUBSCRIPTION}/cycles",
    "events": f"/subscriptions/{SUBSCRIPTION}/events",
    "verifications": f"/subscriptions/{SUBSCRIPTION}/verifications",
    "snapshots": f"/subscriptions/{SUBSCRIPTION}/snapshots",
    "read points": f"/subscriptions/{SUBSCRIPTION}/read-points",
    "settings": f"/subscriptions/{SUBSCRIPTION}/settings",
    "table": f"/subscriptions/{SUBSCRIPTION}/tables/{{orders}}",
    "table options": f"/subscriptions/{SUBSCRIPTION}/tables/{{orders}}/options",
    "new table": f"/subscriptions/{SUBSCRIPTION}/add/table",
    "freshness": f"/freshness?subscription={SUBSCRIPTION}",
    "tickets": f"/tickets?subscription={SUBSCRIPTION}",
    "connections": "/connections",
    "connection": "/connections/source",
    "new connection": "/new-connection",
    "alerts": "/alerts",
    "new alert channel": "/new-alert-channel",
    "new subscription": "/new-subscription?source=source",
    "nothing here": "/nothing-here",
}
"""Every page of the console, by a name, with its address in the shop."""
BEYOND = "294270-01-01 00:00:00+00"
"""The source holds it, no column of the target does."""
_WELL_S = 180.0


class Shop:
    """Tables of 100 rows each, followed by the subscription `copy` from `source` to `target`."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.api = rig.api
        self.url = rig.running.options.url
        self.token = rig.running.admin_token

    def fill(self) -> None:
        """Make the tables and have them followed; returns when all are live."""
        for name in TABLES:
            self.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text, changed timestamptz DEFAULT now())")
            self.execute(f"INSERT INTO {name} SELECT number, 'name' FROM generate_series(1, {ROWS}) number")
        self.rig.declare([{"schema": "public", "name": name} for name in TABLES])
        self.settle()

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement on the source, in a transaction of its own."""
        return self.rig.postgres.execute(statement, database=DATABASE)

    @property
    def subscription(self) -> Document:
        return self.api.get(self.rig.path)

    @property
    def tables(self) -> list[Document]:
        return list(self.api.items(f"{self.rig.path}/tables"))

    def table(self, name: str) -> Document:
        """One of those that are followed."""
        return next(table for table in self.tables if table["name"] == name)

    def address(self, page: str) -> str:
        """Of one of `PAGES`."""
        return PAGES[page].format(orders=self.table("orders")["id"])

    def want(self, name: str, state: str) -> None:
        """Ask for a table to be `running` or `paused`."""
        self.api.patch(f"{self.rig.path}/tables/{self.table(name)['id']}", {"desired_state": state})

    def settle(self) -> None:
        """Return when the engine is connected and every table is live; what a failed test has paused is resumed first."""
        self.rig.wait_until(self._well, _WELL_S, "the engine was connected and every table live, but parked ones")

    def _well(self) -> bool:
        if not self._ready():
            return False
        if self.subscription["desired_state"] != "running":
            self.api.patch(self.rig.path, {"desired_state": "running"})
        found = self.tables
        for table in found:
            if table["desired_state"] != "running":
                self.want(table["name"], "running")
        return self.subscription["state"] == "running" and {table["state"] for table in found} <= {"live", "parked"}

    def kill_server(self) -> None:
        """It is started again by itself."""
        self._kill("server")

    @contextmanager
    def without_engine(self) -> Iterator[None]:
        """The engine is killed; another one starts when the block is left, and not before."""
        supervisor = self.rig.running.supervisor
        usual = supervisor.spec("engine")
        gate = self.rig.home / "gate"
        os.mkfifo(gate)
        # Reading from the gate blocks until the test writes to it, and the engine starts only after that.
        waits = ("/bin/sh", "-c", 'read -r _ < "$0"; exec "$@"', str(gate), *usual.command)
        supervisor.replace(dataclasses.replace(usual, command=waits))
        self._kill("engine")
        try:
            self.rig.wait_until(lambda: not self._ready(), _WELL_S, "the server knew that the engine is gone")
            yield
        finally:
            supervisor.replace(usual)
            gate.write_text("\n")
            gate.unlink()

    def _ready(self) -> bool:
        try:
            self.api.send("GET", "/readyz", timeout_s=2.0)
        except ProblemError:
            return False
        return True

    def _kill(self, child: str) -> None:
        pid = self.rig.running.supervisor.pid(child)
        assert pid is not None, f"there is no {child}"
        os.kill(pid, signal.SIGKILL)


@contextmanager
def open_shop() -> Iterator[Shop]:
    """A shop whose tables are all live."""
    with Rig(durable=False) as rig:
        shop = Shop(rig)
        shop.fill()
        yield shop
