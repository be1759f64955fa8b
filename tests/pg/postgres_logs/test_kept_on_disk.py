"""A transaction of two databases that does not fit in memory, in the merged log and after a new beginning inside of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.sort.merge_records import Order
from engine.sources.postgres_logs import merged_stream
from engine.sources.postgres_logs.merged_stream import Keeping
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.waiting import wait_until
from tests.pg.postgres_logs.nodes import Copy, Nodes, nodes_on

LIMIT = 128 * 1024
OTHER = 10_000_000
"""What is added to the keys of the second node."""
ROWS = 90_000
"""Of each node: more than 20 times LIMIT of records on both together."""


def prepare_large(nodes: Nodes) -> None:
    """Prepare rows on both nodes whose amounts add up to nothing."""
    for number, session in enumerate(nodes.sessions):
        session.execute("BEGIN")
        session.execute(
            "INSERT INTO accounts SELECT n, CASE WHEN %s = 0 THEN n ELSE %s - n END FROM generate_series(%s::int, %s) AS n",
            [number, OTHER, 1000 + OTHER * number, 999 + OTHER * number + ROWS],
        )
        session.execute(f"PREPARE TRANSACTION 'large@{number}'".encode())


def test_a_transaction_larger_than_all_limits_is_in_the_copy_at_once(
    pg: EmbeddedPostgres,
    database_on: Callable[..., Database],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merged_stream, "CHUNK_BYTES", LIMIT)
    with nodes_on([database_on(pg) for _ in range(2)], 7) as nodes:
        copy = Copy(nodes, Order.STRICT, Keeping(tmp_path, LIMIT))
        try:
            nodes.local()
            prepare_large(nodes)
            nodes.nodes[1].insert_other()
            copy.reach()
            assert copy.stream is not None
            assert copy.stream.spooled_bytes > 20 * LIMIT
            for number in range(2):
                nodes.nodes[number].finish("COMMIT", f"large@{number}")
            before = len(copy.kept)
            full: list[int] = []

            def is_inside() -> bool:
                chunk = copy.follow()
                if chunk is not None and len(chunk.data) > LIMIT // 2:
                    full.append(len(chunk.data))
                return len(full) > 5

            wait_until(is_inside, what="some chunks of the transaction are read")
            assert max(full) < LIMIT + 1000
            assert len(copy.kept) == before
            copy.restart(0)
            assert copy.values != nodes.values()
            copy.reach()
            assert copy.values == nodes.values()
            assert copy.stream.spooled_bytes == 0
        finally:
            copy.close()
