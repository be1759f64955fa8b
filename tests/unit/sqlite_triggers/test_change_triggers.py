"""Triggers of a file are shown, planned, installed and removed; what is shown is what runs."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.control.change_triggers import answer_change_triggers
from engine.link.change_triggers import ChangeTriggers
from engine.model.change_triggers import ChangeTriggersState, commented
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.subscription import ConnectionSpec, TableSpec
from engine.sources.sqlite_triggers.objects import DOUBTFUL, LAYOUT
from engine.sources.sqlite_triggers.source import SqliteSource

SHOP = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT UNIQUE, paid);
CREATE TABLE "it's" (a TEXT, b INT, PRIMARY KEY (a, b)) WITHOUT ROWID;
CREATE TABLE notes (line TEXT);
CREATE TABLE odd (id INTEGER PRIMARY KEY, v TEXT);
CREATE UNIQUE INDEX lower_v ON odd (lower(v));
CREATE TRIGGER own AFTER INSERT ON orders BEGIN UPDATE orders SET paid = 0 WHERE id = NEW.id; END;
INSERT INTO orders (id, name) VALUES (1, 'one');
"""
ORDERS, IT, NOTES, ODD = (TableName("main", name) for name in ("orders", "it's", "notes", "odd"))
WANTED = (ORDERS, IT, NOTES)


class Shop:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = SqliteSource(ConnectionSpec("shop", "sqlite", {"path": str(path)}))
        self.triggers = self.source.triggers

    def run(self, script: str) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.executescript(script)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(query).fetchall()

    def schema(self) -> list[tuple[Any, ...]]:
        return self.rows("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY rowid")

    def follow(self, *names: TableName) -> None:
        self.source.sent_tables.prepare([spec(name) for name in names], "reader")
        with self.source.reader.create("reader"):
            pass


def spec(name: TableName) -> TableSpec:
    return TableSpec(TableId("t1"), name, name)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path / "shop.db")
    made.run(SHOP)
    return made


def test_the_plan_is_what_installing_runs(shop: Shop, tmp_path: Path) -> None:
    plan = shop.triggers.plan(WANTED)
    assert shop.triggers.status() == ChangeTriggersState(
        False, None, False, (), tuple(s.sql for s in shop.triggers.plan(())), ()
    )
    by_hand, by_subscription = Shop(tmp_path / "by_hand.db"), Shop(tmp_path / "by_subscription.db")
    for other in (by_hand, by_subscription):
        shutil.copy(shop.path, other.path)
    by_hand.run(";".join(statement.sql for statement in plan))
    shop.triggers.install(WANTED)
    by_subscription.source.sent_tables.prepare([spec(name) for name in WANTED], "reader")
    tables = "SELECT t.relation, t.name, t.place, s.* FROM penstock_tables t JOIN penstock_structures s USING (structure) ORDER BY 1"
    for one in (shop, by_hand, by_subscription):
        assert one.schema() == by_hand.schema()
        assert one.rows(tables) == by_hand.rows(tables)
        assert one.triggers.plan(WANTED) == ()
        state = one.triggers.status()
        assert (state.installed, state.version, state.current, state.install_sql) == (True, LAYOUT, True, ())
        assert [(t.table, t.variant, t.current) for t in state.tables] == [
            (IT, "rows", True),
            (NOTES, "inserts", True),
            (ORDERS, "rows", True),
        ]
    assert all(statement.lock and statement.cost for statement in plan)
    assert [statement.sql for statement in (plan[0], plan[-1])] == ["BEGIN IMMEDIATE", "COMMIT"]


def test_checks_show_what_a_subscription_would_run(shop: Shop) -> None:
    def shown() -> dict[str, tuple[str, ...]]:
        found = shop.source.preflight([spec(name) for name in WANTED], None)
        return {finding.code: finding.sql for finding in found if finding.code.startswith("change_triggers_")}

    plan = shop.triggers.plan(WANTED)
    assert shown() == {"change_triggers_absent": commented(plan)}
    (script,) = shown().values()
    assert [text.splitlines()[-1] for text in script] == [statement.sql for statement in plan]
    assert script[0].splitlines()[:2] == [f"-- locks: {plan[0].lock}", f"-- cost: {plan[0].cost}"]
    assert script[2] == plan[2].sql, "locks and cost are those of the statement before"
    shop.triggers.install([ORDERS])
    assert shown() == {"change_triggers_planned": commented(shop.triggers.plan(WANTED))}
    shop.run(";\n".join(shown()["change_triggers_planned"]))
    assert shown() == {}


