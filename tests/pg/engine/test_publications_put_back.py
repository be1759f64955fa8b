"""A publication that was changed and put back: rows are missing for ever, and that is announced whenever it happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import duckdb
import pytest

from engine.link.messages import EventReport
from engine.model.fault import EngineFault
from engine.model.source import Earlier, GuardReading
from engine.model.subscription_state import DesiredState
from engine.sources.postgres_log import publications
from engine.sources.postgres_log.published_tables import PostgresSafety
from engine.sources.postgres_log.source import PostgresSource
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]

_ALL = "insert, update, delete, truncate"
_CHANGES = {
    "operations": (
        "ALTER PUBLICATION {0} SET (publish = 'insert')",
        f"ALTER PUBLICATION {{0}} SET (publish = '{_ALL}')",
    ),
    "member": ("ALTER PUBLICATION {0} DROP TABLE orders", "ALTER PUBLICATION {0} ADD TABLE ONLY orders"),
    "filter": (
        "ALTER PUBLICATION {0} SET TABLE ONLY orders WHERE (id < 0), ONLY lines",
        "ALTER PUBLICATION {0} SET TABLE ONLY orders, ONLY lines",
    ),
    "publication": (
        "DROP PUBLICATION {0}",
        f"CREATE PUBLICATION {{0}} FOR TABLE ONLY orders, ONLY lines WITH (publish = '{_ALL}', publish_via_partition_root,"
        " publish_generated_columns = stored)",
    ),
}
_WHILE_PAUSED = ("operations", "publication")
"""With every test run."""
_ROWS = "UPDATE orders SET note = 'unseen' WHERE id <= 500; DELETE FROM orders WHERE id > 900"


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute("CREATE TABLE orders (id bigint PRIMARY KEY, note text)")
    database.execute("CREATE TABLE lines (order_id bigint, n int, PRIMARY KEY (order_id, n))")
    database.execute("INSERT INTO orders SELECT i, 'note ' || i FROM generate_series(1, 1000) i")
    return database


@pytest.fixture
def replica(shop: Database, replicate: Replicate) -> Replica:
    return replicate(shop, [table("orders"), table("lines")])


def steps(replica: Replica, what: str) -> list[str]:
    change, back = (step.format(f'"{replica.spec.reader}"') for step in _CHANGES[what])
    return [change, _ROWS, back]


def is_mended_by_a_reload(replica: Replica) -> None:
    replica.pipeline.reload("whole", None)
    replica.wait_state("running")
    replica.wait_live()
    replica.assert_equal()


@pytest.mark.parametrize("what", _CHANGES)
def test_a_publication_put_back_in_one_transaction_fails_the_subscription(
    shop: Database, replica: Replica, what: str
) -> None:
    """No look of the guard can come in between."""
    with shop.connect() as connection, connection.transaction():
        for step in steps(replica, what):
            connection.execute(step)
    assert replica.wait_state("failed").code == "publication_changed"
    is_mended_by_a_reload(replica)


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=[] if what in _WHILE_PAUSED else pytest.mark.chaos) for what in _CHANGES]
)
def test_a_publication_put_back_while_paused_fails_the_start(shop: Database, replica: Replica, what: str) -> None:
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    for step in steps(replica, what):
        shop.execute(step)
    replica.desire(DesiredState.RUNNING)
    assert replica.wait_state("failed").code == "publication_changed"
    assert replica.query("SELECT count(*) FROM orders WHERE note = 'unseen'") == [(0,)]
    # The fault remains after a restart, also with another engine.
    replica.restart()
    assert replica.wait_state("failed").code == "publication_changed"
    is_mended_by_a_reload(replica)
    replica.restart()
    replica.wait_state("running")
    replica.assert_equal()


def test_a_change_of_ours_that_the_target_never_heard_of_is_none(shop: Database, replica: Replica) -> None:
    """An engine that was killed right after its ALTER PUBLICATION."""
    shop.execute("CREATE TABLE more (id int PRIMARY KEY)")
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    killed = PostgresSource(replica.spec.source)
    killed.sent_tables.prepare([*replica.spec.tables, table("more")], replica.spec.reader, earlier=Earlier.OURS)
    killed.sent_tables.prepare(replica.spec.tables, replica.spec.reader, earlier=Earlier.OURS)
    killed.close()
    shop.execute(_ROWS)
    replica.restart()
    replica.wait_state("running")
    replica.assert_equal()
    assert [r for r in replica.reports.all() if isinstance(r, EventReport) and r.severity != "info"] == []


def test_a_copy_never_hides_that_a_live_table_was_unpublished(
    shop: Database, replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No look of the guard comes before the publications are made ready for the copy."""
    orders, lines = table("orders"), table("lines")
    replica = replicate(shop, [orders, lines], guard_interval_s=3600.0)
    run = replica.pipeline.run
    assert run is not None
    monkeypatch.setattr(run, "check_source", lambda: None)
    shop.execute(f'ALTER PUBLICATION "{replica.spec.reader}" DROP TABLE orders')
    shop.execute(_ROWS)
    replica.pipeline.reload("r1", [lines.table])
    assert replica.wait_state("failed").code == "publication_changed"
    is_mended_by_a_reload(replica)


def test_a_subscription_of_a_version_without_marks_goes_on_and_gets_them(shop: Database, replica: Replica) -> None:
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    replica.pipeline.close()
    replica._targets.close_all()
    with duckdb.connect(replica.spec.target.settings["path"]) as mart:
        mart.execute("UPDATE penstock.progress SET publications = ''")
    for name in publications.names(replica.spec.reader):
        shop.execute(f'COMMENT ON PUBLICATION "{name}" IS NULL')
    shop.execute(_ROWS)
    replica.restart()
    replica.wait_state("running")
    replica.assert_equal()
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    # From now on they are expected.
    shop.execute(f'COMMENT ON PUBLICATION "{replica.spec.reader}" IS NULL')
    replica.desire(DesiredState.RUNNING)
    assert replica.wait_state("failed").code == "publication_changed"


def test_a_look_beside_a_change_of_the_tables_vouches_for_no_publication(
    shop: Database, replicate: Replicate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What such a look saw of the publications is not judged: the next one does that, before "now" is answered."""
    orders, lines = table("orders"), table("lines")
    replica = replicate(shop, [orders, lines], guard_interval_s=3600.0)
    replica.satisfied()
    run = replica.pipeline.run
    assert run is not None
    with shop.connect() as connection, connection.transaction():
        for step in steps(replica, "operations"):
            connection.execute(step)
    real = PostgresSafety.check

    def paused_meanwhile(found: PostgresSafety, *rest: Any) -> GuardReading:
        reading = real(found, *rest)
        replica.replace(orders, replace(lines, paused=True))
        return reading

    monkeypatch.setattr(PostgresSafety, "check", paused_meanwhile)
    with pytest.raises(EngineFault, match="publication_changed"):
        run.nows.read_now()
    assert replica.wait_state("failed").code == "publication_changed"
