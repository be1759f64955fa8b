"""An application writes the shadow log itself, by plain SQL as the reference describes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.model.subscription import CaptureSpec
from tests.fixtures.postgres import Database
from tests.pg.postgres_triggers.conftest import Replicate

pytestmark = pytest.mark.pg

BY_APPLICATION = CaptureSpec("triggers", {"recorder": "application"})
RECORD = """
INSERT INTO penstock.changes (xid, relation, op, at, old, new)
VALUES (pg_current_xact_id(), 'public.orders'::regclass, %s, clock_timestamp(), %s, %s)
"""


@pytest.fixture
def app(database: Database) -> Iterator[str]:
    role = f"app_{database.name}"
    database.execute(
        f"CREATE ROLE {role} LOGIN; CREATE TABLE orders (id bigint PRIMARY KEY, note text);"
        f"INSERT INTO orders SELECT i, 'note' FROM generate_series(1, 20) i; GRANT ALL ON orders TO {role}"
    )
    yield role
    database.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def test_the_copy_follows_what_the_application_records(database: Database, app: str, replicate: Replicate) -> None:
    replica = replicate(database, "orders", capture=BY_APPLICATION)
    assert database.execute("SELECT count(*) FROM pg_trigger WHERE tgname LIKE '!pen%'") == [(0,)]
    database.execute(f"GRANT USAGE ON SCHEMA penstock TO {app}; GRANT INSERT ON penstock.changes TO {app}")
    with database.connect(user=app) as session:
        session.execute("BEGIN; UPDATE orders SET note = 'paid' WHERE id = 7")
        session.execute(RECORD, ["U", '{"id": 7, "note": "note"}', '{"id": 7, "note": "paid"}'])
        session.execute("INSERT INTO orders VALUES (21, NULL)")
        session.execute(RECORD, ["I", None, '{"id": 21, "note": null}'])
        session.execute("SAVEPOINT s; DELETE FROM orders")
        session.execute(RECORD, ["T", None, None])
        session.execute("ROLLBACK TO s; DELETE FROM orders WHERE id = 1")
        session.execute(RECORD, ["D", '{"id": 1, "note": "note"}', None])
        session.execute("COMMIT")
    replica.assert_equal()
    replica.restart()
    replica.wait_live()
    with database.connect(user=app) as session, session.transaction():
        session.execute("TRUNCATE orders")
        session.execute(RECORD, ["T", None, None])
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM orders") == [(0,)]


def test_no_table_is_recorded_in_both_ways(database: Database, app: str, replicate: Replicate) -> None:
    first = replicate(database, "orders", capture=BY_APPLICATION)
    second = replicate(database, "orders", live=False)
    assert second.wait_table("orders", "parked").code == "change_triggers_in_use"
    assert database.execute("SELECT count(*) FROM pg_trigger WHERE tgname LIKE '!pen%'") == [(0,)]
    database.execute(
        'CREATE TRIGGER "!penstock_insert" AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION penstock.record_insert()'
    )
    assert first.wait_table("orders", "parked").code in {"change_triggers_changed", "change_triggers_in_use"}
