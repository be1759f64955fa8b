"""Changes of structure that a target follows, asks about or ignores, while the subscription runs and while it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from engine.link.messages import EventReport, Report, SchemaVersion, TableRenamed, TableStateReport
from engine.model.schema import Column
from engine.model.subscription import SchemaPolicy
from engine.model.subscription_state import DesiredState
from engine.pipeline.commit import CommitStage
from engine.targets import structure_text
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]

SHOP = """
CREATE TABLE orders (id int PRIMARY KEY, note text);
CREATE TABLE lines (n int PRIMARY KEY, sku text);
INSERT INTO orders SELECT i, 'x' FROM generate_series(1, 500) i;
INSERT INTO lines SELECT i, 'x' FROM generate_series(1, 50) i;
"""


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    return database


@contextmanager
def stopped(replica: Replica) -> Iterator[None]:
    replica.desire(DesiredState.STOPPED)
    replica.wait_state("stopped")
    yield
    replica.desire(DesiredState.RUNNING)
    replica.wait_state("running")


def states(replica: Replica, name: str) -> list[tuple[str, str | None]]:
    """State and code of a table, each once."""
    found = [
        (r.state, r.code)
        for r in replica.reports.all()
        if isinstance(r, TableStateReport) and r.table == replica.table_id(name)
    ]
    return [one for i, one in enumerate(found) if i == 0 or one != found[i - 1]]


def changes(replica: Replica, name: str) -> list[tuple[str, tuple[str, ...]]]:
    """How each structure after the copy was learnt, and what was different."""
    own = [r for r in replica.reports.all() if isinstance(r, SchemaVersion) and r.table == replica.table_id(name)]
    return [(r.learnt, r.changes) for r in own if r.changes]


def test_a_type_that_needs_a_new_copy_gets_one_and_the_others_go_on(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders"), table("lines")])
    shop.execute("ALTER TABLE orders ALTER note TYPE varchar(50) USING note || note")
    shop.execute("UPDATE orders SET note = 'y' WHERE id = 1; UPDATE lines SET sku = 'y' WHERE n = 1")
    replica.catch_up()
    assert ("reloading", "table_structure_changed") in states(replica, "orders")
    replica.wait_live()
    replica.assert_equal()
    assert "parked" not in {state for state, _ in states(replica, "orders")}
    assert {state for state, _ in states(replica, "lines")} == {"registered", "copying", "catching_up", "live"}
    assert replica.query("SELECT DISTINCT note FROM orders ORDER BY 1") == [("xx",), ("y",)]


def test_a_type_changed_while_nobody_looked(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders"), table("lines")])
    with stopped(replica):
        shop.execute("ALTER TABLE orders ALTER note TYPE text USING note || 'z', ADD COLUMN n int DEFAULT 3")
    replica.reports.wait(
        lambda _: ("reloading", "table_structure_changed") in states(replica, "orders"), "orders copied anew"
    )
    replica.wait_live()
    replica.assert_equal()
    assert replica.query("SELECT DISTINCT note, n FROM orders") == [("xz", 3)]


def test_a_structure_that_nobody_told_is_told_at_the_next_start(
    shop: Database, replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where an engine is killed between a commit and its report."""
    replica = replicate(shop, [table("orders"), table("lines")])
    with monkeypatch.context() as patch:
        patch.setattr(CommitStage, "_tell_structures", lambda *_: None)
        shop.execute("ALTER TABLE orders ADD COLUMN n int; INSERT INTO orders VALUES (501, 'y', 1)")
        replica.catch_up()
    replica.restart()

    def read_structures(reports: list[Report]) -> list[tuple[str, list[str]]]:
        own = [r for r in reports if isinstance(r, SchemaVersion) and r.table == replica.table_id("orders")]
        return [(r.learnt, [c.name for c in r.columns]) for r in own]

    replica.reports.wait(lambda reports: read_structures(reports)[-1][0] == "target", "it is told")
    assert read_structures(replica.reports.all())[-1] == ("target", ["id", "note", "n"])


