"""Views as tables of a capture by queries: their key is declared, and a view that has none for its rows stops without the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.source import Finding, Severity
from engine.model.subscription import FOLDER, CaptureSpec, ConnectionSpec, OriginFilter
from engine.sources.postgres.connect import Connector
from engine.sources.postgres_queries.compared import Compared
from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.postgres_queries.source import open_source
from engine.sources.query_diff.cycle_files import TableFound
from engine.sources.query_diff.declaration import TableDetection
from engine.sources.query_diff.folder import Folder
from tests.fixtures.postgres import Database, standing_database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

SALES, TOTALS, DAILY = (TableName("public", name) for name in ("sales", "totals", "daily"))
KEYS = {str(TOTALS): TableDetection(key=["shop"]), str(DAILY): TableDetection(key=["shop", "day"])}
MAKE = """
CREATE TABLE shops (id int PRIMARY KEY, name text);
CREATE TABLE sales (id int PRIMARY KEY, shop int, day date, amount numeric);
CREATE VIEW totals AS SELECT s.id AS shop, s.name, sum(a.amount) AS amount FROM shops s LEFT JOIN sales a ON a.shop = s.id GROUP BY s.id;
CREATE MATERIALIZED VIEW daily AS SELECT shop, day, sum(amount) AS amount FROM sales WHERE shop IS NOT NULL GROUP BY 1, 2;
INSERT INTO shops VALUES (1, 'one'), (2, 'two');
INSERT INTO sales SELECT i, 1 + i % 2, date '2026-01-01' + i % 3, i FROM generate_series(1, 30) AS i
"""
JSON = '{"public.totals": {"key": ["shop"]}, "public.daily": {"key": ["shop", "day"]}}'


@pytest.fixture(scope="module")
def standing(pg18: Any) -> Iterator[Database]:
    with standing_database(pg18, "views") as made:
        assert isinstance(made, Database)
        yield made


@pytest.fixture
def database(standing: Database) -> Database:
    standing.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    for statement in MAKE.strip().split(";\n"):
        standing.execute(statement)
    standing.execute("REFRESH MATERIALIZED VIEW daily")
    return standing


@pytest.fixture
def compared(database: Database) -> Iterator[PostgresDatabase]:
    connector = Connector(ConnectionSpec("shop", "postgres", database.settings))
    with closing(PostgresDatabase(connector, Compared(KEYS))) as opened:
        yield opened


def spec(database: Database, folder: Path, method: str = "row_checksum") -> ConnectionSpec:
    settings = {"every_seconds": 3600, "method": method, "tables": JSON, FOLDER: str(folder)}
    return ConnectionSpec("shop", "postgres", database.settings, capture=CaptureSpec("query_diff", settings))


def codes(found: list[Finding], severity: Severity = Severity.ERROR) -> list[str]:
    return [finding.code for finding in found if finding.severity is severity]


def test_views_are_discovered_and_refused_without_a_key(database: Database, compared: PostgresDatabase) -> None:
    listed = {each.name: each for each in compared.discover()}
    assert listed[TOTALS].key == ("shop",)
    assert [problem.code for problem in listed[TOTALS].problems] == ["view"]
    specs = [table("sales"), table("totals"), table("daily")]
    assert codes(compared.preflight(specs, OriginFilter.ANY)) == []
    with closing(PostgresDatabase(Connector(ConnectionSpec("shop", "postgres", database.settings)))) as undeclared:
        unkeyed = {each.name: each for each in undeclared.discover()}[TOTALS]
        assert [problem.code for problem in unkeyed.problems] == ["view", "table_no_identity"]
        found = undeclared.preflight(specs, OriginFilter.ANY)
        assert codes(found) == ["table_no_identity", "table_no_identity"]
        assert '{"public.daily": {"key": ["id"]}}' in found[0].remedy
        assert undeclared.tables(dict.fromkeys([SALES, TOTALS, DAILY])).keys() == {SALES}


def test_a_table_without_a_key_is_discovered_with_what_gives_it_one(database: Database) -> None:
    database.execute("CREATE TABLE keyless (number int)")
    with closing(PostgresDatabase(Connector(ConnectionSpec("shop", "postgres", database.settings)))) as opened:
        (found,) = [each for each in opened.discover() if each.name.name == "keyless"]
    (problem,) = found.problems
    assert (problem.code, problem.severity) == ("table_no_identity", Severity.ERROR)
    assert "capture.tables" in problem.remedy
    assert "insert_only" not in problem.remedy, "no changes are found without a key"


def test_a_view_that_the_user_cannot_read_is_a_finding(database: Database) -> None:
    database.execute("DROP ROLE IF EXISTS view_reader; CREATE ROLE view_reader LOGIN")
    database.execute("GRANT USAGE ON SCHEMA public TO view_reader; GRANT SELECT ON totals, daily TO view_reader")
    database.execute("ALTER VIEW totals SET (security_invoker = true)")
    settings = {**database.settings, "user": "view_reader"}
    connector = Connector(ConnectionSpec("shop", "postgres", settings))
    with closing(PostgresDatabase(connector, Compared(KEYS))) as opened:
        specs = [table("totals"), table("daily")]
        assert codes(opened.preflight(specs, OriginFilter.ANY)) == ["source_privilege"]
        database.execute("GRANT SELECT ON shops, sales TO view_reader")
        assert codes(opened.preflight(specs, OriginFilter.ANY)) == []
    database.execute("REFRESH MATERIALIZED VIEW daily WITH NO DATA")
    with closing(PostgresDatabase(connector, Compared(KEYS))) as opened:
        assert codes(opened.preflight(specs, OriginFilter.ANY)) == ["table_missing"]
        assert opened.tables(dict.fromkeys([TOTALS, DAILY])).keys() == {TOTALS}


_LOOSE = {
    "the same key": "SELECT shop, 'x' AS name, amount FROM sales WHERE shop IS NOT NULL",
    "no key": "SELECT nullif(id, 2) AS shop, name, 0.0 AS amount FROM shops",
    "the same row": "SELECT id AS shop, name, 1.0 AS amount FROM shops CROSS JOIN generate_series(1, 2) WHERE id = 1",
}


@pytest.mark.parametrize("method", ["incremental", "row_checksum"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("loose", _LOOSE)
def test_rows_without_a_key_of_their_own_stop_the_view_and_nothing_else(
    database: Database, tmp_path: Path, method: str, first: bool, loose: str
) -> None:
    whole = database.execute("SELECT pg_get_viewdef('totals'::regclass)")[0][0]
    database.execute("DROP VIEW totals")
    changed = f"CREATE OR REPLACE VIEW totals (shop, name, amount) AS SELECT shop, name::text, amount::numeric FROM ({_LOOSE[loose]}) AS l"
    database.execute(changed if first else f"CREATE VIEW totals (shop, name, amount) AS {whole}")
    folder = Folder(tmp_path / "reader")
    with closing(open_source(spec(database, folder.path, method))) as source:
        tables = [table("sales"), table("totals")]
        source.sent_tables.prepare(tables, "reader")
        with source.reader.create("reader"):
            pass
        if not first:
            database.execute(changed)
            database.execute("INSERT INTO sales VALUES (100, 1, '2026-01-01', 5)")
            with source.copies.snapshot(10.0):
                pass
        sales, totals = by_name(folder, "sales", "totals")
        assert (totals.keyless, totals.unreadable, totals.rows, totals.deletes) == (True, True, None, None)
        assert (sales.keyless, sales.inserted) == (False, 0 if first else 1)
        with pytest.raises(EngineFault) as announced:
            source.log.resolver([totals.record])(totals.record, tables[1], None)
        with source.copies.snapshot(10.0):
            schema = source.describe(tables)[TOTALS]
            with pytest.raises(EngineFault) as copied:
                source.copies.splits(schema, tables[1], 1 << 40)
        assert (announced.value.kind, copied.value.kind) == (FaultKind.TABLE_NO_IDENTITY,) * 2
        database.execute(f"CREATE OR REPLACE VIEW totals (shop, name, amount) AS {whole}")
        with source.copies.snapshot(10.0):
            assert source.copies.splits(schema, tables[1], 1 << 40)
        (totals,) = by_name(folder, "totals")
        assert (totals.keyless, totals.filled) == (False, True)


@pytest.mark.parametrize(("method", "stops"), [("row_checksum", True), ("incremental", False)])
def test_a_view_that_gives_other_rows_when_it_is_read_again_stops_unless_it_is_read_once(
    database: Database, tmp_path: Path, method: str, stops: bool
) -> None:
    database.execute(
        "CREATE VIEW loose AS SELECT i AS id, 'x' AS v FROM generate_series(1, 300) AS i WHERE random() < 0.5"
    )
    folder = Folder(tmp_path / "reader")
    settings = {"method": method, "tables": '{"public.loose": {"key": ["id"]}}', FOLDER: str(folder.path)}
    capture = CaptureSpec("query_diff", settings)
    with closing(open_source(ConnectionSpec("shop", "postgres", database.settings, capture=capture))) as source:
        source.sent_tables.prepare([table("loose")], "reader")
        with source.reader.create("reader"):
            pass
        with source.copies.snapshot(10.0):
            (found,) = by_name(folder, "loose")
        assert found.keyless is stops


@pytest.mark.parametrize("kind", ["numeric", "float8", "interval", "jsonb", "int[]"])
def test_a_key_whose_equal_values_look_different_is_refused(database: Database, kind: str) -> None:
    value = {"int[]": "'{1}'::int[]", "jsonb": "'1'::jsonb", "interval": "'1 day'::interval"}.get(kind, f"1::{kind}")
    database.execute(f"CREATE VIEW loose AS SELECT {value} AS k")
    chosen = Compared({"public.loose": TableDetection(key=["k"])})
    connector = Connector(ConnectionSpec("shop", "postgres", database.settings))
    with closing(PostgresDatabase(connector, chosen)) as opened:
        [finding] = [f for f in opened.preflight([table("loose")], OriginFilter.ANY) if f.severity is Severity.ERROR]
        assert (finding.code, "equal values may look different" in finding.what) == ("table_no_identity", True)
        assert opened.tables({TableName("public", "loose"): None}) == {}


def by_name(folder: Folder, *names: str) -> list[TableFound]:
    found = {table.name: table for table in folder.files.reports(1)[0].tables}
    return [found[name] for name in names]


@pytest.mark.parametrize(
    ("name", "change", "is_unfit"),
    [
        ("totals", "CREATE OR REPLACE VIEW totals AS SELECT id AS shop, name, 0.0 AS amount FROM shops", True),
        (
            "totals",
            "CREATE OR REPLACE VIEW totals AS SELECT s.id AS shop, s.name, sum(a.amount) * 2 AS amount"
            " FROM shops s LEFT JOIN sales a ON a.shop = s.id GROUP BY s.id",
            True,
        ),
        ("totals", "TRUNCATE sales", True),
        ("totals", "ALTER TABLE sales ALTER day TYPE timestamp", True),
        ("totals", "ALTER VIEW totals RENAME COLUMN name TO title", True),
        ("totals", "VACUUM FULL shops", True),
        (
            "totals",
            "DELETE FROM sales; UPDATE shops SET name = 'other'; ANALYZE shops; CREATE INDEX ON sales (shop)",
            False,
        ),
        ("daily", "REFRESH MATERIALIZED VIEW daily", True),
        ("daily", "TRUNCATE sales", False),
        ("daily", "REFRESH MATERIALIZED VIEW CONCURRENTLY daily", False),
    ],
)
def test_a_view_is_read_as_it_was_in_the_snapshot_or_not_at_all(
    database: Database, compared: PostgresDatabase, name: str, change: str, is_unfit: bool
) -> None:
    database.execute("CREATE UNIQUE INDEX ON daily (shop, day)")
    view = table(name)
    expected = sorted(map(repr, database.execute(f"SELECT * FROM {name}")))
    schema = compared.describe([view])[view.source]
    (split,) = compared.reads.splits(schema, view, 1 << 40)
    with compared.snapshot(1.0) as snapshot:
        first = b"".join(compared.reads.read_split(split, snapshot))
        assert first.count(b"\n") == len(expected)
        if change.startswith("ALTER TABLE"):
            database.execute("DROP MATERIALIZED VIEW daily")
        for statement in change.split("; "):
            database.execute(statement)
        if is_unfit:
            with pytest.raises(EngineFault) as caught:
                list(compared.reads.read_split(split, snapshot))
            assert caught.value.kind is FaultKind.TABLE_STRUCTURE_CHANGED
        else:
            again = b"".join(compared.reads.read_split(split, snapshot))
            assert sorted(again.splitlines()) == sorted(first.splitlines())


FLAGS = {"method": "timestamp_delete_flag", "stamp_column": "at", "flag_column": "deleted"}


def test_a_copy_follows_views_and_delete_flags(
    database: Database, tmp_path: Path, replicate: Callable[..., Replica]
) -> None:
    database.execute("CREATE TABLE marked (id int PRIMARY KEY, note text, at timestamptz, deleted boolean)")
    database.execute("INSERT INTO marked SELECT i, 'n', now(), i % 3 = 0 FROM generate_series(1, 30) AS i")
    chosen = json.dumps({**json.loads(JSON), "public.marked": FLAGS})
    capture = CaptureSpec("query_diff", {"every_seconds": 3600, "method": "row_checksum", "tables": chosen})
    source = ConnectionSpec("shop", "postgres", database.settings, capture=capture)
    names = ["totals", "daily", "sales", "marked"]
    replica = replicate(database, [table(name) for name in names], source=source)
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM marked") == [(20,)]
    database.execute("INSERT INTO shops VALUES (3, NULL); DELETE FROM sales WHERE shop = 1")
    database.execute("REFRESH MATERIALIZED VIEW daily")
    database.execute("UPDATE marked SET deleted = id > 20, at = clock_timestamp() WHERE id > 10")
    replica.assert_equal()
    assert replica.query("SELECT shop, name, amount FROM totals ORDER BY 1") == [
        (1, "one", None),
        (2, "two", "225"),
        (3, None, None),
    ]
    assert replica.query("SELECT id FROM marked ORDER BY 1") == database.execute(
        "SELECT id FROM marked WHERE deleted IS NOT TRUE ORDER BY 1"
    )
    database.execute(
        "CREATE OR REPLACE VIEW totals AS SELECT s.id AS shop, s.name, sum(a.amount) AS amount, count(a.id) AS sales"
        " FROM shops s LEFT JOIN sales a ON a.shop = s.id WHERE s.id > 1 GROUP BY s.id"
    )
    replica.assert_equal()
    assert replica.query("SELECT shop, sales FROM totals ORDER BY 1") == [(2, 15), (3, 0)]
    database.execute(
        "CREATE OR REPLACE VIEW totals AS SELECT 1 AS shop, name, 0.0::numeric AS amount, 1::bigint AS sales FROM shops"
    )
    before = replica.query("SELECT shop, sales FROM totals ORDER BY 1")
    replica.catch_up()
    replica.wait_table("totals", "parked")
    assert replica.query("SELECT shop, sales FROM totals ORDER BY 1") == before
    database.execute("INSERT INTO sales VALUES (200, 2, '2026-02-01', 7)")
    replica.catch_up()
    assert replica.query("SELECT count(*) FROM sales") == database.execute("SELECT count(*) FROM sales")
    assert {replica.states()[name] for name in names if name != "totals"} == {"live"}
    replica.wait_table("totals", "parked")  # A new copy is tried meanwhile, and is refused.