FIRST_LAYOUT = """
DROP INDEX penstock_doubts;
CREATE INDEX penstock_doubts ON penstock_changes (no) WHERE op IN ('d', 'i', 'u', 'e');
UPDATE penstock_state SET layout = 1;
"""


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_first_layout_is_upgraded_and_keeps_what_was_recorded(shop: Shop, *, by_hand: bool) -> None:
    shop.triggers.install(WANTED)
    shop.follow(*WANTED)
    everything = sorted(shop.schema(), key=str)
    shop.run(FIRST_LAYOUT)
    shop.run("REPLACE INTO orders (id, name) VALUES (1, 'two')")
    recorded = shop.rows("SELECT * FROM penstock_changes")
    assert "d" in {row[2] for row in recorded}
    (found,) = [f for f in shop.source.preflight([spec(ORDERS)], None) if f.code.startswith("change_triggers_")]
    assert (found.code, found.what) == (
        "change_triggers_planned",
        "an index of penstock_changes will be created in the file",
    )
    state = shop.triggers.status()
    assert (state.version, state.current, len(state.install_sql)) == (1, False, 5)
    if by_hand:
        shop.run(";".join(state.install_sql))
        assert shop.rows("SELECT * FROM penstock_changes") == recorded
    else:
        shop.source.sent_tables.prepare([spec(ORDERS)], "reader")
    state = shop.triggers.status()
    assert (state.version, state.current, state.install_sql) == (LAYOUT, True, ())
    without_view = [row for row in sorted(shop.schema(), key=str) if row[0] != "view"]
    assert without_view == [row for row in everything if row[0] != "view"]
    left = shop.rows(f"SELECT count(*) FROM penstock_changes WHERE {DOUBTFUL}")[0][0]
    assert bool(left) is by_hand, "preparing a reader closes a window, which settles them"


def test_recording_builds_no_temporary_table_and_doubts_are_found_by_their_index(shop: Shop) -> None:
    shop.triggers.install(WANTED)
    for write in ("UPDATE orders SET paid = 1", "INSERT INTO orders VALUES (9, 'x', 0)", "DELETE FROM orders"):
        operations = [row[1] for row in shop.rows(f"EXPLAIN {write}")]
        of_triggers = operations[operations.index("Init", 1) :]
        assert "Insert" in of_triggers
        assert "OpenEphemeral" not in of_triggers
    plan = shop.rows(f"EXPLAIN QUERY PLAN SELECT no FROM penstock_changes AS c WHERE c.no > 7 AND c.{DOUBTFUL}")
    assert "penstock_doubts" in plan[0][3]


def test_they_are_removed_without_a_trace(shop: Shop) -> None:
    before = shop.schema()
    shop.triggers.install(WANTED)
    shop.run("INSERT INTO orders (id) VALUES (2); INSERT INTO notes VALUES ('x')")
    # A write of Penstock's, one of the owner's trigger in it, and one into a table without a key.
    assert shop.rows("SELECT count(*) FROM penstock_changes") == [(3,)]
    state = shop.triggers.remove()
    assert (state.installed, state.remove_sql, state.tables) == (False, (), ())
    assert shop.schema() == before
    assert shop.triggers.remove() == state
    shop.run("INSERT INTO orders (id) VALUES (3)")


def test_what_is_read_is_not_removed_and_goes_with_its_last_reader(shop: Shop) -> None:
    before = shop.schema()
    shop.triggers.install([NOTES])
    shop.follow(ORDERS)
    with pytest.raises(EngineFault, match="read by reader") as refused:
        shop.triggers.remove()
    assert refused.value.kind is FaultKind.CHANGE_TRIGGERS_IN_USE
    assert len(shop.triggers.status().tables) == 2
    shop.source.reader.remove("reader")
    assert shop.schema() == before
    shop.run("INSERT INTO notes VALUES ('y'); INSERT INTO orders (id) VALUES (4)")


