"""Tables that are paused, parked, added or removed while something else of theirs is under way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.control.supervisor import SubscriptionSupervisor
from engine.copy import orchestrator as copying
from engine.copy.orchestrator import CopyOrchestrator
from engine.link.messages import (
    EventReport,
    ReloadReport,
    Report,
    SubscriptionStateReport,
    TableRenamed,
    TableStateReport,
)
from engine.model.fault import EngineFault
from engine.model.identity import TableId
from engine.model.subscription import SchemaPolicy, TableSpec
from engine.model.subscription_state import DesiredState
from engine.model.table_state import TableStateKind
from engine.pipeline.run import ReplicationRun
from engine.tables import start_point as startup
from engine.tables.state import AskResume
from tests.fixtures.local_runner import GatedRunner
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]

SHOP = """
CREATE TABLE orders (id bigint PRIMARY KEY, note text);
CREATE TABLE lines (id bigint PRIMARY KEY, note text);
CREATE TABLE more (id bigint PRIMARY KEY, note text);
INSERT INTO orders SELECT i, 'o' FROM generate_series(1, 100) i;
INSERT INTO lines SELECT i, 'l' FROM generate_series(1, 100) i;
INSERT INTO more SELECT i, 'm' FROM generate_series(1, 100) i;
"""


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    return database


def hold(gate: type[GatedRunner]) -> None:
    gate.reached.clear()
    gate.gate.clear()


def state(replica: Replica, name: str) -> str | None:
    return replica.states().get(name)


def passed(replica: Replica) -> None:
    """Several batches have been planned and committed."""
    for _ in range(3):
        replica.catch_up(timeout_s=15)


def test_pausing_a_table_while_it_is_copied_loses_nothing(
    shop: Database, replicate: Replicate, gate: type[GatedRunner]
) -> None:
    lines = table("lines")
    orders = table("orders")
    replica = replicate(shop, [lines])
    hold(gate)
    replica.replace(lines, orders)
    assert gate.reached.wait(20)
    shop.execute("INSERT INTO orders SELECT i, 'during the copy' FROM generate_series(1001, 1010) i")
    passed(replica)
    replica.replace(lines, replace(orders, paused=True))
    passed(replica)
    replica.replace(lines, orders)
    gate.gate.set()
    replica.wait_live("orders", timeout_s=20)
    replica.assert_equal()


def test_a_second_pause_behind_a_resume_loses_nothing(
    shop: Database, replicate: Replicate, gate: type[GatedRunner]
) -> None:
    orders, lines = table("orders"), table("lines")
    replica = replicate(shop, [orders, lines])
    replica.replace(replace(orders, paused=True), lines)
    replica.wait_table("orders", "paused")
    shop.execute("UPDATE orders SET note = 'while paused'")
    passed(replica)
    run = replica.pipeline.run
    assert run is not None
    # At once, as two requests that follow each other directly.
    run._between.put(lambda *_: (run._book.apply(orders.table, AskResume()), None)[1])
    run.pause(orders.table)
    passed(replica)
    shop.execute("UPDATE orders SET note = 'paused again' WHERE id < 10")
    passed(replica)
    assert replica.states()["orders"] == "paused"
    replica.replace(orders, lines)
    replica.wait_live("orders", timeout_s=20)
    replica.assert_equal()


def test_a_table_parked_while_it_is_copied_stays_parked(
    database: Database, replicate: Replicate, gate: type[GatedRunner]
) -> None:
    database.execute(SHOP)
    database.execute(
        "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100); CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (200);"
        "INSERT INTO p SELECT i, 'x' FROM generate_series(1, 150) i"
    )
    lines, parts = table("lines"), table("p")
    replica = replicate(database, [lines], schema_changes=SchemaPolicy.ASK)
    hold(gate)
    replica.replace(lines, parts)
    assert gate.reached.wait(20)
    threading.Event().wait(1.5)  # the guard's first reading of the partitions
    database.execute("ALTER TABLE p DETACH PARTITION p2")
    replica.wait_table("p", "parked", timeout_s=20)
    database.execute("DELETE FROM p WHERE id < 50")
    passed(replica)
    gate.gate.set()
    threading.Event().wait(3.0)
    passed(replica)
    target = replica.pipeline.target
    assert target is not None
    progress = target.progress(replica.spec.name)
    assert progress is not None
    record = progress.tables.get(parts.table)
    print("RECORD", record and (record.ready, record.parked), state(replica, "p"))
    internal = [r.detail for r in replica.reports.all() if isinstance(r, EventReport) and r.code == "internal"]
    assert state(replica, "p") == "parked", (record, internal)
    assert record is None or not record.ready or record.parked is not None
    assert not internal


def test_a_table_that_begins_anew_while_its_copy_ends_gets_live(
    shop: Database, replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last rows are being written when something calls for another copy: that one's end is not the other's."""
    orders = table("orders")
    replica = replicate(shop, [orders])
    book, parking = replica.pipeline.book, replica.pipeline._parking
    real, ended = CopyOrchestrator.on_table_copied, []

    def begins_anew() -> bool:
        entry = book.get(orders.table)
        return entry is not None and entry.kind is TableStateKind.RELOADING and entry.copy is None

    def late(desk: CopyOrchestrator, one: TableId, *rest: Any) -> None:
        if not ended:
            parking.park(one, "table_structure_changed", "it was found once more")
            replica.reports.wait(lambda _: begins_anew(), "to be copied anew", 20)
        ended.append(one)
        real(desk, one, *rest)

    monkeypatch.setattr(CopyOrchestrator, "on_table_copied", late)
    parking.park(orders.table, "table_structure_changed", "for a reason")
    replica.reports.wait(lambda _: len(ended) == 2, "copied twice", 20)
    replica.wait_live(timeout_s=20)
    shop.execute("UPDATE orders SET note = 'later'")
    replica.catch_up()
    replica.assert_equal()


