"""Engines that die while they reload a partition, under changes: the table is the old one or the new one, and ends equal."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from engine.connectors import open_target
from engine.model.partitions import generation_of
from engine.model.subscription import ConnectionSpec, QueueMode
from engine.platform.failpoints import Failpoint
from engine.platform.settings import EngineSettings
from tests.fixtures.load import Load
from tests.fixtures.postgres import Database, Session
from tests.pg.bad_days.conftest import BadDay
from tests.pg.engine.killed_engines import arm, engine, subscribed, wait_for

pytestmark = pytest.mark.pg

SALES = """
CREATE TABLE sales (id int, part int, note text, PRIMARY KEY (part, id)) PARTITION BY RANGE (part);
CREATE TABLE sales_low PARTITION OF sales FOR VALUES FROM (MINVALUE) TO (5);
CREATE TABLE sales_high PARTITION OF sales FOR VALUES FROM (5) TO (MAXVALUE);
INSERT INTO sales SELECT i, i % 10, repeat('o', 60) FROM generate_series(1, 2000) i;
"""
FEW = [(Failpoint.PARTITIONS_READ, 1)]
MANY = [(Failpoint.COPY_RUNNING, 1), *FEW, (Failpoint.COMMIT_BEFORE, 2), (Failpoint.COMMIT_AFTER, 3)]
"""Only copies pass the first two, any batch passes the others: the last one may be passed after the load."""


class Changes(Load):
    """Rows that come, go, change, and move from one partition to the other."""

    def transact(self, connection: Session) -> None:
        at, number = self.rng.randrange(1, 2000), 10_000 + self.count
        with connection.transaction():
            connection.execute("UPDATE sales SET part = 9 - part WHERE id = %s", [at])
            connection.execute("UPDATE sales SET note = note || 'x' WHERE id BETWEEN %s AND %s", [at, at + 3])
            connection.execute("DELETE FROM sales WHERE id = %s", [at + 1])
            connection.execute("INSERT INTO sales VALUES (%s, %s, 'new')", [number, number % 10])


@pytest.fixture
def replica(database: Database, mart: ConnectionSpec, tmp_path: Path) -> Iterator[BadDay]:
    database.execute(SALES)
    with subscribed(database, mart, ["sales"], tmp_path) as made:
        made.wait_live()
        made.close()
        yield made


def generation(replica: BadDay) -> int:
    """Of the partition, as the target has it now that no engine holds it."""
    target = open_target(replica.spec.target, EngineSettings(home=replica.home))
    try:
        progress = target.progress(replica.spec.name)
        assert progress is not None
        return generation_of(progress.loads.get(replica.spec.tables[0].table, {}), "public.sales_low")
    finally:
        target.close()


def ask(process: subprocess.Popen[str], replica: BadDay, armed: Callable[[], None] = lambda: None) -> None:
    assert process.stdin is not None
    wait_for(process, "sales live")
    armed()
    process.stdin.write(f"reload {replica.spec.tables[0].table} public.sales_low\n")
    process.stdin.flush()


@pytest.mark.parametrize(
    "deaths", [pytest.param(FEW, id="few"), pytest.param(MANY, marks=pytest.mark.chaos, id="many")]
)
def test_a_partition_is_loaded_in_spite_of_deaths(
    replica: BadDay, armed: Path, deaths: Sequence[tuple[Failpoint, int]]
) -> None:
    with Changes(replica.database.connect, 11, rest_s=0.01):
        for point, passing in deaths:
            with engine(replica, QueueMode.MEMORY, armed) as process:
                ask(process, replica, partial(arm, armed, point, passing))
                process.wait(60)
            assert generation(replica) in {1, 2}
        with engine(replica, QueueMode.MEMORY, armed) as process:
            ask(process, replica)
            wait_for(process, "reload succeeded")
        assert generation(replica) == 2
        replica.again()
        replica.wait_live()
    replica.assert_equal()
