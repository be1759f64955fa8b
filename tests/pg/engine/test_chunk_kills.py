"""Engines that die while they copy a large table chunk by chunk: recorded chunks are not read again, and the copy equals the source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engine.connectors import open_target
from engine.model.copies import StandingCopy
from engine.model.subscription import ConnectionSpec, QueueMode
from engine.platform.failpoints import Failpoint
from engine.platform.settings import EngineSettings
from tests.fixtures.load import Load
from tests.fixtures.postgres import Database, Session
from tests.fixtures.replication import table
from tests.pg.bad_days.conftest import BadDay
from tests.pg.engine.killed_engines import arm, engine, subscribed

pytestmark = pytest.mark.pg

ROWS = 6000
CHUNK = 64 * 1024
SHOP = f"""
CREATE TABLE orders (id bigint PRIMARY KEY, note text);
INSERT INTO orders SELECT i, repeat('o', 60) FROM generate_series(1, {ROWS}) i;
ANALYZE orders;
"""
FEW = [(Failpoint.CHUNK_TAKEN, 2), (Failpoint.CHUNK_READ, 2), (Failpoint.HANDOVER_BEFORE, 1)]
MANY = [
    (Failpoint.COPY_RUNNING, 3),
    (Failpoint.CHUNK_TAKEN, 2),
    (Failpoint.COMMIT_BEFORE, 3),
    (Failpoint.CHUNK_READ, 2),
    (Failpoint.COMMIT_AFTER, 3),
    (Failpoint.HANDOVER_BEFORE, 1),
]


class Changes(Load):
    """Transactions that insert, delete, update and move rows of the whole table."""

    def transact(self, connection: Session) -> None:
        at, to = self.rng.randrange(1, ROWS), self.rng.randrange(1, ROWS)
        with connection.transaction():
            connection.execute("UPDATE orders SET note = note || 'x' WHERE id BETWEEN %s AND %s", [at, at + 5])
            connection.execute("DELETE FROM orders WHERE id = %s", [to])
            connection.execute("UPDATE orders SET id = %s WHERE id = %s", [to, at])
            connection.execute("INSERT INTO orders VALUES (%s, 'new') ON CONFLICT DO NOTHING", [at])


@pytest.fixture
def replica(
    database: Database, mart: ConnectionSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BadDay]:
    monkeypatch.setenv("PENSTOCK_COPY_STRETCH_BYTES", str(CHUNK))
    database.execute("CREATE TABLE small (id int PRIMARY KEY)")
    database.execute(SHOP)
    with subscribed(database, mart, ["small"], tmp_path) as made:
        made.wait_live()
        made.close()
        yield made


def recorded(replica: BadDay) -> StandingCopy | None:
    """The target's record of the unfinished copy, read while no engine uses the target; None if there is none."""
    target = open_target(replica.spec.target, EngineSettings(home=replica.home))
    try:
        progress = target.progress(replica.spec.name)
        return next(iter(progress.copies.values()), None) if progress is not None else None
    finally:
        target.close()


def lower_bounds(output: str) -> list[int]:
    chunks = [line for line in output.splitlines() if line.startswith("chunk") and "orders" in line]
    found = [re.search(r"> \('(-?\d+)'\)", line) for line in chunks]
    return [int(match[1]) if match else -1 for match in found]


@pytest.mark.parametrize(
    "deaths", [pytest.param(FEW, id="few"), pytest.param(MANY, marks=pytest.mark.chaos, id="many")]
)
def test_what_is_recorded_is_not_read_again(
    replica: BadDay, armed: Path, deaths: Sequence[tuple[Failpoint, int]]
) -> None:
    orders = table("orders")
    replica.spec = replace(replica.spec, tables=(*replica.spec.tables, orders))
    standing: StandingCopy | None = None
    with Changes(replica.database.connect, 7, rest_s=0.01):
        for point, passing in deaths:
            arm(armed, point, passing)
            with engine(replica, QueueMode.MEMORY, armed) as process:
                assert process.stdout is not None
                output = process.stdout.read()
            assert not (armed / point.value).exists(), output
            begun = lower_bounds(output)
            if standing is not None:
                assert "copy_resumed" in output
                assert min(begun, default=ROWS) >= int(standing.upto.values[0])
            assert len(set(begun)) == len(begun), "a chunk was read twice by one engine"
            after = recorded(replica)
            assert standing is None or (after is not None and after.chunks >= standing.chunks), output
            standing = after
        assert standing is not None
        assert standing.chunks >= 5
        replica.again()
        replica.wait_live("orders")
    replica.assert_equal()