def test_what_others_changed_is_shown_and_mended(shop: Shop) -> None:
    shop.triggers.install([ORDERS, NOTES])
    name = "SELECT name FROM sqlite_schema WHERE tbl_name = 'orders' AND name LIKE 'penstock%_update' ORDER BY length(name)"
    shop.run(f'ALTER TABLE notes ADD COLUMN more TEXT; DROP TRIGGER "{shop.rows(name)[0][0]}"')
    state = shop.triggers.status()
    assert (state.installed, state.current, [t.current for t in state.tables]) == (True, False, [False, False])
    assert state.install_sql == tuple(statement.sql for statement in shop.triggers.plan([ORDERS, NOTES]))
    assert shop.triggers.install(()).current
    shop.run("INSERT INTO notes VALUES ('x', 'more')")
    assert shop.rows("SELECT c1, c2 FROM penstock_changes") == [("x", "more")]
    shop.run("DROP TABLE penstock_windows")
    state = shop.triggers.status()
    assert (state.installed, state.current, state.version) == (True, False, None)
    assert shop.triggers.install(()).current
    assert shop.triggers.plan([ORDERS, NOTES]) == ()


@pytest.mark.parametrize("by_hand", [False, True])
def test_triggers_that_were_created_again_do_not_hide_what_a_reader_missed(shop: Shop, by_hand: bool) -> None:
    shop.follow(ORDERS)
    tables = [spec(ORDERS)]
    assert not shop.source.safety.check(tables, "reader").sent_otherwise
    names = [name for _, name, *_ in shop.schema() if name.startswith("penstock_") and name.endswith("_insert")]
    shop.run(f'DROP TRIGGER "{names[0]}"; INSERT INTO orders (id) VALUES (7)')
    if by_hand:
        shop.run(";".join(statement.sql for statement in shop.triggers.plan([ORDERS])))
    assert shop.triggers.install([ORDERS]).current
    assert shop.source.safety.check(tables, "reader").sent_otherwise == {ORDERS: FaultKind.CHANGE_TRIGGERS_CHANGED}


def test_a_column_of_a_followed_table_is_left_to_its_stream(shop: Shop) -> None:
    """Which also records the rows again that were changed since; registering it here would lose their new values."""
    shop.follow(ORDERS)
    shop.run("ALTER TABLE orders ADD COLUMN more TEXT; UPDATE orders SET more = 'x'")
    assert not shop.triggers.status().tables[0].current
    assert shop.triggers.plan([ORDERS]) == ()
    assert shop.triggers.install([ORDERS]).current
    shop.run("ALTER TABLE orders ADD COLUMN last TEXT; UPDATE orders SET name = 'b'; UPDATE orders SET last = 'y'")
    shop.triggers.install([ORDERS])
    (changed,) = shop.rows("SELECT c4, c5 FROM penstock_changes WHERE op = 'U' ORDER BY no DESC LIMIT 1")
    assert changed == ("x", "y")


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        (TableName("main", "absent"), FaultKind.TABLE_MISSING),
        (TableName("other", "orders"), FaultKind.TABLE_MISSING),
        (ODD, FaultKind.TABLE_NOT_LOGGED),
    ],
)
def test_what_cannot_be_recorded_is_refused(shop: Shop, table: TableName, kind: FaultKind) -> None:
    before = shop.schema()
    for action in (shop.triggers.plan, shop.triggers.install):
        with pytest.raises(EngineFault) as refused:
            action([ORDERS, table])
        assert refused.value.kind is kind
    assert shop.schema() == before


def test_the_engine_answers_for_a_file(shop: Shop) -> None:
    connection = ConnectionSpec("shop", "sqlite", {"path": str(shop.path)})
    asked = [
        answer_change_triggers(ChangeTriggers(request_id="r", connection=connection, action=action, tables=(ORDERS,)))
        for action in ("plan", "install", "look", "remove")
    ]
    assert [answer.installed for answer in asked] == [False, True, True, False]
    assert asked[0].plan
    assert not asked[0].grants