def test_a_table_paused_before_its_copy_is_copied_when_it_resumes(
    shop: Database, replicate: Replicate, gate: type[GatedRunner]
) -> None:
    lines, orders, more = table("lines"), table("orders"), table("more")
    replica = replicate(shop, [lines])
    hold(gate)
    replica.replace(lines, orders)
    assert gate.reached.wait(20)
    replica.replace(lines, orders, more)
    replica.replace(lines, orders, replace(more, paused=True))
    replica.wait_table("more", "paused", timeout_s=20)
    passed(replica)
    replica.replace(lines, orders, more)
    passed(replica)
    early = state(replica, "more")
    gate.gate.set()
    assert early != "live"
    replica.wait_live(timeout_s=20)
    replica.assert_equal()


def test_a_table_added_while_the_subscription_starts_is_published(shop: Database, replicate: Replicate) -> None:
    lines, orders = table("lines"), table("orders")
    with shop.connect() as holder:
        holder.execute("BEGIN; CREATE TEMP TABLE x (a int); INSERT INTO x VALUES (1)")
        replica = replicate(shop, [lines], live=False)
        waiting = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s"
        for _ in range(200):
            if shop.execute(waiting, [replica.spec.reader])[0][0]:
                break
            threading.Event().wait(0.05)
        threading.Event().wait(0.5)
        assert replica.pipeline.run is None
        replica.replace(lines, orders)
        holder.execute("COMMIT")
    replica.wait_live(timeout_s=30)
    published = shop.execute("SELECT tablename FROM pg_publication_tables WHERE pubname = %s", [replica.spec.reader])
    shop.execute("INSERT INTO orders VALUES (5000, 'behind the copy')")
    replica.catch_up()
    assert ("orders",) in published
    assert replica.query("select count(*) from orders") == [(101,)]


def test_a_table_removed_before_its_copy_begins_leaves_copies_working(shop: Database, replicate: Replicate) -> None:
    lines, orders, more = table("lines"), table("orders"), table("more")
    replica = replicate(shop, [lines])
    with shop.connect() as holder:
        holder.execute("BEGIN; CREATE TEMP TABLE x (a int); INSERT INTO x VALUES (1)")
        replica.replace(lines, orders)
        replica.wait_table("orders", "copying", timeout_s=20)
        threading.Event().wait(1.0)
        replica.replace(lines)
        holder.execute("COMMIT")
    replica.replace(lines, more)
    replica.wait_live("more", timeout_s=15)
    assert replica.pipeline.book.get(orders.table) is None


def test_a_table_removed_while_its_name_is_taken_leaves_the_name_to_the_next(
    shop: Database, replicate: Replicate
) -> None:
    lines, orders = table("lines"), table("orders")
    replica = replicate(shop, [lines])
    target = replica.pipeline.target
    assert target is not None
    real = target.adopt
    adopted = threading.Event()

    def late(subscription: Any, one: TableId, *rest: Any, **options: Any) -> None:
        if one == orders.table:
            replica.replace(lines)
            shop.execute("UPDATE lines SET note = 'so that the removal is written'")
            passed(replica)
        real(subscription, one, *rest, **options)
        if one == orders.table:
            adopted.set()

    target.adopt = late  # type: ignore[method-assign]
    replica.replace(lines, orders)
    assert adopted.wait(20)
    other = replace(orders, table=TableId("tanother"))
    replica.replace(lines, other)
    replica.wait_live("orders", timeout_s=20)


