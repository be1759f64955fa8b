"""Actions on one table while the subscription runs: removed with its table on the target, or tried again when parked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import pytest

from engine.control.request_handlers import RequestHandler
from engine.link.messages import Preflight, TableDropped
from engine.model.identity import TableId
from engine.model.source import Severity
from engine.model.subscription import ConnectionSpec, TableSpec
from engine.model.subscription_state import DesiredState
from engine.model.target import QueryRefused
from engine.platform.clock import SystemClock
from engine.platform.settings import EngineSettings
from tests.contract.targets import builder
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

each_target = pytest.mark.parametrize("target_kind", ["duckdb", "postgres"])
mostly_duckdb = pytest.mark.parametrize("target_kind", ["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)])

Replicate = Callable[..., Replica]

SHOP = """
CREATE TABLE orders (id bigint PRIMARY KEY, note text);
CREATE TABLE lines (id bigint PRIMARY KEY, note text);
INSERT INTO orders SELECT i, 'o' FROM generate_series(1, 100) i;
INSERT INTO lines SELECT i, 'l' FROM generate_series(1, 100) i;
"""


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(SHOP)
    return database


def remove(replica: Replica, gone: TableSpec) -> None:
    """As the engine hears of a table that is removed with its table on the target, or tried again when parked."""
    spec = replica.pipeline.spec
    tables = tuple(t for t in spec.tables if t.table != gone.table)
    replica.spec = replace(replica.spec, tables=tables, dropped=frozenset({gone.table}))
    replica.pipeline.update(replace(spec, tables=tables, dropped=spec.dropped | {gone.table}))


def wait_dropped(replica: Replica, gone: TableId) -> TableDropped:
    def found(_: object) -> TableDropped | None:
        return next((r for r in replica.reports.all() if isinstance(r, TableDropped) and r.table == gone), None)

    return replica.reports.wait(found, "what became of the table on the target", 20)


@each_target
def test_a_table_is_removed_with_its_target_table_and_added_again(shop: Database, replicate: Replicate) -> None:
    orders, lines = table("orders"), table("lines")
    replica = replicate(shop, [orders, lines])
    shop.execute("UPDATE orders SET note = 'x'")
    remove(replica, orders)
    assert wait_dropped(replica, orders.table).left is None
    with pytest.raises(QueryRefused):
        replica.query("SELECT * FROM public.orders")
    shop.execute("UPDATE orders SET note = 'y'; UPDATE lines SET note = 'y'")
    replica.assert_equal()
    again = table("orders")
    replica.spec = replace(replica.spec, tables=(lines, again))
    replica.pipeline.update(replace(replica.pipeline.spec, tables=(lines, again)))
    replica.wait_live()
    replica.assert_equal()


@mostly_duckdb
def test_a_table_removed_while_nothing_runs_is_dropped_at_the_next_start(shop: Database, replicate: Replicate) -> None:
    orders, lines = table("orders"), table("lines")
    replica = replicate(shop, [orders, lines])
    replica.desire(DesiredState.STOPPED)
    replica.wait_state("stopped")
    replica.spec = replace(replica.spec, desired="stopped")
    remove(replica, orders)
    replica.desire(DesiredState.RUNNING)
    replica.wait_state("running")
    assert wait_dropped(replica, orders.table).left is None
    with pytest.raises(QueryRefused):
        replica.query("SELECT * FROM public.orders")
    replica.assert_equal()


@each_target
def test_a_target_table_that_a_view_shows_stays_and_the_others_go_on(shop: Database, replicate: Replicate) -> None:
    orders, lines = table("orders"), table("lines")
    replica = replicate(shop, [orders, lines])
    target = replica.pipeline.target
    assert target is not None
    replica.desire(DesiredState.PAUSED)
    replica.wait_state("paused")
    builder(target)("CREATE VIEW public.seen AS SELECT * FROM public.orders")
    replica.desire(DesiredState.RUNNING)
    replica.wait_state("running")
    remove(replica, orders)
    report = wait_dropped(replica, orders.table)
    assert "seen" in str(report.left)
    assert report.remedy is not None
    shop.execute("DELETE FROM orders; UPDATE lines SET note = 'y'")
    replica.assert_equal()
    assert replica.look("SELECT count(*) FROM public.seen") == [(100,)]


def in_the_way(replica: Replica, of: TableSpec) -> list[str]:
    """Codes of what an engine finds against a table when it is to be tried again: of the source, then of the target. Nothing of the
    target's user."""
    desk = RequestHandler(EngineSettings(home=replica.folder), lambda _: None, SystemClock())
    ends: tuple[tuple[Literal["source", "target"], ConnectionSpec], ...] = (
        ("source", replica.spec.source),
        ("target", replica.spec.target),
    )
    found = []
    for role, spec in ends:
        tables = (TableSpec(of.table, of.source, of.source),)
        command = Preflight(request_id="r", connection=spec, role=role, tables=tables)
        found += [one.code for one in desk._preflight(command).findings if one.severity is Severity.ERROR]
    desk.close()
    return [code for code in found if code != "target_superuser"]


