"""A query that asks for fresh rows is never answered with those of a table that has stopped to follow its source."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from engine.control.request_handlers import RequestHandler
from engine.link.answer_frames import AnswerEnd, FrameReader, RowsFrame
from engine.link.client import ServerLink
from engine.link.message import Problem
from engine.link.queries import Query
from engine.model.position import Lsn
from engine.pipeline.commit import Applied
from engine.pipeline.run import ReplicationRun
from engine.platform.clock import SystemClock
from engine.platform.settings import EngineSettings
from engine.tables.state import Registered
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

each_target = pytest.mark.parametrize("target_kind", ["duckdb", "postgres"])
mostly_duckdb = pytest.mark.parametrize("target_kind", ["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)])
DEADLINE_S = 30.0


class Link:
    """In place of the link to a server: keeps how the last query ended."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.problem: Problem | None = None
        self.rows: list[dict[str, Any]] = []
        self.position = Lsn(0)
        self.tables: list[str] = []
        self.ran_on = ""
        self.not_following: list[str] = []

    def refuse(self, _: str, problem: Problem) -> None:
        self.problem = problem
        self.ended.set()

    def upload_result(self, _: str, position: Lsn, frames: Any, timeout_s: float, **more: Any) -> None:
        found = list(FrameReader().feed(b"".join(frames)))
        assert found.pop() == AnswerEnd()
        self.position = position
        self.rows = [row for frame in found if isinstance(frame, RowsFrame) for row in frame.read().to_pylist()]
        self.tables, self.not_following = list(more["tables"]), list(more.get("not_following", ()))
        self.ran_on = more.get("ran_on", "target")
        self.ended.set()


Ask = Callable[..., Link]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Asks a replica as the server would, that the tables follow where `following`."""
    with ExitStack() as stack:

        def asked(
            replica: Replica, sql: str, *, following: bool = True, available: bool = False, on_source: bool = False
        ) -> Link:
            desk = RequestHandler(EngineSettings(home=tmp_path), lambda _: replica.pipeline, SystemClock())
            stack.callback(desk.close)
            link = Link()
            desk.connect(cast("ServerLink", link))
            name = str(replica.spec.name)
            wanted = {"following": following, "available": available, "on_source": on_source}
            desk.handle_command(Query(request_id="r", subscription=name, sql=sql, timeout_ms=20_000, **wanted))
            assert link.ended.wait(DEADLINE_S)
            return link

        yield asked


def _made(database: Database) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, n numeric)")
    database.execute("CREATE TABLE lines (id int PRIMARY KEY)")
    database.execute("INSERT INTO orders VALUES (1, 1)")
    database.execute("INSERT INTO lines VALUES (1)")


def _pause(replica: Replica) -> None:
    assert replica.pipeline.run is not None
    replica.pipeline.run.pause(replica.table_id("orders"))
    replica.wait_table("orders", "paused")


def _refused(link: Link, name: str, state: str) -> None:
    assert link.problem is not None
    assert (link.problem.status, link.problem.code) == (409, "freshness_unreachable")
    assert f"{name} is {state}" in link.problem.detail
    assert link.problem.remedy
    assert link.problem.tables


@mostly_duckdb
def test_a_paused_table_is_refused_by_name_and_included_where_that_is_wanted(
    database: Database, replicate: Callable[..., Replica], ask: Ask
) -> None:
    _made(database)
    replica = replicate(database, [table("orders"), table("lines")])
    orders = replica.table_id("orders")
    _pause(replica)
    database.execute("UPDATE orders SET n = 2")
    replica.catch_up()
    for sql in (
        "SELECT n FROM public.orders",
        "SELECT count(*) FROM lines, orders",
        "SELECT (SELECT max(n) FROM orders)",
    ):
        _refused(ask(replica, sql), "public.orders", "paused")
        _refused(ask(replica, sql, following=False, available=True), "public.orders", "paused")
    assert ask(replica, "SELECT id FROM lines").tables == [replica.table_id("lines")]
    old = ask(replica, "SELECT n FROM orders", following=False)
    assert [int(row["n"]) for row in old.rows] == [1]
    assert old.not_following == [orders]
    assert old.ran_on == "target"
    new = ask(replica, "SELECT n FROM orders", on_source=True)
    assert (new.problem, new.ran_on, new.tables) == (None, "source", [orders])
    assert [int(row["n"]) for row in new.rows] == [2]
    assert new.position > old.position
    strange = ask(replica, "SELECT pg_sleep(1)", on_source=True).problem
    assert strange is not None
    assert (strange.status, strange.code) == (422, "query_not_translatable")


@each_target
def test_a_table_that_parks_between_the_wait_and_the_read_is_seen_in_the_snapshot(
    database: Database, replicate: Callable[..., Replica], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The book of the run is held back, as where the report is still on its way: the record in the snapshot decides."""
    _made(database)
    replica = replicate(database, [table("orders"), table("lines")])
    entry = replica.pipeline.book.get(replica.table_id("orders"))
    _pause(replica)
    database.execute("UPDATE orders SET n = 2")
    replica.catch_up()
    monkeypatch.setattr(replica.pipeline.book, "get", lambda _: entry)
    link = ask(replica, "SELECT n FROM orders")
    assert link.problem is not None
    assert link.problem.code == "table_not_ready"
    assert link.problem.tables == (replica.table_id("orders"),)


@mostly_duckdb
def test_a_table_that_is_not_on_the_target_yet_is_named_with_its_state(
    database: Database, replicate: Callable[..., Replica], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    _made(database)
    replica = replicate(database, [table("lines"), table("orders", paused=True)], live=False)
    replica.wait_table("lines", "live")
    for wanted in ({}, {"following": False, "available": True}, {"following": False}):
        _refused(ask(replica, "SELECT n FROM Public.Orders", **wanted), "public.orders", "paused")
    entry = replica.pipeline.book.get(replica.table_id("orders"))
    assert entry is not None
    monkeypatch.setattr(replica.pipeline.book, "all", lambda: [replace(entry, state=Registered())])
    link = ask(replica, "SELECT n FROM orders")
    assert link.problem is not None
    assert (link.problem.code, link.problem.tables) == ("table_not_ready", (entry.table,))
    assert "public.orders is registered" in link.problem.detail
    other = ask(replica, "SELECT nothing FROM lines").problem
    assert other is not None
    assert other.code == "query_invalid"


@each_target
def test_rows_of_a_target_that_was_set_back_have_its_own_position(
    database: Database, replicate: Callable[..., Replica], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position that the run keeps in memory counts only for the record that the run itself has written."""
    _made(database)
    replica = replicate(database, [table("orders"), table("lines")])
    far = ask(replica, "SELECT id FROM lines").position.value + 10**9

    def position(applied: Applied) -> Lsn:
        monkeypatch.setattr(ReplicationRun, "applied", property(lambda _: applied))
        return ask(replica, "SELECT id FROM lines").position

    ahead = Applied(Lsn(far + 100), Lsn(far))
    recorded, found, again = Lsn(0), Lsn(0), None
    # The record is written again when the log of other databases has moved.
    while again != recorded:
        recorded = position(ahead)
        found = position(Applied(ahead.visible, recorded))
        again = position(ahead)
    assert recorded < ahead.written
    assert found == ahead.visible
