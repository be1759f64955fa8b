"""Rows that the target does not take, over a whole subscription: set aside or parked over, and an engine that dies around the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.link.messages import EventReport, Report, RowsSetAside
from engine.model.quarantine import RefusedPolicy, RefusedRow
from engine.model.subscription import ApplyMode, ApplyPolicy, ConnectionSpec, QueueMode
from engine.platform.failpoints import Failpoint
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, subscription_spec, table
from tests.pg.bad_days.conftest import BadDay, Circumstances
from tests.pg.engine.killed_engines import arm, engine, wait_for

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]
SHOP = """
CREATE TABLE orders (id bigint PRIMARY KEY, total numeric(12, 2), note text);
ALTER TABLE orders ALTER note SET STORAGE EXTERNAL;
CREATE TABLE lines (id bigint PRIMARY KEY, sku text);
INSERT INTO orders SELECT i, i * 1.5, 'note ' || i FROM generate_series(1, 200) i;
"""
OWNED = "CREATE TABLE orders (id bigint PRIMARY KEY, total numeric CONSTRAINT cheap CHECK (total < 1000), note text)"
ASIDE = RefusedPolicy.SET_ASIDE


def kept(replica: Replica) -> list[RefusedRow]:
    target = replica.pipeline.target
    assert target is not None
    return target.refused_rows(replica.spec.name, replica.table_id("orders"))


def aside_told(replica: Replica) -> list[int]:
    told = [report for report in replica.reports.all() if isinstance(report, RowsSetAside)]
    return [report.counts.get(replica.table_id("orders"), 0) for report in told]


def test_values_that_no_column_holds_stand_aside_from_the_copy_on(database: Database, replicate: Replicate) -> None:
    long = "long " * 2000
    database.execute(SHOP)
    database.execute("INSERT INTO orders VALUES (900, 'NaN', %s)", [long])
    replica = replicate(database, [table("orders", refused_rows=ASIDE), table("lines")])
    replica.catch_up()
    assert [(row.operation, row.key, row.values) for row in kept(replica)] == [("copy", ("900",), ("900", "NaN", long))]
    assert aside_told(replica)[-1] == 1

    # The value that an update leaves out, and the row of a key that changes, come from the row that is set aside.
    database.execute("UPDATE orders SET id = 901 WHERE id = 900; UPDATE orders SET total = 'NaN' WHERE id = 7")
    replica.catch_up()
    assert {row.key: row.values[2] for row in kept(replica)} == {("901",): long, ("7",): "note 7"}
    assert replica.query("SELECT count(*) FROM orders") == [(199,)]
    database.execute("INSERT INTO orders VALUES (902, 'NaN', 'alone in its batch')")
    replica.catch_up()
    assert len(kept(replica)) == 3
    verdicts = {verdict.source.name: verdict for verdict in replica.verify([replica.table_id("lines")])}
    assert verdicts["lines"].equal

    database.execute("UPDATE orders SET total = 9 WHERE id > 900; DELETE FROM orders WHERE id = 7")
    replica.catch_up()
    assert (kept(replica), aside_told(replica)[-1]) == ([], 0)
    replica.assert_equal()
    codes = [report.code for report in replica.reports.all() if isinstance(report, EventReport)]
    assert "rows_set_aside" in codes
    assert not any("long long" in repr(report) for report in replica.reports.all())


def test_a_table_parks_with_the_rows_that_it_parks_over(database: Database, replicate: Replicate) -> None:
    database.execute(SHOP)
    replica = replicate(database, [table("orders"), table("lines")])
    database.execute("UPDATE orders SET total = 'NaN' WHERE id = 3; INSERT INTO lines VALUES (1, 'fine')")
    assert replica.wait_table("orders", "parked").code == "value_out_of_domain"
    replica.catch_up()
    assert replica.query("SELECT sku FROM lines") == [("fine",)]
    assert [(row.state, row.key, row.values) for row in kept(replica)] == [("parked", ("3",), ("3", "NaN", "note 3"))]

    database.execute("UPDATE orders SET total = 3 WHERE id = 3")
    replica.pipeline.reload("mended", [replica.table_id("orders")])
    replica.wait_table("orders", "live")
    replica.assert_equal()
    assert kept(replica) == []


@pytest.mark.parametrize("mode", [ApplyMode.AUTO, ApplyMode.TRANSACTIONAL])
def test_rows_that_an_owners_table_refuses_stand_aside_until_they_fit(
    database: Database,
    pg18: object,
    database_on: Callable[..., Database],
    replicate: Replicate,
    mode: ApplyMode,
) -> None:
    mart = database_on(pg18)
    database.execute(SHOP)
    mart.execute(OWNED)
    database.execute("INSERT INTO orders VALUES (900, 1000, 'dear')")
    tables = [table("orders", into_existing=True, refused_rows=ASIDE), table("lines")]
    target = ConnectionSpec("mart", "postgres", mart.settings)
    replica = replicate(database, tables, target=target, apply=ApplyPolicy(mode))
    replica.catch_up()
    assert [(row.operation, row.key, row.cause.sqlstate) for row in kept(replica)] == [("copy", ("900",), "23514")]
    database.execute(
        "UPDATE orders SET total = total + 900 WHERE id BETWEEN 60 AND 70; INSERT INTO lines VALUES (1, 'x')"
    )
    replica.catch_up()
    assert {int(row.key[0] or 0) for row in kept(replica)} == {*range(67, 71), 900}
    assert mart.execute("SELECT count(*) FROM orders WHERE total > 900") == [(7,)]
    (verdict,) = replica.verify([tables[0].table])
    assert (verdict.equal, verdict.set_aside, verdict.source_rows - verdict.target_rows) == (False, 5, 5)

    mart.execute("ALTER TABLE orders DROP CONSTRAINT cheap")
    run_target = replica.pipeline.target
    assert run_target is not None
    assert len(run_target.retry_refused(replica.spec.name, tables[0].table, None)) == 5
    database.execute("UPDATE orders SET note = 'again' WHERE id > 65")
    replica.assert_equal()


@pytest.fixture
def mortal(
    database: Database, pg18: EmbeddedPostgres, database_on: Callable[..., Database], tmp_path: Path
) -> Iterator[tuple[BadDay, Database]]:
    mart = database_on(pg18)
    database.execute(SHOP)
    mart.execute(OWNED)
    spec = subscription_spec(
        database,
        ConnectionSpec("mart", "postgres", mart.settings),
        (table("orders", into_existing=True, refused_rows=ASIDE),),
    )
    made = BadDay(database, tmp_path, [], Circumstances(spec=spec))
    yield made, mart
    made.release()


@pytest.mark.parametrize(
    "point", [pytest.param(Failpoint.COMMIT_BEFORE, marks=pytest.mark.chaos), Failpoint.COMMIT_AFTER]
)
def test_an_engine_that_dies_around_the_commit_sets_each_row_aside_once(
    mortal: tuple[BadDay, Database], tmp_path: Path, point: Failpoint
) -> None:
    replica, mart = mortal
    armed = tmp_path / "armed"
    armed.mkdir()
    replica.wait_live()
    replica.catch_up()
    replica.close()
    with engine(replica, QueueMode.MEMORY, armed) as process:
        wait_for(process, "orders live")
        arm(armed, point, 1)
        replica.database.execute(
            "UPDATE orders SET total = 5000 WHERE id <= 3; INSERT INTO orders VALUES (300, 1, 'fits')"
        )
        process.wait(60)
    (armed / point.value).unlink(missing_ok=True)
    replica.again()
    replica.wait_live()
    replica.catch_up()
    assert sorted(row.key for row in kept(replica)) == [("1",), ("2",), ("3",)]
    assert mart.execute("SELECT count(*), count(*) FILTER (WHERE id = 300 OR id <= 3) FROM orders") == [(198, 1)]
    replica.database.execute("UPDATE orders SET total = 5 WHERE id <= 3")
    replica.assert_equal()
    assert kept(replica) == []


def test_what_stands_aside_is_known_again_after_a_restart(database: Database, replicate: Replicate) -> None:
    database.execute(SHOP)
    replica = replicate(database, [table("orders", refused_rows=ASIDE)])
    database.execute("UPDATE orders SET total = 'NaN' WHERE id = 3")
    replica.catch_up()
    replica.restart()

    def is_counted(reports: list[Report]) -> bool:
        return any(isinstance(r, RowsSetAside) and (r.epoch, list(r.counts.values())) == (2, [1]) for r in reports)

    replica.reports.wait(is_counted, "the count after the restart")
    replica.wait_live()
    database.execute("UPDATE orders SET total = 3 WHERE id = 3")
    replica.assert_equal()
    assert kept(replica) == []
