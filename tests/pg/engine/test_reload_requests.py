"""Reload requests that are sent again, or that a run leaves open: each is carried out once, and each gets its answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from engine.control.supervisor import SubscriptionSupervisor
from engine.copy.orchestrator import CopyOrchestrator
from engine.link.messages import ReloadReport
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.position import Lsn
from engine.model.subscription import SchemaPolicy
from engine.model.subscription_state import DesiredState
from engine.pipeline.run import ReplicationRun
from engine.tables.state import CatchingUp
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]


@pytest.fixture
def shop(database: Database) -> Database:
    for name in ("orders", "lines"):
        database.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, note text)")
        database.execute(f"INSERT INTO {name} SELECT i, 'n' FROM generate_series(1, 100) i")
    return database


class HeldCopies:
    """While `go` is not set, copies have a snapshot and read nothing."""

    def __init__(self) -> None:
        self.began, self.go = threading.Event(), threading.Event()
        self.go.set()


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldCopies]:
    held, real = HeldCopies(), CopyOrchestrator._copy_under

    def copy_under(desk: CopyOrchestrator, *rest: Any) -> None:
        held.began.set()
        while not held.go.wait(0.05) and not desk._ended():
            pass
        real(desk, *rest)

    monkeypatch.setattr(CopyOrchestrator, "_copy_under", copy_under)
    yield held
    held.go.set()


def hold(copies: HeldCopies) -> None:
    copies.began.clear()
    copies.go.clear()


def read_states(replica: Replica, request: str) -> list[str]:
    return [r.state for r in replica.reports.all() if isinstance(r, ReloadReport) and r.request_id == request]


def begin_held(replica: Replica, copies: HeldCopies, request: str, tables: list[TableId] | None) -> None:
    """Ask for a reload and return once its first copy is being read, and is held there."""
    hold(copies)
    replica.pipeline.reload(request, tables)
    assert copies.began.wait(20)


def test_a_reload_of_everything_that_is_told_again_goes_on(
    shop: Database, replicate: Replicate, copies: HeldCopies
) -> None:
    """As at each new connection to the server: another slot would begin all copies again."""
    replica = replicate(shop, [table("orders"), table("lines")])
    begin_held(replica, copies, "r1", None)
    run = replica.pipeline.run
    assert run is not None
    replica.pipeline.reload("r1", None)
    copies.go.set()
    assert replica.wait_reload("r1").state == "succeeded"
    assert replica.pipeline.run is run
    replica.wait_live()
    replica.assert_equal()
    assert read_states(replica, "r1").count("succeeded") == 1


def test_a_reload_of_everything_in_which_the_subscription_fails_ends_with_the_next(
    shop: Database, replicate: Replicate, copies: HeldCopies
) -> None:
    replica = replicate(shop, [table("orders"), table("lines")])
    begin_held(replica, copies, "r1", None)
    shop.execute(f'DROP PUBLICATION "{replica.spec.reader}"')
    assert replica.wait_state("failed").code == "publication_changed"
    assert read_states(replica, "r1")[-1] == "running"
    copies.go.set()
    replica.pipeline.reload("r2", None)
    assert replica.wait_reload("r2").state == "succeeded"
    assert replica.wait_reload("r1").state == "succeeded"
    replica.wait_live()
    replica.assert_equal()


def test_a_reload_that_is_requested_during_a_hand_over_is_made(
    shop: Database, replicate: Replicate, copies: HeldCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy that is handed over was read before."""
    real, go = CopyOrchestrator.committed, threading.Event()

    def late(desk: CopyOrchestrator, tables: Collection[TableId], position: Lsn) -> None:
        assert not tables or go.wait(60)
        real(desk, tables, position)

    monkeypatch.setattr(CopyOrchestrator, "committed", late)
    orders = table("orders")
    replica = replicate(shop, [orders])
    begin_held(replica, copies, "r1", [orders.table])
    go.set()
    replica.catch_up()
    assert "succeeded" not in read_states(replica, "r1")
    copies.go.set()
    assert replica.wait_reload("r1").rows == 100
    replica.wait_live()
    replica.assert_equal()


