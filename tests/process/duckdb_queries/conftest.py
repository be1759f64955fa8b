"""Subscriptions of DuckDB files, captured by queries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.model.subscription import CaptureSpec, ConnectionSpec
from engine.sources.duckdb.database import ReadDatabase
from engine.sources.duckdb_queries.place import DuckDbFile
from engine.sources.duckdb_queries.terms import DUCKDB_QUERIES_TERMS
from tests.fixtures.duckdb_program import DuckDbProgram
from tests.process.sqlite_triggers.conftest import replicate

__all__ = ["replicate", "shop"]


class Shop:
    """A DuckDB file of a test's own, to which another process writes. `keys`: of tables, as declared."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys: dict[str, list[str]] = {}
        self.program = DuckDbProgram(path)
        self.run = self.program.run
        self.run("SELECT 1")

    @property
    def connection(self) -> ConnectionSpec:
        tables = {f"main.{name}": {"key": key} for name, key in self.keys.items()}
        capture = CaptureSpec("query_diff", {"every_seconds": 3600, "tables": json.dumps(tables)})
        settings: dict[str, Any] = {"path": str(self.path), "snapshot_folder": str(self.path.parent)}
        return ConnectionSpec("shop", "duckdb", settings, {}, capture)

    @property
    def database(self) -> ReadDatabase:
        return ReadDatabase(DuckDbFile(self.connection), DUCKDB_QUERIES_TERMS)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    found = Shop(tmp_path / "shop.duckdb")
    yield found
    found.program.close()
