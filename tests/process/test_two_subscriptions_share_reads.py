"""Two subscriptions of one engine over one table: their cycles share the reads, and both targets are as the source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from server.cli.client import Document
from tests.fixtures.load import Load
from tests.fixtures.postgres import Session
from tests.fixtures.rig import SUBSCRIPTION, Rig

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.xdist_group("spark")]

_EVERY_S = 2
_CAPTURE: Document = {"kind": "query_diff", "every_seconds": _EVERY_S}
_SECOND = "second"
_ROWS = 5_000
_LIVE_S = 120.0
_SHARED_S = 60.0
_CYCLES = 3


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig(durable=False, capture=_CAPTURE) as made:
        with made.connect() as connection:
            connection.execute("CREATE TABLE orders (id bigint PRIMARY KEY, n int, secret text)")
            connection.execute(f"INSERT INTO orders SELECT i, i % 10, 's' || i FROM generate_series(1, {_ROWS}) AS i")
        made.declare([{"schema": "public", "name": "orders"}])
        made.api.put("/connections/other", {"kind": "duckdb", "settings": {"path": str(made.home / "other.duckdb")}})
        table = {"schema": "public", "name": "orders", "include_columns": ["id", "n"], "where": "n < 5"}
        body = {"source": "source", "target": "other", "desired_state": "running", "tables": [table]}
        made.api.put(f"/subscriptions/{_SECOND}", {**body, "capture": _CAPTURE})
        made.wait_live(1)
        made.wait_until(lambda: _states(made) == ["live"], _LIVE_S, "the second subscription was live")
        yield made


class Orders(Load):
    def transact(self, connection: Session) -> None:
        key, n = self.rng.randrange(1, _ROWS), self.rng.randrange(10)
        statements = [
            f"UPDATE orders SET n = {n} WHERE id % 499 = {key % 499}",
            f"DELETE FROM orders WHERE id = {key}",
            f"INSERT INTO orders VALUES ({key}, {n}, 'new') ON CONFLICT DO NOTHING",
        ]
        connection.execute(self.rng.choice(statements).encode())


def _states(rig: Rig) -> list[str]:
    return [table["state"] for table in rig.api.items(f"/subscriptions/{_SECOND}/tables")]


def _shared(rig: Rig) -> int:
    """Cycles so far that used the reads of the other subscription."""
    names = (SUBSCRIPTION, _SECOND)
    cycles = [cycle for name in names for cycle in rig.api.items(f"/subscriptions/{name}/cycles")]
    return sum(cycle["rows_shared"] > 0 for cycle in cycles)


def _rows(rig: Rig, name: str, sql: str) -> list[list[Any]]:
    rows: list[list[Any]] = rig.api.post(f"/subscriptions/{name}/queries", {"sql": sql})["rows"]
    return rows


def test_reads_are_shared_and_both_targets_are_as_the_source(rig: Rig) -> None:
    before = _shared(rig)
    with Orders(rig.connect, 1, rest_s=0.02):
        rig.wait_until(lambda: _shared(rig) >= before + _CYCLES, _SHARED_S, "cycles had used each other's reads")
    for name, where in ((SUBSCRIPTION, "true"), (_SECOND, "n < 5")):
        rig.api.post(f"/subscriptions/{name}/freshness-waits", {"timeout_ms": 60_000})
        with rig.connect() as connection:
            there = connection.execute(f"SELECT id, n FROM orders WHERE {where} ORDER BY id".encode()).fetchall()
        assert _rows(rig, name, "SELECT id, n FROM orders ORDER BY id LIMIT 10000") == [list(row) for row in there]
