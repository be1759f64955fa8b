"""Batches that are committed while a transaction reads the file: no row that each of them changes is updated in place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.model.identity import TableId, TableName
from engine.targets.duckdb.staging import StagingConnection
from engine.targets.duckdb.target import DuckDbTarget
from tests.contract.target_material import Pipeline, changes, inserts, structure

T = TableId("t0a")
items = structure(TableName("public", "items"), {"id": "int4", "word": "text"}, ["id"])


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    target = DuckDbTarget(tmp_path / "mart.duckdb")
    pipeline = Pipeline(target).claim()
    pipeline.load(T, items, [(-1, "old")])
    yield pipeline
    target.close()


@pytest.fixture
def updates(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The UPDATE statements of the target's writer. Engines of other tests may write to other files at the same time."""
    assert isinstance(pipeline.target, DuckDbTarget)
    seen: list[str] = []
    execute, writer = StagingConnection.execute, pipeline.target._open().writer

    def noted(self: StagingConnection, sql: str, *values: Any) -> Any:
        if self is writer and sql.startswith("UPDATE"):
            seen.append(sql)
        return execute(self, sql, *values)

    monkeypatch.setattr(StagingConnection, "execute", noted)
    return seen


def test_records_are_replaced_while_a_transaction_reads(pipeline: Pipeline, updates: list[str]) -> None:
    pipeline.change(T, items, changes(T, insert=inserts(items, [(1, "a")])))
    assert updates
    with pipeline.target._reading() as (connection, _):  # type: ignore[attr-defined]
        connection.execute("BEGIN TRANSACTION READ ONLY")
        assert connection.execute("SELECT count(*) FROM public.items").fetchall() == [(2,)]
        updates.clear()
        for n in range(2, 6):
            pipeline.change(T, items, changes(T, insert=inserts(items, [(n, "a")])))
        assert updates == []
        assert connection.execute("SELECT count(*) FROM public.items").fetchall() == [(2,)]
    assert pipeline.look("SELECT count(*), max(batch) FROM penstock.progress") == [(1, pipeline.batch)]
    pipeline.change(T, items, changes(T, insert=inserts(items, [(9, "a")])))
    assert updates
