"""A batch of scattered keys reads the row groups of DuckDB that may have them, not the whole table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine.targets.duckdb.database import Database
from engine.targets.duckdb.settings import DuckDbSettings

ROWS, STEP = 1_200_000, 1_000_000
"""The distance between keys keeps DuckDB from using a filter of single bits, which it has for keys that are close to each other."""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path / "mart.duckdb", DuckDbSettings())
    opened.writer.execute(f"CREATE TABLE t AS SELECT i * {STEP} AS id, 0 AS v FROM range({ROWS}) AS r(i)")
    opened.writer.execute("CHECKPOINT")
    yield opened
    opened.close(checkpoint=False)


def _scans(plan: Any) -> Iterator[tuple[int, int]]:
    if isinstance(plan, list):
        for each in plan:
            yield from _scans(each)
    elif isinstance(plan, dict):
        if "Table" in plan.get("extra_info", {}) and "row_groups_scanned" in plan:
            yield plan["row_groups_scanned"], plan["total_row_groups_to_scan"]
        yield from _scans(list(plan.values()))


@pytest.mark.parametrize("keys", [20, 60, 400, 998])
def test_only_row_groups_with_keys_are_read(database: Database, keys: int) -> None:
    half = keys // 2
    ids = [i * STEP for i in [*range(half), *range(ROWS - half, ROWS)]]
    with database.writer.staged(pa.table({"k0": pa.array(ids, pa.int64())})) as source:
        sql = f"EXPLAIN (ANALYZE, FORMAT json) DELETE FROM t USING {source} AS s WHERE t.id = s.k0"
        plan = json.loads(database.writer.execute(sql).fetchall()[0][1])

    assert database.writer.execute("SELECT count(*) FROM t").fetchall() == [(ROWS - keys,)]
    assert list(_scans(plan)) == [(2, 10)]
