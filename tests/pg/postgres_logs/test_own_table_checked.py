"""The table whose rows name coordinators' own parts is checked before its log is read: without its ids transactions would be in parts."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from engine.connectors import open_source
from engine.link.messages import SubscriptionStateReport
from engine.model.source import Severity
from engine.model.subscription import CaptureSpec, ConnectionSpec, TableSpec
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.pg.postgres_logs.nodes import OWN_TABLE

pytestmark = pytest.mark.pg
NAME = "global_transactions"
Shop = list[Database]


@pytest.fixture
def shop(pg18: EmbeddedPostgres, database_on: Callable[..., Database]) -> Shop:
    """Two databases, of which the second one has the table."""
    databases = [database_on(pg18) for _ in range(2)]
    for database in databases:
        database.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
    databases[1].execute(OWN_TABLE)
    return databases


def source_of(shop: Shop, column: str = "gtid", name: str = NAME) -> ConnectionSpec:
    listed = [{"name": f"n{number}", "settings": dict(one.settings)} for number, one in enumerate(shop)]
    capture = CaptureSpec("postgres_logs", {"own_table": f"public.{name}", "own_column": column})
    return ConnectionSpec("shop", "partitioned", {"nodes": json.dumps(listed)}, capture=capture)


@pytest.mark.parametrize(
    ("column", "name", "options", "why"),
    [
        ("gtid", NAME, {}, None),
        ("gtid", "missing", {}, "is on no node"),
        ("id", NAME, {}, "has no column id on node n1"),
        ("made", NAME, {}, "has a column made of the type timestamptz on node n1; it has to be text, varchar or uuid"),
        ("gtid", NAME, {"where": "no > 5"}, "has a condition ('where'), and rows that do not meet it are not sent"),
        ("gtid", NAME, {"exclude_columns": ("gtid",)}, "has the column gtid left out"),
    ],
)
def test_checks_find_a_table_whose_rows_name_nothing(
    shop: Shop, column: str, name: str, options: dict[str, object], why: str | None
) -> None:
    source = open_source(source_of(shop, column, name))
    tables: list[TableSpec] = [table("orders"), table(NAME, **options)]
    try:
        found = [each for each in source.preflight(tables, None) if each.code == "own_table_unfit"]
    finally:
        source.close()
    assert [(each.severity, each.what) for each in found] == (
        [] if why is None else [(Severity.ERROR, f"public.{name}, whose rows name global transactions, {why}")]
    )
    assert all(each.remedy for each in found)


def failed(replica: Replica) -> SubscriptionStateReport:
    report = replica.wait_state("failed")
    assert (report.code, bool(report.remedy)) == ("own_table_unfit", True)
    return report


def test_a_subscription_that_cannot_read_the_ids_does_not_begin(shop: Shop, replicate: Callable[..., Replica]) -> None:
    tables = [table("orders"), table(NAME)]
    missing = failed(replicate(shop[0], tables, source=source_of(shop, "id"), live=False))
    assert "public.global_transactions, whose rows name global transactions, has no column id on node n1" in str(
        missing.reason
    )


def test_one_whose_table_loses_the_ids_ends_until_it_is_reloaded_with_them(
    shop: Shop, replicate: Callable[..., Replica]
) -> None:
    replica = replicate(shop[0], [table("orders"), table(NAME)], source=source_of(shop))
    shop[1].execute(f"INSERT INTO {NAME} (gtid) VALUES ('g1')")
    replica.catch_up()
    with shop[1].connect() as session:
        session.execute("BEGIN")
        session.execute(f"ALTER TABLE {NAME} RENAME COLUMN gtid TO id".encode())
        session.execute(f"INSERT INTO {NAME} (id) VALUES ('g2')".encode())
        session.execute("COMMIT")
    report = failed(replica)
    assert "has no column gtid" in str(report.reason)
    replica.restart()
    again = replica.reports.wait(
        lambda reports: next(
            (r for r in reports if isinstance(r, SubscriptionStateReport) and r.epoch == 2 and r.state == "failed"),
            None,
        ),
        "the next engine refuses it, too",
    )
    assert again.code == "own_table_unfit"
    shop[1].execute(f"ALTER TABLE {NAME} RENAME COLUMN id TO gtid")
    replica.pipeline.reload("whole", None)
    assert replica.wait_reload("whole").state == "succeeded"
    shop[1].execute(f"INSERT INTO {NAME} (gtid) VALUES ('g3')")
    replica.catch_up()
    assert replica.query(f"SELECT gtid FROM {NAME} ORDER BY no") == [("g1",), ("g2",), ("g3",)]


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        (f"ALTER TABLE {NAME} DROP CONSTRAINT {NAME}_pkey", "is not published"),
        (f"DROP TABLE {NAME}; {OWN_TABLE}", "is not published any more on node n1"),
        (f"DROP TABLE {NAME}", "is not published any more on node n1"),
    ],
    ids=["without identity", "created again", "dropped"],
)
def test_one_whose_table_is_not_published_any_more_ends(
    shop: Shop, replicate: Callable[..., Replica], statement: str, why: str
) -> None:
    replica = replicate(shop[0], [table("orders"), table(NAME)], source=source_of(shop))
    shop[1].execute(f"INSERT INTO {NAME} (gtid) VALUES ('g1')")
    replica.catch_up()
    with shop[1].connect() as session:
        session.execute(f"BEGIN; {statement}; COMMIT".encode())
    assert why in str(failed(replica).reason)
    # The application can use it all the same.
    if statement.startswith("ALTER"):
        shop[1].execute(f"UPDATE {NAME} SET gtid = 'g2'")


def test_one_whose_table_is_not_published_does_not_begin(shop: Shop, replicate: Callable[..., Replica]) -> None:
    """It has no key, so that updates and deletes of it could not be followed."""
    shop[1].execute(f"ALTER TABLE {NAME} DROP CONSTRAINT {NAME}_pkey")
    replica = replicate(shop[0], [table("orders"), table(NAME)], source=source_of(shop), live=False)
    # Which is seen first: that a node does not publish it, or that it has to be withdrawn.
    assert "is not published" in str(failed(replica).reason)