def test_a_change_that_no_row_came_behind_is_seen_in_the_catalog(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders"), table("lines")])
    shop.execute("ALTER TABLE orders ADD COLUMN n int NOT NULL DEFAULT 5; ALTER TABLE orders RENAME note TO words")
    replica.reports.wait(lambda _: changes(replica, "orders"), "a structure")
    assert changes(replica, "orders") == [("catalog", ("column note is named words now", "column n was added"))]
    assert replica.query("SELECT words, n FROM orders WHERE id = 7") == [("x", 5)]
    shop.execute("UPDATE orders SET n = id WHERE id < 10")
    replica.assert_equal()
    assert [how for how, _ in changes(replica, "orders")] == ["catalog"]
    assert {state for state, _ in states(replica, "orders")} == {"registered", "copying", "catching_up", "live"}


def test_a_value_of_an_enum_is_known_from_when_it_came(shop: Database, replicate: Replicate) -> None:
    shop.execute("CREATE TYPE mood AS ENUM ('sad'); ALTER TABLE orders ADD COLUMN m mood DEFAULT 'sad'")
    replica = replicate(shop, [table("orders")])
    shop.execute("ALTER TYPE mood ADD VALUE 'calm'")
    orders = replica.table_id("orders")

    def labels() -> tuple[str, ...]:
        entry = replica.pipeline.book.get(orders)
        return () if entry is None or entry.schema is None else entry.schema.column("m").labels

    wait_until(lambda: labels() == ("sad", "calm"), 20)
    shop.execute("UPDATE orders SET m = 'calm' WHERE id = 1")
    replica.catch_up()
    assert changes(replica, "orders") == []
    shop.execute("ALTER TYPE mood RENAME VALUE 'calm' TO 'quiet'")
    anew = ("reloading", "table_structure_changed")
    replica.reports.wait(lambda _: anew in states(replica, "orders"), "a new copy")
    replica.wait_live()
    replica.assert_equal()
    assert replica.query("SELECT m FROM orders WHERE id = 1") == [("quiet",)]


def test_what_an_earlier_version_did_not_look_at_is_learnt_and_no_reason_to_copy(
    shop: Database, replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.execute("CREATE TYPE mood AS ENUM ('sad'); CREATE TYPE felt AS (m mood); CREATE DOMAIN moods AS mood[]")
    shop.execute("ALTER TABLE orders ADD COLUMN m mood DEFAULT 'sad', ADD COLUMN f felt DEFAULT '(sad)'")
    shop.execute("ALTER TABLE lines ADD COLUMN m moods DEFAULT '{sad}'")
    whole, stored = structure_text._column, set[str]()

    def before(column: Column) -> dict[str, Any]:
        written = whole(column)
        del written["label_editions"]
        stored.add(column.name)
        labels = written["labels"] if column.type.category == "e" else [x for x in written["labels"] if ": " in x]
        return written | {"labels": labels}

    with monkeypatch.context() as patched:
        patched.setattr(structure_text, "_column", before)
        replica = replicate(shop, [table("orders"), table("lines")])
        replica.pipeline.close()
    assert {"m", "f"} <= stored
    ends = len(replica.reports.all())
    replica.restart()
    replica.wait_state("running")

    def known() -> int:
        found = [replica.pipeline.book.get(replica.table_id(name)) for name in ("orders", "lines")]
        return sum(bool(c.label_editions) for e in found if e is not None and e.schema for c in e.schema.columns)

    wait_until(lambda: known() == 3, 20)
    shop.execute("INSERT INTO orders VALUES (1000, 'x'); INSERT INTO lines VALUES (1000, 'x')")
    replica.assert_equal()
    since = [r for r in replica.reports.all()[ends:] if isinstance(r, TableStateReport)]
    assert {r.state for r in since} <= {"live"}
    shop.execute("ALTER TYPE mood RENAME VALUE 'sad' TO 'down'")
    for name in ("orders", "lines"):
        replica.reports.wait(
            lambda _, name=name: ("reloading", "table_structure_changed") in states(replica, name), name
        )
    replica.wait_live()
    replica.assert_equal()


def test_values_that_no_log_and_no_catalog_tell_of_are_copied(shop: Database, replicate: Replicate) -> None:
    shop.execute(
        "CREATE TABLE days (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);"
        "CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM (0) TO (10); INSERT INTO days VALUES (1, 1), (2, 2)"
    )
    replica = replicate(shop, [table("orders"), table("lines"), table("days")])
    shop.execute("ALTER TABLE orders ADD COLUMN r double precision DEFAULT random()")
    shop.execute("ALTER TABLE lines ALTER n TYPE int USING n + 1000")
    shop.execute("ALTER TABLE days ADD COLUMN r double precision DEFAULT random()")
    for name in ("orders", "lines", "days"):
        replica.reports.wait(
            lambda _, name=name: "reloading" in [s for s, _ in states(replica, name)], f"{name} copied anew"
        )
    replica.wait_live()
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM orders WHERE r IS NULL") == [(0,)]
    assert replica.query("SELECT min(n) FROM lines") == [(1001,)]


def test_a_dropped_table_parks_and_one_of_its_name_is_copied(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders"), table("lines")])
    shop.execute("DROP TABLE lines")
    assert replica.wait_table("lines", "parked").code == "table_missing"
    shop.execute("CREATE TABLE lines (sku text PRIMARY KEY, price numeric(8, 2)); INSERT INTO lines VALUES ('a', 1.5)")
    replica.wait_table("lines", "live")
    replica.assert_equal()
    shop.execute("DROP TABLE lines")
    replica.wait_table("lines", "parked")
    with stopped(replica):
        shop.execute("CREATE TABLE lines (n int PRIMARY KEY); INSERT INTO lines VALUES (1), (2)")
    replica.wait_table("lines", "live")
    replica.assert_equal()


def test_a_table_that_loses_its_key_stays_usable_and_is_copied_when_it_has_one(
    shop: Database, replicate: Replicate
) -> None:
    replica = replicate(shop, [table("orders"), table("lines")])
    shop.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey")

    def usable() -> bool:
        try:
            shop.execute("UPDATE orders SET note = 'still mine' WHERE id = 1")
        except psycopg.errors.ObjectNotInPrerequisiteState:
            return False
        return True

    wait_until(usable)
    parked = replica.wait_table("orders", "parked")
    assert parked.code == "table_no_identity"
    shop.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")
    replica.wait_table("orders", "reloading")
    replica.wait_live()
    shop.execute("UPDATE orders SET note = 'followed' WHERE id = 2")
    replica.catch_up()
    replica.assert_equal()
    assert {state for state, _ in states(replica, "lines")} == {"registered", "copying", "catching_up", "live"}


def test_a_paused_table_that_loses_its_key_stays_usable_and_is_copied_when_it_is_resumed(
    shop: Database, replicate: Replicate
) -> None:
    """What was changed meanwhile was not published: the kept changes alone would leave it out."""
    orders, lines = table("orders"), table("lines")
    replica = replicate(shop, [orders, lines])

    def reload_lines(number: int) -> None:
        replica.pipeline.reload(f"r{number}", [lines.table])
        again = ["reloading", "catching_up", "live"] * number
        replica.reports.wait(lambda _: [s for s, _ in states(replica, "lines")][-len(again) :] == again, "reloaded")

    replica.replace(replace(orders, paused=True), lines)
    replica.wait_table("orders", "paused")
    shop.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey")
    reload_lines(1)
    assert replica.wait_table("orders", "parked").code == "table_no_identity"
    shop.execute("UPDATE orders SET note = 'not published' WHERE id = 1")
    shop.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")
    reload_lines(2)
    replica.replace(orders, lines)
    replica.wait_table("orders", "live")
    shop.execute("UPDATE orders SET note = 'followed' WHERE id = 2")
    replica.catch_up()
    replica.assert_equal()


@pytest.mark.parametrize("when", ["running", "stopped"])
def test_a_renamed_table_goes_on_in_its_place(shop: Database, replicate: Replicate, when: str) -> None:
    replica = replicate(shop, [table("orders"), table("lines")])
    rename = "CREATE SCHEMA old; ALTER TABLE orders RENAME TO bills; ALTER TABLE bills SET SCHEMA old"
    if when == "stopped":
        with stopped(replica):
            shop.execute(rename)
    else:
        shop.execute(rename)
    renamed = replica.reports.wait(
        lambda reports: [r for r in reports if isinstance(r, TableRenamed)], "the new name reported"
    )
    assert {(r.table, r.schema_name, r.name) for r in renamed} == {(replica.table_id("orders"), "old", "bills")}
    shop.execute("UPDATE old.bills SET note = 'y' WHERE id = 2; DELETE FROM old.bills WHERE id > 400")
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM orders WHERE note = 'y'") == [(1,)]
    assert ("reloading", None) not in states(replica, "orders")
    replica.pipeline.reload("r1", [replica.table_id("orders")])
    replica.reports.wait(
        lambda _: states(replica, "orders")[-2:] == [("catching_up", None), ("live", None)], "reloaded"
    )
    replica.restart()
    replica.wait_state("running")
    replica.assert_equal()
    assert not {r.code for r in replica.reports.all() if isinstance(r, EventReport)} & {
        "internal",
        "publication_changed",
    }


def test_a_table_that_gets_the_name_of_another_while_nobody_looks_is_missing_under_its_own(
    shop: Database, replicate: Replicate
) -> None:
    """The table that now has the name counts; and one that exists again without an identity is no longer reported as missing."""
    shop.execute("CREATE TABLE gone (id int PRIMARY KEY)")
    replica = replicate(shop, [table("orders"), table("lines"), table("gone")])
    with stopped(replica):
        shop.execute("DROP TABLE orders, gone; ALTER TABLE lines RENAME TO orders")
    assert replica.wait_table("lines", "parked").code == replica.wait_table("gone", "parked").code == "table_missing"
    replica.wait_table("orders", "live")
    replica.catch_up()
    with stopped(replica):
        shop.execute("CREATE TABLE gone (id int)")
    without = ("parked", "table_no_identity")
    replica.reports.wait(lambda _: states(replica, "gone")[-1] == without, "without identity")
    replica.wait_table("orders", "live")
    replica.catch_up()
    assert [verdict for verdict in replica.verify() if not verdict.equal] == []
    assert not [report for report in replica.reports.all() if isinstance(report, TableRenamed)]


def test_a_name_that_another_table_took_is_kept_when_that_tables_own_becomes_free(
    shop: Database, replicate: Replicate
) -> None:
    """Names exchanged, and what got the first one cannot be followed: it parks, and does not go over to the other name later."""
    replica = replicate(shop, [table("orders"), table("lines")])
    with stopped(replica):
        shop.execute(
            "ALTER TABLE orders RENAME TO x; ALTER TABLE lines RENAME TO orders; ALTER TABLE x RENAME TO lines"
        )
        shop.execute("ALTER TABLE orders DROP CONSTRAINT lines_pkey")
    assert replica.wait_table("orders", "parked").code == "table_no_identity"
    with stopped(replica):
        replica.replace(replica.spec.tables[0])
    replica.catch_up()
    assert replica.states()["orders"] == "parked"
    shop.execute("ALTER TABLE orders ADD PRIMARY KEY (n)")
    replica.wait_table("orders", "live")
    replica.assert_equal()
    assert not [report for report in replica.reports.all() if isinstance(report, TableRenamed)]


def held(replica: Replica, name: str, words: str) -> TableStateReport:
    """The table waits for approval of this."""

    def last(reports: list[Report]) -> TableStateReport | None:
        own = [r for r in reports if isinstance(r, TableStateReport) and r.name == name]
        waits = own[-1].code == "schema_change_waiting" and words in (own[-1].reason or "")
        return own[-1] if waits else None

    return replica.reports.wait(last, f"{name} waits with {words}")


@pytest.mark.parametrize("target_kind", ["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)])
def test_a_change_waits_for_approval_and_what_comes_meanwhile_is_kept(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders"), table("lines")], schema_changes=SchemaPolicy.ASK)
    shop.execute("UPDATE orders SET note = 'before' WHERE id = 1")
    shop.execute("ALTER TABLE orders ADD COLUMN n int DEFAULT 5; UPDATE orders SET n = 7 WHERE id = 2")
    first = held(replica, "orders", "column n was added")
    assert (first.state, "ADD COLUMN" in (first.reason or ""), "approvals" in (first.remedy or "")) == (
        "parked",
        True,
        True,
    )
    replica.catch_up()
    shop.execute("ALTER TABLE orders RENAME note TO words; UPDATE orders SET words = 'after' WHERE id = 3")
    second = held(replica, "orders", "column note is named words now")
    assert "column n was added" in (second.reason or "")
    shop.execute("UPDATE lines SET sku = 'goes on' WHERE n = 1")
    replica.catch_up()
    assert replica.query("SELECT count(*) FROM lines WHERE sku = 'goes on'") == [(1,)]
    # A reader sees the table as it was before the change.
    assert replica.query("SELECT DISTINCT note FROM orders WHERE id < 4 ORDER BY 1") in (
        [("before",), ("x",)],
        [("x",)],
    )
    replica.pipeline.approve(replica.table_id("orders"), first.reason)
    assert any(isinstance(r, EventReport) and r.code == "approval_outdated" for r in replica.reports.all())
    replica.pipeline.approve(replica.table_id("orders"), second.reason)
    replica.wait_table("orders", "live")
    replica.assert_equal()
    assert [state for state, _ in states(replica, "orders") if state in {"copying", "reloading"}] == ["copying"]
    assert replica.query("SELECT words, n FROM orders WHERE id IN (1, 2, 3) ORDER BY id") == [
        ("before", 5),
        ("x", 7),
        ("after", 5),
    ]


def test_what_waits_over_a_restart_is_copied_when_it_is_approved(shop: Database, replicate: Replicate) -> None:
    replica = replicate(shop, [table("orders"), table("lines")], schema_changes=SchemaPolicy.ASK)
    shop.execute("ALTER TABLE orders ADD COLUMN n int DEFAULT 5")
    held(replica, "orders", "column n was added")
    replica.catch_up()
    replica.restart()
    replica.wait_live("lines")
    replica.reports.wait(
        lambda _: states(replica, "orders")[-1] == ("parked", "schema_change_waiting"), "it waits again"
    )
    shop.execute("UPDATE orders SET n = 8 WHERE id = 8")
    replica.catch_up()
    replica.pipeline.approve(replica.table_id("orders"))
    replica.wait_table("orders", "live")
    replica.assert_equal()


@pytest.mark.parametrize("target_kind", ["duckdb", "postgres"])
def test_a_target_that_ignores_changes_keeps_its_columns(shop: Database, replicate: Replicate) -> None:
    shop.execute("ALTER TABLE orders ADD COLUMN code varchar(5)")
    replica = replicate(shop, [table("orders"), table("lines")], schema_changes=SchemaPolicy.IGNORE)
    shop.execute("ALTER TABLE orders ADD COLUMN n int DEFAULT 5, ALTER code TYPE varchar(20)")
    shop.execute("UPDATE orders SET code = 'longer than five', n = 6 WHERE id = 1")
    replica.catch_up()
    shop.execute("ALTER TABLE orders RENAME note TO words; UPDATE orders SET words = 'renamed' WHERE id = 2")
    replica.catch_up()
    shop.execute("ALTER TABLE orders DROP COLUMN words; INSERT INTO orders VALUES (1000, 'new')")
    replica.catch_up()
    assert replica.query("SELECT * FROM orders WHERE id IN (1, 2, 3, 1000) ORDER BY id") == [
        (1, "x", "longer than five"),
        (2, "renamed", None),
        (3, "x", None),
        (1000, None, "new"),
    ]
    assert replica.states() == {"orders": "live", "lines": "live"}
    replica.assert_equal()
    shop.execute("ALTER TABLE orders RENAME code TO ref; UPDATE orders SET ref = 'other name' WHERE id = 3")
    replica.assert_equal()
    shop.execute("ALTER TABLE orders RENAME ref TO code")
    replica.restart()
    replica.wait_state("running")
    replica.assert_equal()
    shop.execute("UPDATE orders SET code = 'again' WHERE id = 1000")
    replica.catch_up()
    assert replica.query("SELECT * FROM orders WHERE id = 1000") == [(1000, None, "again")]
    shop.execute("ALTER TABLE orders ALTER id TYPE bigint; INSERT INTO orders VALUES (5000000000, 'no room')")
    assert replica.wait_table("orders", "parked").code == "table_structure_changed"