def test_a_table_replaced_by_one_of_the_same_name_is_taken_up(shop: Database, replicate: Replicate) -> None:
    lines, orders = table("lines"), table("orders")
    replica = replicate(shop, [lines, orders])
    again = table("orders")
    replica.replace(lines, again)
    replica.reports.wait(
        lambda _: (
            (e := replica.pipeline.book.get(again.table)) is not None
            and e.kind in {TableStateKind.LIVE, TableStateKind.PARKED}
        ),
        "decided",
        20,
    )
    entry = replica.pipeline.book.get(again.table)
    assert entry is not None
    assert entry.kind is TableStateKind.LIVE, entry.reason


def test_a_table_removed_while_paused_can_be_added_again(shop: Database, replicate: Replicate) -> None:
    lines, orders = table("lines"), table("orders")
    replica = replicate(shop, [lines, orders])
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    replica.replace(lines)
    replica.desire(DesiredState.RUNNING)
    replica.wait_state("running")
    again = table("orders")
    replica.replace(lines, again)
    replica.reports.wait(
        lambda _: (
            (e := replica.pipeline.book.get(again.table)) is not None
            and e.kind in {TableStateKind.LIVE, TableStateKind.PARKED}
        ),
        "decided",
        20,
    )
    entry = replica.pipeline.book.get(again.table)
    assert entry is not None
    assert entry.kind is TableStateKind.LIVE, entry.reason


def test_a_table_without_identity_that_was_removed_while_paused_gives_up_its_name(
    shop: Database, replicate: Replicate
) -> None:
    """Its copy never began: the target has its name taken for it, and knows nothing else of it."""
    shop.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey")
    lines, orders = table("lines"), table("orders")
    replica = replicate(shop, [lines])
    replica.replace(lines, orders)
    assert replica.wait_table("orders", "parked", timeout_s=20).code == "table_no_identity"
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    replica.replace(lines)
    shop.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")
    again = table("orders")
    replica.replace(lines, again)
    replica.desire(DesiredState.RUNNING)

    def decided(reports: list[Report]) -> TableStateReport | None:
        own = [r for r in reports if isinstance(r, TableStateReport) and r.table == again.table]
        return own[-1] if own and own[-1].state in {"live", "parked"} else None

    last = replica.reports.wait(decided, "orders decided", 30)
    assert last.state == "live", last
    replica.assert_equal()


