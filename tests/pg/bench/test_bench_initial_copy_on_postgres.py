"""`initial-copy` on real PostgreSQL: what PostgreSQL's own copy and the lower bound leave, what its checks find, and a whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench import suite
from bench.contenders import NATIVE, PENSTOCK, NativeSide
from bench.environment import Stage, sides_into
from bench.errors import BenchError
from bench.initial_copy import COPY_OUT, CopyOut, InitialCopy, digest, is_equal, measure_copy, started
from bench.report import markdown
from bench.suite import Order
from bench.workload import DATABASE, Connection, Table
from bench.workloads import WORKLOADS

pytestmark = pytest.mark.pg

ROWS = 300
ACCOUNTS = Table("pgbench_accounts")


class Small(InitialCopy):
    """Few rows, with characters that COPY escapes."""

    def create(self, connection: Connection, scale: int) -> None:
        connection.execute("CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, filler text)")
        texts = r"CASE WHEN i % 3 = 0 THEN NULL ELSE E'line\nline\ttab\\backslash' || i END"
        connection.execute(f"INSERT INTO pgbench_accounts SELECT i, {texts} FROM generate_series(1, {ROWS}) i".encode())


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    said: list[str] = []
    with Stage(Small(), 1, [], said.append, rest_s=0.1) as source:
        yield source


def _left_on(stage: Stage) -> list[tuple[str, ...]]:
    sql = "SELECT slot_name FROM pg_replication_slots UNION ALL SELECT pubname FROM pg_publication"
    return stage.source.execute(sql, database=DATABASE)


def test_postgresql_copies_every_row_and_leaves_nothing_on_the_source(stage: Stage) -> None:
    whole = digest(stage.source, ACCOUNTS)
    with started(NATIVE, stage, sides_into("duckdb")) as copier:
        assert isinstance(copier, NativeSide)
        found = measure_copy(stage, copier, ACCOUNTS)
        assert is_equal(copier, ACCOUNTS, whole)
        copier.cluster.execute("UPDATE pgbench_accounts SET filler = 'other' WHERE aid = 7", database=DATABASE)
        assert not is_equal(copier, ACCOUNTS, whole)
        assert len(_left_on(stage)) == 2
        copier.leave()
    assert _left_on(stage) == []
    assert found["rows"] == ROWS
    assert found["rows_per_s"] * found["seconds"] == pytest.approx(ROWS, rel=0.1)
    assert found["source_cpu_s"] > 0
    assert found["peak_pss_mb_total"] > 1


def test_the_lower_bound_has_a_line_for_each_row(stage: Stage) -> None:
    whole = digest(stage.source, ACCOUNTS)
    with started(COPY_OUT, stage, sides_into("duckdb")) as copier:
        assert isinstance(copier, CopyOut)
        found = measure_copy(stage, copier, ACCOUNTS)
        assert copier.lines(ACCOUNTS) == found["rows"] == ROWS
        assert is_equal(copier, ACCOUNTS, whole)
        assert not is_equal(copier, ACCOUNTS, (ROWS + 1, whole[1]))
        file = copier.file(ACCOUNTS)
        with pytest.raises(BenchError, match=r'relation "public\.absent" does not exist'):
            copier.follow([Table("absent")], 30)
    assert not file.parent.exists()


@pytest.mark.chaos
@pytest.mark.parametrize("target", ["duckdb", "postgres"])
def test_each_side_copies_both_tables(target: str) -> None:
    said: list[str] = []
    order = Order(quick=True, against=True, target=target)
    document = suite.run(WORKLOADS["initial-copy"], order, said.append)
    assert suite.is_good(document)
    assert document["checks"] == {"equal": True, "wrong": []}
    assert document["sides"] == [PENSTOCK, NATIVE, COPY_OUT]
    (done,) = document["rounds"]
    for tables in done["sides"].values():
        assert {name: figures["rows"] for name, figures in tables.items()} == document["size"]["rows"]
    ours = done["sides"][PENSTOCK]["wide"]
    assert {"server", "engine", "log reader"} <= set(ours["cpu_s"])
    assert ours["times_native"] > 0
    assert "| wide | Penstock | 25,000 |" in markdown([document])