@mostly_duckdb
def test_a_parked_table_is_tried_again_when_its_cause_is_mended(shop: Database, replicate: Replicate) -> None:
    shop.execute("CREATE TABLE bare (a int); INSERT INTO bare SELECT generate_series(1, 10)")
    bare, lines = table("bare"), table("lines")
    replica = replicate(shop, [bare, lines], live=False)
    assert replica.wait_table("bare", "parked").code == "table_no_identity"
    replica.wait_live("lines")
    assert in_the_way(replica, bare) == ["table_no_identity"]
    shop.execute("UPDATE bare SET a = a + 1; ALTER TABLE bare REPLICA IDENTITY FULL")
    assert in_the_way(replica, bare) == []
    replica.pipeline.reload("r1", [bare.table])
    replica.wait_live()
    shop.execute("UPDATE bare SET a = a + 1 WHERE a < 5")
    replica.assert_equal()


@dataclass(frozen=True, slots=True)
class DatabaseOf(Database):
    """The same database, replicated by a user of its own."""

    user: str

    @property
    def settings(self) -> dict[str, str | int]:
        return {**Database(self.cluster, self.name).settings, "user": self.user}


@pytest.fixture
def owned(shop: Database) -> Iterator[DatabaseOf]:
    """The shop as the owner of its tables sees it, who is no superuser."""
    owner = f"owner_{shop.name}"
    shop.execute(f"CREATE ROLE {owner} LOGIN REPLICATION; GRANT CREATE ON DATABASE {shop.name} TO {owner}")
    for name in ("orders", "lines"):
        shop.execute(f"ALTER TABLE {name} OWNER TO {owner}")
    yield DatabaseOf(shop.cluster, shop.name, owner)
    shop.execute(f"DROP OWNED BY {owner}; DROP ROLE {owner}")


@mostly_duckdb
def test_a_table_with_rows_that_the_user_may_not_see_is_not_copied_without_them(
    owned: DatabaseOf, replicate: Replicate
) -> None:
    owned.execute("ALTER TABLE orders ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    orders, lines = table("orders"), table("lines")
    replica = replicate(owned, [orders, lines], live=False)
    parked = replica.wait_table("orders", "parked")
    assert (parked.code, "row-level security" in str(parked.reason)) == ("source_privilege", True)
    replica.wait_live("lines")
    owned.execute("UPDATE orders SET note = 'x'; UPDATE lines SET note = 'x'")
    replica.catch_up()
    assert replica.query("SELECT DISTINCT note FROM lines") == [("x",)]
    assert in_the_way(replica, orders) == ["source_privilege"]
    owned.execute("ALTER TABLE orders NO FORCE ROW LEVEL SECURITY")
    assert in_the_way(replica, orders) == []
    replica.pipeline.reload("r1", [orders.table])
    replica.wait_live()
    replica.assert_equal()
    # The log has its changes whatever the policies of the table are; a comparison reports that it could not be made.
    owned.execute("ALTER TABLE orders FORCE ROW LEVEL SECURITY; UPDATE orders SET note = 'y' WHERE id < 50")
    replica.catch_up()
    assert replica.query("SELECT count(*) FROM orders WHERE note = 'y'") == [(49,)]
    verdicts = {verdict.table: verdict.code for verdict in replica.verify()}
    assert verdicts == {orders.table: "source_privilege", lines.table: None}
    assert replica.states()["orders"] == "live"
