"""What is installed in the source is what was shown, is brought up to date, and goes without trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from engine.model.change_triggers import commented
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.subscription import TableSpec
from engine.sources.mariadb_triggers.source import MariaDbTriggerSource
from tests.fixtures.mariadb import MariaDbDatabase
from tests.pg.mariadb_triggers.conftest import connection

pytestmark = pytest.mark.pg

TABLES = r"""
CREATE TABLE orders (id int PRIMARY KEY, note text);
CREATE TABLE `li'nes` (`o``r\der` int, no int, PRIMARY KEY (`o``r\der`, no),
    FOREIGN KEY (`o``r\der`) REFERENCES orders (id) ON DELETE CASCADE);
INSERT INTO orders VALUES (1, 'a'), (2, 'b');
INSERT INTO `li'nes` VALUES (1, 1), (2, 1);
CREATE TABLE log (id int);
CREATE TRIGGER audit AFTER DELETE ON orders FOR EACH ROW INSERT INTO log VALUES (OLD.id);
CREATE TRIGGER notes BEFORE DELETE ON orders FOR EACH ROW INSERT INTO log VALUES (OLD.id)
"""


@pytest.fixture
def shop(mariadb: MariaDbDatabase) -> MariaDbDatabase:
    mariadb.execute(TABLES)
    return mariadb


@pytest.fixture
def source(shop: MariaDbDatabase) -> Iterator[MariaDbTriggerSource]:
    with closing(MariaDbTriggerSource(connection(shop))) as opened:
        yield opened


def names(database: MariaDbDatabase) -> list[TableName]:
    return [TableName(database.name, "li'nes"), TableName(database.name, "orders")]


def catalog(database: MariaDbDatabase) -> list[object]:
    tables = [database.execute(f"SHOW CREATE TABLE `{name.name}`") for name in names(database)]
    return [*tables, database.execute("SHOW TRIGGERS"), database.execute("SHOW DATABASES")]


def order_of(database: MariaDbDatabase) -> list[str]:
    """The triggers that a DELETE of an order fires."""
    query = f"""SELECT IF(trigger_name LIKE 'penstock%', 'ours', trigger_name) FROM information_schema.triggers
        WHERE trigger_schema = '{database.name}' AND event_object_table = 'orders' AND event_manipulation = 'DELETE'
        ORDER BY action_timing DESC, action_order"""
    return [row[0] for row in database.execute(query)]


def test_an_administrator_runs_what_is_shown_and_removal_leaves_no_trace(
    shop: MariaDbDatabase, source: MariaDbTriggerSource
) -> None:
    before, wanted = catalog(shop), names(shop)
    plan = source.triggers.plan(wanted)
    assert all(statement.lock and statement.cost for statement in plan)
    findings = source.preflight([TableSpec(TableId(name.name), name, name) for name in wanted], None)
    assert plan == source.triggers.plan(wanted)
    assert [finding.sql for finding in findings if finding.code == "change_triggers_absent"] == [commented(plan)]
    assert catalog(shop) == before
    with shop.connect() as session, session.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ANSI', SESSION collation_connection = 'latin1_bin'")
        for statement in [*(one.sql for one in plan), *source.triggers.grants()]:
            cursor.execute(statement)
    state = source.triggers.status()
    assert state.current
    assert [(one.table, one.current) for one in state.tables] == [(name, True) for name in wanted]
    assert source.triggers.plan(wanted) == ()
    assert source.triggers.install(wanted) == state
    shop.execute("DELETE FROM orders WHERE id = 1")
    recorded = shop.execute("SELECT op, old, new FROM penstock.changes ORDER BY old")
    assert recorded == [("D", "1\t1", None), ("D", "1\ta", None)]
    assert order_of(shop) == ["notes", "ours", "ours", "audit", "ours"]
    shop.execute("CREATE TRIGGER late BEFORE DELETE ON orders FOR EACH ROW INSERT INTO log VALUES (OLD.id)")
    state = source.triggers.status()
    assert [(one.table, one.current) for one in state.tables] == list(zip(wanted, [False, True], strict=True))
    assert [one.sql for one in source.triggers.plan([])] == list(state.install_sql) != []
    assert source.triggers.install([]).current
    assert order_of(shop) == ["notes", "late", "ours", "ours", "audit", "ours"]
    shop.execute("DROP TRIGGER late")
    gone = source.triggers.remove()
    assert (gone.installed, gone.current, gone.tables, gone.remove_sql) == (False, False, (), ())
    assert source.triggers.remove() == gone
    assert catalog(shop) == before


def test_what_is_read_is_not_removed_and_what_cannot_be_recorded_is_named(
    shop: MariaDbDatabase, source: MariaDbTriggerSource
) -> None:
    lines, orders = names(shop)
    source.sent_tables.prepare([TableSpec(TableId("t1"), orders, orders)], "penstock_mart")
    with pytest.raises(EngineFault, match="penstock_mart") as caught:
        source.triggers.remove()
    assert caught.value.kind is FaultKind.CHANGE_TRIGGERS_IN_USE
    assert source.reader.remove("penstock_mart") == []
    shop.execute("CREATE TABLE old (id int PRIMARY KEY) ENGINE = MyISAM;\nCREATE VIEW penstock.others AS SELECT 1")
    unfit = {
        TableName(shop.name, "old"): FaultKind.TABLE_NOT_LOGGED,
        TableName(shop.name, "none"): FaultKind.TABLE_MISSING,
        TableName("penstock", "changes"): FaultKind.TABLE_NOT_LOGGED,
    }
    for name, kind in unfit.items():
        with pytest.raises(EngineFault) as refused:
            source.triggers.plan([name])
        assert refused.value.kind is kind
    many = ", ".join(f"c{n} int, FOREIGN KEY (c{n}) REFERENCES orders (id) ON DELETE CASCADE" for n in range(41))
    shop.execute(f"CREATE TABLE many (id int PRIMARY KEY, {many})")
    table = TableName(shop.name, "many")
    with pytest.raises(EngineFault, match="too many paths"):
        source.triggers.plan([table])
    spec = TableSpec(TableId("t2"), table, table)
    assert FaultKind.CASCADE_UNCAPTURED.value in {finding.code for finding in source.preflight([spec], None)}
    source.triggers.install([lines])
    source.triggers.remove()
    assert shop.execute("SHOW FULL TABLES FROM penstock") == [("others", "VIEW")]