def test_a_table_removed_while_the_subscription_starts_does_not_come_back(
    shop: Database, replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, orders = table("lines"), table("orders")
    replica = replicate(shop, [lines, orders])
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    resumed_point = SubscriptionSupervisor._resumed_point
    told: list[int] = []

    def remove_behind(pipeline: SubscriptionSupervisor, *arguments: Any) -> Any:
        point = resumed_point(pipeline, *arguments)
        if not told:
            replica.replace(lines)
            told.append(len(replica.reports.all()))
        return point

    monkeypatch.setattr(SubscriptionSupervisor, "_resumed_point", remove_behind)
    replica.desire(DesiredState.RUNNING)
    replica.wait_state("running", timeout_s=20)
    assert replica.pipeline.book.get(orders.table) is None
    replica.wait_live(timeout_s=20)
    replica.assert_equal()
    later = [r for r in replica.reports.all()[told[0] :] if isinstance(r, TableStateReport)]
    assert [r for r in later if r.table == orders.table] == []


def test_a_whole_reload_copies_parked_tables_too(shop: Database, replicate: Replicate) -> None:
    lines, orders = table("lines"), table("orders")
    replica = replicate(shop, [lines, orders], schema_changes=SchemaPolicy.ASK)
    shop.execute("ALTER TABLE orders ALTER COLUMN note TYPE varchar(50); UPDATE orders SET note = 'y' WHERE id = 1")
    replica.wait_table("orders", "parked", timeout_s=20)
    replica.pipeline.reload("r1", None)
    replica.reports.wait(
        lambda reports: any(isinstance(r, ReloadReport) and r.state == "succeeded" for r in reports), "reloaded", 30
    )
    replica.wait_live(timeout_s=15)
    replica.assert_equal()


@pytest.mark.parametrize("way", ["removed", "parked"])
def test_a_reload_ends_when_its_table_does(
    shop: Database, replicate: Replicate, gate: type[GatedRunner], way: str
) -> None:
    lines, orders = table("lines"), table("orders")
    replica = replicate(shop, [lines, orders], schema_changes=SchemaPolicy.ASK)
    hold(gate)
    threading.Thread(target=lambda: replica.pipeline.reload("r1", [orders.table]), daemon=True).start()
    assert gate.reached.wait(20)
    if way == "removed":
        replica.replace(lines)
    else:
        replica.pipeline._parking.park(TableId(orders.table), "table_partitions_changed", "as the guard does")
    gate.gate.set()
    replica.reports.wait(
        lambda reports: any(isinstance(r, ReloadReport) and r.state not in {"running"} for r in reports), "ended", 10
    )


def test_a_table_renamed_while_its_copy_looks_for_it_is_not_missing(
    shop: Database, replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = table("orders")
    replica = replicate(shop, [orders])
    run = replica.pipeline.run
    assert run is not None
    copy_under, why_not_described = CopyOrchestrator._copy_under, copying.why_not_described
    missed: list[TableSpec] = []

    def rename_first(desk: CopyOrchestrator, snapshot: Any, entries: list[Any]) -> None:
        shop.execute("ALTER TABLE IF EXISTS orders RENAME TO sales")
        copy_under(desk, snapshot, entries)

    def look_behind(source: Any, spec: TableSpec) -> EngineFault:
        fault = why_not_described(source, spec)
        missed.append(spec)
        run.check_source()
        return fault

    monkeypatch.setattr(CopyOrchestrator, "_copy_under", rename_first)
    monkeypatch.setattr(copying, "why_not_described", look_behind)
    replica.pipeline.reload("r1", [orders.table])
    replica.reports.wait(
        lambda reports: any(isinstance(r, ReloadReport) and r.state != "running" for r in reports), "reloaded", 30
    )
    states = [r for r in replica.reports.all() if isinstance(r, TableStateReport)]
    assert ([spec.source for spec in missed], states[-1].name, states[-1].state) == ([orders.source], "sales", "live")
    assert [r for r in states if r.state == "parked"] == []


@pytest.fixture
def first_start(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Has something done at the next start only, when that has looked for gaps and has not published its tables yet."""

    def arrange(then: Callable[[], object]) -> None:
        check_gap = startup.check_gap

        def check_first(*arguments: Any) -> None:
            check_gap(*arguments)
            monkeypatch.setattr(startup, "check_gap", check_gap)
            then()

        monkeypatch.setattr(startup, "check_gap", check_first)

    return arrange


def test_a_table_renamed_while_its_subscription_starts_goes_on(
    shop: Database, replicate: Replicate, first_start: Callable[[Callable[[], object]], None]
) -> None:
    """It stays published under its new name, or the next start would find a gap."""
    orders = table("orders")
    replica = replicate(shop, [orders, table("lines")])
    first_start(lambda: shop.execute("ALTER TABLE orders RENAME TO sales; UPDATE sales SET note = 'x' WHERE id < 9"))
    seen = len(replica.reports.all())
    replica.restart()
    replica.reports.wait(lambda reports: any(isinstance(r, TableRenamed) for r in reports[seen:]), "renamed")
    replica.wait_state("running")
    replica.catch_up()
    assert replica.query("SELECT count(*) FROM orders WHERE note = 'x'") == [(8,)]
    replica.assert_equal()
    later = replica.reports.all()[seen:]
    assert {r.state for r in later if isinstance(r, TableStateReport) and r.table == orders.table} == {"live"}
    assert "failed" not in [r.state for r in later if isinstance(r, SubscriptionStateReport)]


def test_a_table_parked_by_a_run_without_a_batch_is_copied_by_the_next(
    shop: Database,
    replicate: Replicate,
    first_start: Callable[[Callable[[], object]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first start finds it without identity and publishes it no more; that it parked then is not forgotten with its run."""
    replica = replicate(shop, [table("orders"), table("lines")])
    execute = ReplicationRun.execute

    def end_at_once(run: ReplicationRun) -> None:
        monkeypatch.setattr(ReplicationRun, "execute", execute)
        run.stop()
        execute(run)
        shop.execute("UPDATE orders SET note = 'not published' WHERE id < 9; ALTER TABLE orders ADD PRIMARY KEY (id)")

    monkeypatch.setattr(ReplicationRun, "execute", end_at_once)
    first_start(lambda: shop.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey"))
    seen = len(replica.reports.all())
    replica.restart()
    replica.reports.wait(
        lambda reports: any(isinstance(r, TableStateReport) and r.state == "reloading" for r in reports[seen:]),
        "copied anew",
    )
    replica.wait_live()
    replica.assert_equal()


def test_a_table_that_gets_the_name_of_one_whose_copy_begins_is_published_first(
    shop: Database, replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = table("orders")
    replica = replicate(shop, [orders])
    copy_under = CopyOrchestrator._copy_under
    exchanged: list[bool] = []

    def exchange_first(desk: CopyOrchestrator, snapshot: Any, entries: list[Any]) -> None:
        if not exchanged:
            exchanged.append(True)
            shop.execute(
                "BEGIN; ALTER TABLE orders RENAME TO o; ALTER TABLE lines RENAME TO orders; ALTER TABLE o RENAME TO lines; COMMIT"
            )
        copy_under(desk, snapshot, entries)
        shop.execute("INSERT INTO orders SELECT coalesce(max(id), 0) + 1, 'behind the snapshot' FROM orders")

    monkeypatch.setattr(CopyOrchestrator, "_copy_under", exchange_first)
    replica.pipeline.reload("r1", [orders.table])
    replica.reports.wait(
        lambda reports: any(isinstance(r, ReloadReport) and r.state != "running" for r in reports), "reloaded", 30
    )
    replica.wait_live(timeout_s=20)
    replica.assert_equal()
    states = [r.state for r in replica.reports.all() if isinstance(r, SubscriptionStateReport)]
    assert "failed" not in states


def test_a_whole_reload_asked_for_while_the_subscription_starts_is_made(shop: Database, replicate: Replicate) -> None:
    """The request comes when the start has read `_reset` already, and its run does not exist yet."""
    from engine.control import supervisor as module

    lines = table("lines")
    replica = replicate(shop, [lines])
    slot_before = shop.execute(
        "SELECT restart_lsn, confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s", [replica.spec.reader]
    )
    assert slot_before
    entered, go = threading.Event(), threading.Event()
    real = module.SubscriptionSupervisor._fill_book

    def slow(self: Any, *arguments: Any) -> None:
        real(self, *arguments)
        entered.set()
        assert go.wait(20)

    patch = pytest.MonkeyPatch()
    try:
        patch.setattr(module.SubscriptionSupervisor, "_fill_book", slow)
        replica.pipeline.close()
        replica._targets.close_all()
        replica._start()
        assert entered.wait(20)
        replica.pipeline.reload("r1", None)
        go.set()
        replica.reports.wait(
            lambda reports: any(isinstance(r, ReloadReport) and r.state == "succeeded" for r in reports), "reloaded", 15
        )
    finally:
        go.set()
        patch.undo()


def test_a_removal_during_a_commit_is_written(shop: Database, replicate: Replicate) -> None:
    lines, orders = table("lines"), table("orders")
    replica = replicate(shop, [lines, orders])
    target, run = replica.pipeline.target, replica.pipeline.run
    assert target is not None
    assert run is not None
    inside, removed = threading.Event(), threading.Event()
    real = target.commit

    def slow(batch: Any) -> Any:
        if batch.tables and not inside.is_set():
            inside.set()
            assert removed.wait(20)
        return real(batch)

    target.commit = slow  # type: ignore[method-assign]
    shop.execute("UPDATE lines SET note = 'x'")
    assert inside.wait(20)
    replica.replace(lines)
    removed.set()
    passed(replica)
    shop.execute("UPDATE lines SET note = 'y'")
    passed(replica)
    progress = target.progress(replica.spec.name)
    assert progress is not None
    assert orders.table not in progress.tables


def test_a_table_that_others_inherit_from_is_added(shop: Database, replicate: Replicate) -> None:
    shop.execute(
        "CREATE TABLE lines_child (PRIMARY KEY (id)) INHERITS (lines); INSERT INTO lines_child VALUES (1, 'c')"
    )
    orders, lines, child = table("orders"), table("lines"), table("lines_child")
    replica = replicate(shop, [orders])
    replica.replace(orders, lines)
    replica.wait_live()
    shop.execute("UPDATE lines SET note = 'changed'; UPDATE orders SET note = 'changed'")
    replica.assert_equal()
    replica.replace(orders, lines, child)
    replica.wait_live()
    shop.execute("UPDATE lines SET note = 'changed again'")
    replica.assert_equal()
    replica.replace(orders, child)
    shop.execute("UPDATE lines SET note = 'and again'; UPDATE orders SET note = 'and again'")
    replica.assert_equal()
    assert replica.query("SELECT DISTINCT note FROM lines_child") == [("and again",)]
    assert [r for r in replica.reports.all() if isinstance(r, EventReport) and r.severity != "info"] == []
