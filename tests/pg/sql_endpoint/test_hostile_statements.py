"""What readers must not do, through PostgreSQL's protocol: on a DuckDB file, in the catalog, and on a PostgreSQL target whose role is a
superuser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from server.demo.embedded import EmbeddedPostgres
from tests.contract.test_duckdb_query_fences import ATTACKS as ON_DUCKDB
from tests.contract.test_postgres_query_fences import ATTACKS as ON_POSTGRES
from tests.fixtures.channel import ADMIN
from tests.fixtures.postgres import Database, standing_database
from tests.fixtures.service import running_service
from tests.pg.sql_endpoint.conftest import USER, Endpoint

pytestmark = [pytest.mark.pg, pytest.mark.xdist_group("sql_endpoint")]

_OF_THE_SESSION = {
    "COMMIT",
    "ROLLBACK",
    "SELECT 1;;SELECT 2",
    "RESET ROLE",
    "DISCARD ALL",
    "SHOW ALL",
    "SELECT 1; RESET ROLE",
}
"""Statements that the endpoint itself executes, or that are several reads."""
_IN_THE_CATALOG = [
    "SELECT * FROM pg_class, read_csv('/etc/passwd')",
    "SELECT relname FROM pg_class UNION ALL SELECT content FROM read_text('/etc/passwd')",
    "SELECT * FROM pg_class, read_blob('/etc/hosts')",
    "SELECT * FROM pg_class, glob('/etc/*')",
    "SELECT * FROM pg_class, '/etc/passwd'",
    'SELECT * FROM pg_catalog.pg_class AS c, "/etc/passwd"',
    "SELECT getenv('HOME') FROM pg_class",
    "SELECT * FROM pg_class, duckdb_secrets()",
    "SELECT * FROM pg_class, query('SELECT 1')",
    "SELECT * FROM pg_class, sniff_csv('/etc/passwd')",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_ls_dir('/') FROM pg_class",
    "SELECT pg_sleep(1000) FROM pg_class",
    "SELECT pg_terminate_backend(1) FROM pg_class",
    "WITH x AS (DELETE FROM pg_class RETURNING 1) SELECT * FROM x",
    "INSERT INTO pg_class VALUES (1)",
    "COPY pg_class TO '/dev/shm/penstock-stolen'",
    "CREATE TABLE mine AS SELECT * FROM pg_class",
    "SELECT * FROM pg_class; ATTACH '/dev/shm/penstock-stolen' AS x",
    "SELECT * INTO mine FROM pg_class",
    "SELECT * FROM pg_class WHERE relname = (SELECT content FROM read_text('/etc/passwd'))",
]


def _refused(reader: psycopg.Connection[Any], sql: str) -> None:
    """In the simple and in the extended protocol."""
    for arguments in ((sql.encode(),), (sql.replace("%", "%%").encode(), ())):
        try:
            reader.execute(*arguments, prepare=len(arguments) > 1)
        except psycopg.Error:
            continue
        pytest.fail(f"was executed: {sql}")


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.chaos)])
def test_on_a_duckdb_file(endpoint: Endpoint, tmp_path: Path, every: int) -> None:
    counted = "SELECT count(*), sum(id), min(customer) FROM orders WHERE id <= 1000"
    with endpoint.connect() as reader:
        before = reader.execute(counted).fetchone()
        for sql in ON_DUCKDB[::every]:
            if sql not in _OF_THE_SESSION and "$1" not in sql and "?" not in sql:
                _refused(reader, sql.format(folder=tmp_path))
                reader.execute("ROLLBACK")
        assert reader.execute(counted).fetchone() == before
    assert list(tmp_path.iterdir()) == []


def test_in_the_catalog(endpoint: Endpoint) -> None:
    with endpoint.connect() as reader:
        for sql in _IN_THE_CATALOG:
            _refused(reader, sql)
        assert reader.execute("SELECT count(*) FROM pg_class WHERE relname = 'orders'").fetchone() == (1,)
    assert not Path("/dev/shm/penstock-stolen").exists()


@pytest.fixture(scope="module")
def on_postgres(
    endpoint: Endpoint, pg16: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, Database]]:
    """The port of an endpoint whose target is PostgreSQL, used as a superuser; and the target."""
    with standing_database(pg16, "mart") as mart:
        mart.execute("CREATE SCHEMA theirs; CREATE TABLE theirs.others (id int); INSERT INTO theirs.others VALUES (1)")
        target = {"kind": "postgres", "settings": mart.settings}
        source, folder = endpoint.service.database, tmp_path_factory.mktemp("on-postgres")
        with running_service(source, folder, ["orders", "lines"], target, sql_port=0) as service:
            assert service.engine.sql_endpoint is not None
            port = service.engine.sql_endpoint.wait_for_port(30)
            assert port is not None
            yield port, mart


def _connect(port: int) -> psycopg.Connection[Any]:
    return psycopg.connect(host="127.0.0.1", port=port, user=USER, password=ADMIN, dbname="shop", autocommit=True)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.chaos)])
def test_on_a_postgresql_target_as_a_superuser(on_postgres: tuple[int, Database], every: int) -> None:
    port, mart = on_postgres
    with _connect(port) as reader:
        for sql in ON_POSTGRES[::every]:
            if sql not in _OF_THE_SESSION:
                _refused(reader, sql)
        assert reader.execute("SELECT count(*) FROM lines").fetchone() == (100,)
        assert reader.execute("SELECT current_setting('is_superuser')").fetchone() == ("off",)
    assert mart.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]
    assert mart.execute("SELECT count(*) FROM theirs.others") == [(1,)]


def test_a_postgresql_target_answers_with_its_own_types(on_postgres: tuple[int, Database]) -> None:
    port, _ = on_postgres
    sql = "SELECT id, customer, total, placed, note, ARRAY[1, 2], '1.5'::numeric, NULL::jsonb FROM orders WHERE id < %s ORDER BY id"
    with _connect(port) as reader:
        reader.execute("SET penstock.freshness = latest")
        text = reader.execute(sql, [4]).fetchall()
        binary = reader.execute(sql, [4], binary=True).fetchall()
        described = reader.execute(sql, [4]).description
    assert len(text) == 3
    assert text == binary
    assert described is not None
    assert [column.type_code for column in described] == [20, 25, 1700, 1184, 25, 1007, 1700, 3802]
