"""What only a PostgreSQL target meets: other sessions, users' own indexes and triggers, lost connections, privileges."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from engine.model.fault import FaultKind
from engine.model.identity import Epoch, TableId, TableName
from engine.model.position import Lsn
from engine.model.subscription import ConnectionSpec
from engine.model.target import LogStart, QueryRefused, TableCommit
from engine.net.copy_text import decode_copy_text
from engine.targets.postgres.target import PostgresTarget
from server.demo.embedded import EmbeddedPostgres
from tests.contract.target_material import (
    SLOT,
    SUBSCRIPTION,
    SYSTEM,
    Pipeline,
    changes,
    fault_of,
    inserts,
    keys,
    structure,
)
from tests.fixtures.answers import answered
from tests.fixtures.postgres import Database, target_settings

pytestmark = pytest.mark.pg

ORDERS = TableId("t0a")
orders = structure(TableName("public", "orders"), {"id": "int4", "state": "text", "note": "text"}, ["id"])
LOADED = [(1, "a", "x"), (2, "b", "y"), (3, "c", "z")]


@pytest.fixture
def mart(pg: EmbeddedPostgres, database_on: Callable[[EmbeddedPostgres], Database]) -> Database:
    return database_on(pg)


def opened(mart: Database, **settings: Any) -> PostgresTarget:
    return PostgresTarget(ConnectionSpec("mart", "postgres", {**target_settings(mart), **settings}), decode_copy_text)


@pytest.fixture
def target(mart: Database) -> Iterator[PostgresTarget]:
    made = opened(mart)
    yield made
    made.close()


@pytest.fixture
def pipeline(target: PostgresTarget) -> Pipeline:
    made = Pipeline(target).claim()
    made.load(ORDERS, orders, LOADED)
    return made


def swapped() -> Any:
    """The first two rows exchange their states."""
    return changes(
        ORDERS,
        delete=keys(orders, [(1,), (2,)]),
        insert=inserts(orders, [(1, "b", "x"), (2, "a", "y")]),
        paired=2,
    )


def test_values_of_a_unique_index_change_places_in_one_batch(pipeline: Pipeline, mart: Database) -> None:
    mart.execute("CREATE UNIQUE INDEX ON orders (state)")
    pipeline.change(ORDERS, orders, swapped())
    assert pipeline.rows(orders) == [(1, "b", "x"), (2, "a", "y"), (3, "c", "z")]


def test_a_value_that_a_users_constraint_refuses_is_the_tables_own_fault(pipeline: Pipeline, mart: Database) -> None:
    mart.execute("ALTER TABLE orders ADD CONSTRAINT short CHECK (length(note) < 5)")
    bucket = changes(ORDERS, insert=inserts(orders, [(4, "d", "a secret")]))
    fault = fault_of(lambda: pipeline.change(ORDERS, orders, bucket))
    assert (fault.kind, fault.subject) == (FaultKind.ROW_REFUSED, ORDERS)
    assert "short" in fault.detail
    assert "secret" not in str(fault)
    assert pipeline.rows(orders) == LOADED


def test_triggers_and_foreign_keys_of_the_target_stay_out_of_it(pipeline: Pipeline, mart: Database) -> None:
    mart.execute(
        "CREATE TABLE seen (n int); CREATE TABLE parts (order_id int REFERENCES orders (id)); INSERT INTO parts VALUES (3);"
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO seen VALUES (1); RETURN NEW; END';"
        "CREATE TRIGGER note AFTER INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION note()"
    )
    pipeline.change(ORDERS, orders, swapped(), changes(ORDERS, delete=keys(orders, [(3,)])))
    assert len(pipeline.rows(orders)) == 2
    assert mart.execute("SELECT count(*) FROM seen") == [(0,)]


def test_users_own_columns_and_indexes_stay(pipeline: Pipeline, mart: Database) -> None:
    mart.execute("ALTER TABLE orders ADD COLUMN reviewed bool DEFAULT true; CREATE INDEX by_note ON orders (note)")
    bucket = changes(ORDERS, insert=inserts(orders, [(4, "d", "w")]))
    pipeline.change(ORDERS, orders, swapped(), bucket)
    assert mart.execute("SELECT id, state, reviewed FROM orders ORDER BY id") == [
        (1, "b", True),
        (2, "a", True),
        (3, "c", True),
        (4, "d", True),
    ]


def test_a_lost_connection_costs_one_attempt(pipeline: Pipeline, mart: Database) -> None:
    mart.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    assert fault_of(lambda: pipeline.change(ORDERS, orders, swapped())).kind is FaultKind.TARGET_UNAVAILABLE
    pipeline.change(ORDERS, orders, swapped())
    assert pipeline.rows(orders)[0] == (1, "b", "x")


@pytest.mark.parametrize("counts", [True, False], ids=["it counts", "it does not"])
def test_a_commit_whose_answer_is_lost_is_looked_up(
    pipeline: Pipeline, target: PostgresTarget, monkeypatch: pytest.MonkeyPatch, counts: bool
) -> None:
    connection = target._writer.connection
    execute = connection.execute

    def lost(query: Any, *more: Any, **options: Any) -> Any:
        if not query.endswith("COMMIT"):
            return execute(query, *more, **options)
        if counts:
            execute(query, **options)
        connection.close()
        raise psycopg.OperationalError("the connection was lost")

    monkeypatch.setattr(connection, "execute", lost)
    if counts:
        pipeline.change(ORDERS, orders, swapped())
    else:
        assert fault_of(lambda: pipeline.change(ORDERS, orders, swapped())).kind is FaultKind.TARGET_UNAVAILABLE
    expected = [(1, "b", "x"), (2, "a", "y")] if counts else LOADED[:2]
    assert pipeline.rows(orders)[:2] == expected
    pipeline.change(ORDERS, orders, changes(ORDERS, insert=inserts(orders, [(4, "d", "w")])))
    assert len(pipeline.rows(orders)) == 4


def test_a_claim_waits_for_the_batch_under_way_and_fences_the_next(pipeline: Pipeline, mart: Database) -> None:
    """The older engine locks the record while it writes; the newer one waits for it, and then the older one is fenced."""
    newer = opened(mart)
    done = threading.Event()

    def claim() -> None:
        newer.claim(SUBSCRIPTION, Epoch(2), LogStart(SYSTEM, 1, SLOT, Lsn(1000)))
        done.set()

    with mart.connect() as blocker, blocker.transaction():
        blocker.execute("SELECT 1 FROM penstock.progress FOR UPDATE")
        thread = threading.Thread(target=claim)
        thread.start()
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        while mart.execute(waiting) == [(0,)]:
            pass
        assert not done.is_set()
    thread.join(10)
    assert done.is_set()
    assert fault_of(lambda: pipeline.change(ORDERS, orders, swapped())).kind is FaultKind.EPOCH_LOST
    assert pipeline.rows(orders) == LOADED
    newer.close()


@pytest.mark.parametrize("small_bytes", [1 << 20, 0], ids=["cleared by rows", "truncated"])
def test_a_query_never_sees_a_table_empty_that_is_just_replaced(
    pipeline: Pipeline, mart: Database, monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    """A snapshot from before the replacement sees none of the new rows; such a query is run again."""
    monkeypatch.setattr("engine.targets.postgres.tables.TRUNCATE_ABOVE_BYTES", small_bytes)
    refused: list[BaseException] = []
    counts: set[int] = set()
    stop = threading.Event()

    def look() -> None:
        try:
            while not stop.is_set():
                answer = answered(pipeline.target, "SELECT count(*) AS n FROM orders", 10, 10.0, SUBSCRIPTION)
                counts.add(answer.table["n"][0].as_py())
        except BaseException as error:
            refused.append(error)

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(15):
        pipeline.load(ORDERS, orders, LOADED)
        again = changes(ORDERS, truncated=True, insert=inserts(orders, LOADED))
        pipeline.change(ORDERS, orders, again)
    stop.set()
    for reader in readers:
        reader.join(20)
    assert refused == []
    assert counts == {3}


def test_a_pinned_reader_refuses_a_table_that_was_replaced(pipeline: Pipeline) -> None:
    record = pipeline.target.progress(SUBSCRIPTION).tables[ORDERS]  # type: ignore[union-attr]
    with pipeline.target.pin(SUBSCRIPTION) as reader:
        pipeline.load(ORDERS, orders, LOADED)
        fault = fault_of(lambda: reader.compare(record, inserts(orders, LOADED).to_batches(), 5))
    assert fault.kind is FaultKind.TABLE_STRUCTURE_CHANGED
    assert "verify again" in fault.detail


def test_a_pinned_reader_sees_through_a_truncate_of_a_small_table(pipeline: Pipeline) -> None:
    record = pipeline.target.progress(SUBSCRIPTION).tables[ORDERS]  # type: ignore[union-attr]
    with pipeline.target.pin(SUBSCRIPTION) as reader:
        pipeline.change(ORDERS, orders, changes(ORDERS, truncated=True))
        assert reader.compare(record, inserts(orders, LOADED).to_batches(), 5) == (3, 3, [])
    assert pipeline.rows(orders) == []


def test_a_table_that_a_view_shows_stays_and_gets_the_copys_rows(pipeline: Pipeline, mart: Database) -> None:
    mart.execute("CREATE VIEW shown AS SELECT * FROM orders")
    before = mart.execute("SELECT 'orders'::regclass::oid")
    pipeline.load(ORDERS, orders, LOADED[:1])
    assert pipeline.rows(orders) == LOADED[:1]
    assert mart.execute("SELECT count(*) FROM shown") == [(1,)]
    assert mart.execute("SELECT 'orders'::regclass::oid") == before
    assert mart.execute("SELECT count(*) FROM pg_class WHERE relname ~ '^orders.+' AND relkind = 'r'") == [(0,)]


def test_a_table_that_foreign_keys_lead_to_stays_and_gets_the_copys_rows(pipeline: Pipeline, mart: Database) -> None:
    mart.execute("CREATE TABLE notes (id int REFERENCES orders)")
    pipeline.load(ORDERS, orders, LOADED[:1])
    assert pipeline.rows(orders) == LOADED[:1]


def test_a_view_upon_the_table_keeps_it_from_being_replaced_by_another_structure(
    pipeline: Pipeline, mart: Database
) -> None:
    mart.execute("CREATE VIEW open_orders AS SELECT * FROM orders WHERE state = 'a'")
    other = replace(orders, columns=orders.columns[:-1])
    pipeline.target.begin_copy(SUBSCRIPTION, ORDERS, orders.name, other)
    fault = fault_of(lambda: pipeline.commit(TableCommit(ORDERS, other, orders.name, handover=True)))
    assert (fault.kind, fault.subject) == (FaultKind.TABLE_UNFIT, ORDERS)
    assert "open_orders" in fault.detail
    assert pipeline.rows(orders) == LOADED


@pytest.mark.parametrize(
    ("setup", "settings", "code"),
    [
        ("SELECT 1", {"port": 1}, "target_unavailable"),
        ("SELECT 1", {"database": "nowhere"}, "target_unavailable"),
        ("CREATE SCHEMA penstock AUTHORIZATION penstock", {}, "target_foreign"),
        ("CREATE TABLE orders (id int)", {}, "table_name_collision"),
        ("CREATE VIEW orders AS SELECT 1 AS id", {}, "table_name_collision"),
    ],
)
def test_preflight_says_what_is_in_the_way(mart: Database, setup: str, settings: dict[str, Any], code: str) -> None:
    target = opened(mart, **settings)
    mart.execute(setup)
    findings = target.check([orders.name])
    target.close()
    assert [found[1] for found in findings if found[0] == "error"] == [code]
    assert all(found[3] for found in findings)


def test_preflight_finds_a_user_without_rights(mart: Database) -> None:
    role = f"reader_{mart.name}"
    mart.execute(f"CREATE ROLE {role} LOGIN")
    try:
        target = opened(mart, user=role)
        findings = target.check([orders.name])
        target.close()
    finally:
        mart.execute(f"DROP ROLE {role}")
    assert any("GRANT CREATE" in found[3] for found in findings if found[0] == "error")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1) TO PROGRAM 'true' --",
        "SELECT set_config('transaction_read_only', 'off', true), lo_create(0)",
        "SELECT nextval('numbers')",
        "COPY orders TO STDOUT",
        "EXPLAIN ANALYZE DELETE FROM orders",
        "SELECT 1 INTO mine",
        "VALUES (1); COMMIT",
    ],
)
def test_a_query_does_nothing_but_read(pipeline: Pipeline, mart: Database, sql: str) -> None:
    mart.execute("CREATE SEQUENCE numbers")
    with pytest.raises(QueryRefused) as caught:
        pipeline.select(sql)
    assert caught.value.code in {"query_not_a_read", "query_invalid"}
    assert pipeline.select("SELECT 1 AS one -- a comment") == [(1,)]
    assert pipeline.select("VALUES (1, 'x');") == [(1, "x")]
    assert mart.execute("SELECT last_value, is_called FROM numbers") == [(1, False)]


def test_a_long_query_ends_at_its_deadline(pipeline: Pipeline) -> None:
    with pytest.raises(QueryRefused) as caught:
        answered(pipeline.target, "SELECT pg_sleep(60)", 1, 0.2, SUBSCRIPTION)
    assert caught.value.code == "query_timeout"


@pytest.fixture
def plain(mart: Database) -> Iterator[str]:
    """A user with no right but to make schemas and roles."""
    role = f"plain_{mart.name}"
    mart.execute(
        f'CREATE ROLE {role} LOGIN CREATEROLE; GRANT CREATE ON DATABASE "{mart.name}" TO {role}; GRANT CREATE ON SCHEMA public TO {role}'
    )
    yield role
    mart.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


LINES = TableId("t0b")
lines = structure(TableName("public", "lines"), {"id": "int4", "of": "int4"}, ["id"])


def test_where_foreign_keys_are_checked_they_are_at_the_end_of_a_batch(mart: Database, plain: str) -> None:
    """Lines come before the order that they are of, in another table of the batch."""
    target = opened(mart, user=plain)
    try:
        pipeline = Pipeline(target).claim()
        pipeline.load(ORDERS, orders, LOADED)
        pipeline.load(LINES, lines, [])
        mart.execute("ALTER TABLE lines ADD CONSTRAINT of_order FOREIGN KEY (of) REFERENCES orders DEFERRABLE")
        first = TableCommit(LINES, lines, lines.name, (changes(LINES, insert=inserts(lines, [(1, 4), (2, 1)])),))
        then = TableCommit(ORDERS, orders, orders.name, (changes(ORDERS, insert=inserts(orders, [(4, "d", "w")])),))
        pipeline.commit(first, then)
        assert pipeline.rows(lines) == [(1, 4), (2, 1)]
        orphan = TableCommit(LINES, lines, lines.name, (changes(LINES, insert=inserts(lines, [(3, 99)])),))
        fault = fault_of(lambda: pipeline.commit(orphan))
        assert (fault.kind, fault.subject) == (FaultKind.ROW_REFUSED, LINES)
        assert "of_order" in fault.detail
        assert [f for f in target.check([orders.name, lines.name]) if f[0] != "info"] == []
        mart.execute("ALTER TABLE lines ALTER CONSTRAINT of_order NOT DEFERRABLE")
        (severity, code, what, remedy) = next(f for f in target.check([orders.name, lines.name]) if f[0] != "info")
        assert (severity, code) == ("warning", "foreign_key_not_deferrable")
        assert "of_order" in what
        assert "ALTER TABLE public.lines ALTER CONSTRAINT of_order DEFERRABLE" in remedy
    finally:
        target.close()


def test_the_threshold_for_copy_is_measured_and_shown(pipeline: Pipeline, target: PostgresTarget) -> None:
    assert target.tuning() == {}
    pipeline.change(ORDERS, orders, changes(ORDERS, insert=inserts(orders, [(n, "d", "w") for n in range(10, 700)])))
    pipeline.change(ORDERS, orders, changes(ORDERS, delete=keys(orders, [(n,) for n in range(10, 400)])))
    tuning = target.tuning()
    assert 200 <= tuning["copy_above_rows"] <= 20_000
    assert tuning["copy_setup_ms"] > 0
