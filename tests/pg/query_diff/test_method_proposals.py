"""Before a subscription begins, its tables' methods are listed with their costs, and the cheapest one is proposed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from engine.model.source import Finding, Severity
from engine.model.subscription import ConnectionSpec, OriginFilter
from engine.sources.postgres.connect import Connector
from engine.sources.postgres_queries.compared import Compared
from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.query_diff.declaration import TableDetection
from tests.fixtures.postgres import Database, standing_database
from tests.fixtures.replication import table

pytestmark = pytest.mark.pg

MAKE = """
CREATE TABLE orders (id bigint PRIMARY KEY, note text, changed_at timestamptz NOT NULL DEFAULT now(), deleted boolean);
INSERT INTO orders SELECT i, repeat('n', 300) FROM generate_series(1, 20000) AS i;
CREATE INDEX ON orders (changed_at);
CREATE TABLE named (k inet PRIMARY KEY, note text);
CREATE TABLE loose (a int, b text);
CREATE VIEW seen AS SELECT id, note FROM orders
"""


@pytest.fixture(scope="module")
def database(pg18: Any) -> Iterator[Database]:
    with standing_database(pg18, "proposals") as made:
        assert isinstance(made, Database)
        for statement in MAKE.strip().split(";\n"):
            made.execute(statement)
        made.execute("VACUUM (ANALYZE) orders")
        yield made


def found(database: Database, name: str, default: str = "incremental", /, **chosen: Any) -> dict[str, Finding]:
    """Findings on a table, by code."""
    declared = {f"public.{name}": TableDetection(**chosen)} if chosen else {}
    connector = Connector(ConnectionSpec("shop", "postgres", database.settings))
    with closing(PostgresDatabase(connector, Compared(declared, default))) as opened:
        findings = opened.preflight([table(name)], OriginFilter.ANY)
    assert len({finding.code for finding in findings}) == len(findings)
    return {finding.code: finding for finding in findings}


def test_the_cheapest_method_is_proposed(database: Database) -> None:
    costs = found(database, "orders")["method_costs"]
    [(pages,)] = database.execute("SELECT relpages FROM pg_class WHERE relname = 'orders'")
    assert costs.severity is Severity.INFO
    assert f"{pages:,} pages, about 20,000 rows" in costs.what
    assert f"incremental {pages:,} pages" in costs.what
    assert "The least: row_checksum; chosen: incremental" in costs.what
    assert "row_checksum" in costs.remedy
    assert found(database, "orders", "row_checksum")["method_costs"].remedy == "None needed."


def test_a_stamp_with_an_index_costs_least_and_may_be_proposed(database: Database) -> None:
    assert "changed_at" in found(database, "orders")["stamp_possible"].what
    flagged = {"method": "timestamp_delete_flag", "stamp_column": "changed_at", "flag_column": "deleted"}
    findings = found(database, "orders", **flagged)
    assert "The least: timestamp_delete_flag; chosen: timestamp_delete_flag" in findings["method_costs"].what
    assert findings.keys() == {"method_costs"}


def test_a_key_without_a_known_order_has_no_ranges(database: Database) -> None:
    findings = found(database, "named", "range_checksum")
    assert findings["key_without_order"].severity is Severity.WARNING
    assert "range_checksum 0 pages" not in findings["method_costs"].what


def test_a_key_that_is_not_kept_unique_is_a_finding_with_the_index_to_make(database: Database) -> None:
    assert found(database, "loose")["table_no_identity"].severity is Severity.ERROR
    unique = found(database, "loose", key=["a", "b"])["key_not_unique"]
    assert unique.sql == (
        'CREATE UNIQUE INDEX CONCURRENTLY ON "public"."loose" ("a", "b")',
        'ALTER TABLE "public"."loose" ALTER COLUMN "a" SET NOT NULL, ALTER COLUMN "b" SET NOT NULL',
    )
    assert [f.severity for f in found(database, "loose", key=["c"]).values()] == [Severity.ERROR]


def test_a_view_has_methods_without_ranges(database: Database) -> None:
    costs = found(database, "seen", "range_checksum", key=["id"])["method_costs"].what
    assert "incremental or row_checksum" in costs


def test_a_copy_on_the_source_needs_a_schema_and_room(database: Database) -> None:
    database.execute("DROP SCHEMA IF EXISTS penstock")
    missing = found(database, "orders", "outer_join")
    assert missing["source_privilege"].severity is Severity.ERROR
    create, grant = missing["source_privilege"].sql
    assert "outer_join" not in missing["method_costs"].what.partition("The least")[0]
    try:
        database.execute(create)
        database.execute(grant)
        findings = found(database, "orders", "outer_join")
        [(size, pages)] = database.execute(
            "SELECT pg_relation_size(oid), relpages FROM pg_class WHERE relname = 'orders'"
        )
        assert f"about {size // 2**20} MiB" in findings["copy_on_source"].what
        assert f"outer_join {3 * pages:,} pages" in findings["method_costs"].what
        assert "source_privilege" not in findings
        assert "incremental" in found(database, "seen", key=["id"], method="outer_join")["copy_not_possible"].what
    finally:
        database.execute("DROP SCHEMA penstock")
