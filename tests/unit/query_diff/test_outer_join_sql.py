"""The statement that joins a table with its copy has the restriction within, and compares rows by their images."""

from __future__ import annotations

from dataclasses import replace

from psycopg import sql

from engine.model.identity import TableId
from engine.model.row_filter import RowFilter
from engine.model.subscription import TableSpec
from engine.sources.postgres_queries.outer_join import KeyColumn, difference_sql
from engine.sources.query_diff.database import ComparedTable
from tests.unit.net.batch_builder import column, table

SCHEMA = replace(
    table([column('na"me'), column("id"), column("{v}")], ["id", 'na"me']),
    row_filter=RowFilter("n LIKE 'a%'", ((4, "n"),)),
)
COMPARED = ComparedTable(SCHEMA, TableSpec(TableId("t0"), SCHEMA.name, SCHEMA.name), b"", b"")
KEY = [KeyColumn("id", 1, "pg_catalog", "="), KeyColumn('na"me', 0, "of citext", "=")]
APPLIED = """
WITH d AS MATERIALIZED (
    SELECT b.tableoid IS NULL AS gone, c.tableoid IS NULL AS is_new, b."na""me" AS b0, b."id" AS b1, b."{v}" AS b2,
 {olds}
    FROM (SELECT tableoid, "na""me", "id", "{v}" FROM ONLY "public"."t100" WHERE (n LIKE 'a%')) AS b FULL JOIN ONLY "penstock"."copy" AS c
 ON b."id" OPERATOR("pg_catalog".=) c."id" AND b."na""me" OPERATOR("of citext".=) c."na""me"
    WHERE b.tableoid IS NULL OR c.tableoid IS NULL OR ROW(b."na""me", b."id", b."{v}")::record OPERATOR(pg_catalog.*<>)
 ROW(c."na""me", c."id", c."{v}")::record
), removed AS (
    DELETE FROM ONLY "penstock"."copy" AS c USING d WHERE d.gone
 AND c."id" OPERATOR("pg_catalog".=) d.c1 AND c."na""me" OPERATOR("of citext".=) d.c0
), written AS (
    INSERT INTO "penstock"."copy" ("na""me", "id", "{v}") SELECT b0, b1, b2 FROM d WHERE NOT gone ON CONFLICT ("id", "na""me") DO UPDATE
 SET "na""me" = excluded."na""me", "id" = excluded."id", "{v}" = excluded."{v}"
)
"""
SENT = """SELECT CASE WHEN gone THEN 'D' WHEN is_new THEN 'I' WHEN ROW(b1, b0)::record OPERATOR(pg_catalog.*<>) ROW(c1, c0)::record
 THEN 'K' ELSE 'U' END, b0, b1, b2, c0, c1, c2 FROM d"""
WHOLE, KEYS = 'c."na""me" AS c0, c."id" AS c1, c."{v}" AS c2', 'c."id" AS c1, c."na""me" AS c0'


def text_of(*, sent: bool) -> list[str]:
    return difference_sql(COMPARED, sql.Identifier("penstock", "copy"), KEY, sent=sent).as_string().split()


def test_what_differs_is_found_sent_and_applied_in_one_statement() -> None:
    assert text_of(sent=True) == (APPLIED.replace("{olds}", WHOLE) + SENT).split()


def test_a_copy_that_is_made_again_sends_nothing() -> None:
    assert text_of(sent=False) == [*APPLIED.replace("{olds}", KEYS).split(), "SELECT", "count(*)", "FROM", "d"]
