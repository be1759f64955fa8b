"""An administrator installs the triggers, and the subscription's user owns nothing; who changed what is recorded on request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from engine.model.source import Severity
from engine.model.subscription import CaptureSpec, ConnectionSpec
from engine.sources.postgres_triggers.source import TriggerSource
from tests.fixtures.postgres import Database
from tests.fixtures.replication import table
from tests.pg.postgres_triggers.conftest import Replicate

pytestmark = pytest.mark.pg

GIVEN = CaptureSpec("triggers", {"install": 0})
AUDIT = CaptureSpec("triggers", {"audit": 1})


@pytest.fixture
def guest(database: Database) -> Iterator[str]:
    """A role that may read two tables."""
    role = f"guest_{database.name}"
    database.execute(
        f"""CREATE ROLE {role} LOGIN;
        CREATE TABLE orders (id bigint PRIMARY KEY, note text);
        CREATE TABLE lines (id bigint PRIMARY KEY, tags jsonb);
        INSERT INTO orders SELECT i, 'note' FROM generate_series(1, 20) i;
        GRANT SELECT ON orders, lines TO {role}"""
    )
    yield role
    database.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def statements(database: Database, guest: str, *names: str) -> list[str]:
    """What the checks of the subscription show to the administrator."""
    spec = ConnectionSpec("shop", "postgres", database.settings | {"user": guest}, {}, GIVEN)
    with closing(TriggerSource(spec)) as source:
        found = source.preflight([table(name) for name in names], None)
    errors = [finding for finding in found if finding.severity is Severity.ERROR]
    assert {finding.code for finding in errors} <= {"change_triggers_missing"}
    return [statement for finding in errors for statement in finding.sql]


def administer(database: Database, sql: list[str]) -> None:
    with database.connect() as session, session.transaction():
        for statement in sql:
            session.execute(statement.encode())


def test_a_user_that_owns_nothing_follows_what_an_administrator_installed(
    database: Database, guest: str, replicate: Replicate
) -> None:
    replica = replicate(database, "orders", "lines", settings={"user": guest}, capture=GIVEN, live=False)
    failed = replica.wait_state("failed")
    assert failed.code == "change_triggers_missing"
    assert "penstock triggers plan" in (failed.remedy or "")
    assert database.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'penstock'") == [(0,)]

    administer(database, statements(database, guest, "orders"))
    assert statements(database, guest, "orders") == []
    replica.restart()
    replica.wait_live("orders")
    parked = replica.wait_table("lines", "parked")
    assert parked.code == "change_triggers_missing"
    assert 'CREATE OR REPLACE TRIGGER "!penstock_insert" AFTER INSERT ON "public"."lines"' in (parked.reason or "")

    database.execute("UPDATE orders SET note = 'changed'; INSERT INTO lines VALUES (1, '[1]')")
    administer(database, statements(database, guest, "lines"))
    replica.pipeline.reload("again", [replica.table_id("lines")])
    replica.wait_live()
    database.execute("UPDATE orders SET note = 'again' WHERE id < 5")
    database.execute("UPDATE lines SET tags = 'null'; INSERT INTO lines VALUES (2, '{}')")
    replica.assert_equal()
    replica.restart()
    replica.wait_live()
    database.execute("DELETE FROM orders WHERE id > 10")
    replica.assert_equal()
    owners = database.execute(
        "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace = 'penstock'::regnamespace"
    )
    assert owners == [("postgres",)]


def test_its_end_leaves_the_triggers_to_the_administrator(database: Database, guest: str, replicate: Replicate) -> None:
    administer(database, statements(database, guest, "orders"))
    replica = replicate(database, "orders", settings={"user": guest}, capture=GIVEN)
    replica.pipeline.close()
    with closing(TriggerSource(replica.spec.source)) as source:
        (left,) = source.reader.remove(replica.spec.reader)
        assert 'DROP TRIGGER IF EXISTS "!penstock_insert" ON "public"."orders"' in left
        assert source.reader.remove(replica.spec.reader) == []
    assert database.execute("SELECT count(*) FROM penstock.readers") == [(0,)]
    assert database.execute("SELECT count(*) FROM pg_trigger WHERE tgname LIKE '!penstock%'") == [(4,)]


def test_triggers_that_the_administrator_drops_park_the_table(
    database: Database, guest: str, replicate: Replicate
) -> None:
    administer(database, statements(database, guest, "orders", "lines"))
    replica = replicate(database, "orders", "lines", settings={"user": guest}, capture=GIVEN)
    database.execute("BEGIN; DROP TRIGGER \"!penstock_update\" ON orders; UPDATE orders SET note = 'unseen'; COMMIT")
    assert replica.wait_table("orders", "parked").code in {"change_triggers_changed", "change_triggers_missing"}
    database.execute("INSERT INTO lines VALUES (1, '[]')")
    administer(database, statements(database, guest, "orders"))
    replica.pipeline.reload("again", [replica.table_id("orders")])
    replica.wait_live()
    database.execute("UPDATE orders SET note = note || '!'")
    replica.assert_equal()


@pytest.mark.parametrize(
    "revoked",
    ["USAGE ON SCHEMA penstock", "SELECT ON penstock.changes", "EXECUTE ON FUNCTION penstock.close_window()"],
)
def test_rights_that_are_revoked_meanwhile_end_the_run_and_lose_nothing(
    database: Database, guest: str, replicate: Replicate, revoked: str
) -> None:
    administer(database, statements(database, guest, "orders"))
    replica = replicate(database, "orders", settings={"user": guest}, capture=GIVEN)
    database.execute(f"REVOKE {revoked} FROM {guest}; UPDATE orders SET note = 'recorded, not readable'")
    failed = replica.wait_state("failed")
    assert failed.code in {"source_privilege", "change_triggers_privilege"}
    database.execute(f"GRANT {revoked} TO {guest}")
    replica.restart()
    replica.assert_equal()


def test_who_changed_a_row_is_recorded_once_a_subscription_asks(
    database: Database, guest: str, replicate: Replicate
) -> None:
    plain = replicate(database, "orders", "lines")
    database.execute("UPDATE orders SET note = 'by whom?' WHERE id = 1")
    plain.catch_up()
    audited = replicate(database, "orders", capture=AUDIT)
    plain.desire_paused()
    audited.desire_paused()
    database.execute(f"GRANT UPDATE, TRUNCATE, INSERT ON orders, lines TO {guest}")
    ((last,),) = database.execute("SELECT coalesce(max(no), 0) FROM penstock.changes")
    with database.connect(user=guest, application_name="till 4") as session:
        session.execute(
            "BEGIN; UPDATE orders SET note = 'audited'; TRUNCATE orders; INSERT INTO lines VALUES (1, '{}'); COMMIT"
        )
    who = "SELECT DISTINCT relation::regclass::text, op::text, who, application FROM penstock.changes"
    assert database.execute(f"{who} WHERE no > {last} ORDER BY 1, 2") == [
        ("lines", "I", None, None),
        ("orders", "T", guest, "till 4"),
        ("orders", "U", guest, "till 4"),
    ]
    transaction = "SELECT tables, operations, who, application FROM penstock.transactions WHERE who IS NOT NULL"
    assert database.execute(transaction) == [(["lines", "orders"], 22, guest, "till 4")]
    for replica in (plain, audited):
        replica.desire_running()
        replica.wait_live()
        replica.assert_equal()
        assert "parked" not in replica.states_of("orders")
    audited.close()
    with closing(TriggerSource(audited.spec.source)) as source:
        assert source.reader.remove(audited.spec.reader) == []
        assert {t.table.name: t.variant for t in source.triggers.status().tables} == {
            "lines": "exact",
            "orders": "json audit",
        }