def test_a_reload_of_a_table_that_is_told_again_is_made_once(
    shop: Database, replicate: Replicate, copies: HeldCopies
) -> None:
    orders, lines = table("orders"), table("lines")
    replica = replicate(shop, [orders, lines])
    hold(copies)
    for _ in range(2):
        replica.pipeline.reload("r1", [orders.table, lines.table])
        assert copies.began.wait(20)
    copies.go.set()
    assert replica.wait_reload("r1").state == "succeeded"
    replica.catch_up()
    assert read_states(replica, "r1").count("succeeded") == 1


def test_a_reload_that_the_end_of_a_run_overtakes_is_made_in_the_next(
    shop: Database, replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = table("orders")
    replica = replicate(shop, [orders])
    ended = threading.Event()

    def too_late(*_: Any) -> None:
        ended.set()
        raise EngineFault(FaultKind.COPY_FAILED, "s", "the run ended")

    with monkeypatch.context() as patch:
        patch.setattr(ReplicationRun, "defer", too_late)
        run = replica.pipeline.run
        assert run is not None
        replica.pipeline.reload("r1", [orders.table])
        assert ended.wait(20)
        assert read_states(replica, "r1") == ["running"]
    run.stop()
    assert replica.wait_reload("r1").state == "succeeded"
    replica.wait_live()
    replica.assert_equal()


def test_a_reload_of_a_parked_table_that_a_run_leaves_open_goes_on_in_the_next(
    shop: Database, replicate: Replicate, copies: HeldCopies
) -> None:
    """The target's record says parked until some of the copy is there."""
    shop.execute("CREATE TABLE days (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    shop.execute("CREATE TABLE days_1 PARTITION OF days DEFAULT")
    days = table("days")
    replica = replicate(shop, [days, table("lines")], schema_changes=SchemaPolicy.ASK)
    shop.execute("ALTER TABLE days DETACH PARTITION days_1")
    replica.wait_table("days", "parked")
    replica.catch_up()
    begin_held(replica, copies, "r1", [days.table])
    run = replica.pipeline.run
    assert run is not None
    run.stop()
    copies.go.set()
    assert replica.wait_reload("r1").state == "succeeded"
    replica.wait_live()
    replica.assert_equal()


def refused_and_reloaded(shop: Database, replica: Replica) -> None:
    """The table parked with its old rows, which a new reload brings back in step."""
    assert replica.wait_table("orders", "parked").code == "table_copy_cancelled"
    shop.execute("DELETE FROM orders WHERE id <= 10")
    replica.catch_up()
    assert replica.query("SELECT count(*), max(note) FROM orders") == [(100, "n")]
    replica.pipeline.reload("r2", [replica.table_id("orders")])
    assert replica.wait_reload("r2").state == "succeeded"
    replica.wait_live()
    replica.assert_equal()


@pytest.mark.parametrize("when", ["while it is copied", "before its tables moved", "between two runs"])
def test_a_cancelled_reload_replaces_no_rows(
    shop: Database, replicate: Replicate, copies: HeldCopies, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    orders = table("orders")
    replica = replicate(shop, [orders, table("lines")])
    run = replica.pipeline.run
    assert run is not None
    hold(copies)
    if when == "before its tables moved":
        real = run.defer

        def cancelled_first(event: Any, tables: list[TableId]) -> None:
            if tables == [orders.table]:
                replica.pipeline.cancel_reload("r1")
            real(event, tables)

        monkeypatch.setattr(run, "defer", cancelled_first)
        replica.pipeline.reload("r1", [orders.table])
    else:
        replica.pipeline.reload("r1", [orders.table])
        assert copies.began.wait(20)
        shop.execute("UPDATE orders SET note = 'newer'")
        replica.catch_up()
        if when == "between two runs":
            replica.desire(DesiredState.PAUSED)
            replica.wait_state("paused")
        replica.pipeline.cancel_reload("r1")
        if when == "between two runs":
            replica.desire(DesiredState.RUNNING)
    shop.execute("UPDATE orders SET note = 'new'")
    copies.go.set()
    refused_and_reloaded(shop, replica)
    assert read_states(replica, "r1").count("succeeded") == 0


@pytest.mark.parametrize("when", ["at once", "while it starts", "once it copies"])
def test_a_reload_that_is_cancelled_while_no_engine_is_there_replaces_no_rows(
    shop: Database, replicate: Replicate, copies: HeldCopies, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The next engine continues the copy, and does not know of the reload."""
    orders = table("orders")
    replica = replicate(shop, [orders, table("lines")])
    begin_held(replica, copies, "r1", [orders.table])
    shop.execute("UPDATE orders SET note = 'newer'")
    replica.catch_up()
    copies.began.clear()
    if when == "while it starts":
        real = SubscriptionSupervisor._fill_book

        def cancelled_then(pipeline: SubscriptionSupervisor, *rest: Any) -> None:
            real(pipeline, *rest)
            pipeline.cancel_reload("r1", orders.table)

        monkeypatch.setattr(SubscriptionSupervisor, "_fill_book", cancelled_then)
    replica.restart()
    if when != "while it starts":
        assert when == "at once" or copies.began.wait(20)
        replica.pipeline.cancel_reload("r1", orders.table)
    shop.execute("UPDATE orders SET note = 'new'")
    copies.go.set()
    refused_and_reloaded(shop, replica)


def test_a_cancel_that_comes_late_ends_no_other_reload(
    shop: Database, replicate: Replicate, copies: HeldCopies
) -> None:
    orders = table("orders")
    replica = replicate(shop, [orders, table("lines")])
    begin_held(replica, copies, "r2", [orders.table])
    for request in ("r1", "r1"):
        replica.pipeline.cancel_reload(request, orders.table)
    copies.go.set()
    assert replica.wait_reload("r2").state == "succeeded"
    replica.pipeline.cancel_reload("r2", orders.table)
    replica.wait_live()
    replica.assert_equal()


def test_a_reload_is_cancelled_whose_copy_is_just_done(
    shop: Database, replicate: Replicate, copies: HeldCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = table("orders")
    replica = replicate(shop, [orders, table("lines")])
    run = replica.pipeline.run
    assert run is not None
    begin_held(replica, copies, "r1", [orders.table])
    shop.execute("UPDATE orders SET note = 'new'")
    replica.catch_up()
    book, done = run._parts.book, threading.Event()
    real = run._parts.parking.park

    def done_first(*what: Any, **more: Any) -> bool:
        if not done.is_set():
            done.set()
            copies.go.set()
            wait_until(
                lambda: (entry := book.get(orders.table)) is not None and isinstance(entry.state, CatchingUp), 20.0
            )
        return real(*what, **more)

    monkeypatch.setattr(run._parts.parking, "park", done_first)
    monkeypatch.setattr(run, "flush", lambda _: None)
    replica.pipeline.cancel_reload("r1")
    refused_and_reloaded(shop, replica)


@pytest.mark.parametrize("way", ["removed", "dropped"])
def test_a_reload_of_a_table_that_is_gone_by_the_next_run_has_failed(
    shop: Database, replicate: Replicate, copies: HeldCopies, way: str
) -> None:
    orders, lines = table("orders"), table("lines")
    replica = replicate(shop, [orders, lines])
    begin_held(replica, copies, "r1", [orders.table])
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    if way == "removed":
        replica.replace(lines)
    else:
        shop.execute("DROP TABLE orders")
    copies.go.set()
    replica.desire(DesiredState.RUNNING)
    assert _code(replica.wait_reload("r1")) == "table_missing"


def _code(report: ReloadReport) -> str | None:
    return report.problem.code if report.problem is not None else None
