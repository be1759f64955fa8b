"""Subscriptions of folders of files, captured by queries."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from engine.model.identity import TableId, TableName
from engine.model.subscription import CaptureSpec, ConnectionSpec, TableSpec
from engine.sources.duckdb.database import ReadDatabase
from engine.sources.files_queries.place import FilesFolder
from engine.sources.files_queries.terms import FILES_QUERIES_TERMS
from tests.process.sqlite_triggers.conftest import replicate

__all__ = ["csv", "goods", "parquet", "replicate"]

GOODS = TableName("files", "goods")


def goods(**options: Any) -> TableSpec:
    return TableSpec(TableId("t60"), GOODS, GOODS, **options)


class Folder:
    """A folder of a test's own. `tables`: `capture.tables`, without the schema."""

    def __init__(self, path: Path, form: str) -> None:
        self.path = path
        self.form = form
        self.tables: dict[str, dict[str, Any]] = {"goods": {"key": ["id"]}}
        self.settings: dict[str, str | int] = {}
        path.mkdir()

    @property
    def connection(self) -> ConnectionSpec:
        tables = json.dumps({f"files.{name}": each for name, each in self.tables.items()})
        capture = CaptureSpec("query_diff", {"every_seconds": 3600, "tables": tables})
        return ConnectionSpec(
            "shop", "files", {"path": str(self.path), "format": self.form, **self.settings}, {}, capture
        )

    @property
    def database(self) -> ReadDatabase:
        return ReadDatabase(FilesFolder(self.connection), FILES_QUERIES_TERMS)

    def put(self, name: str, query: str) -> Path:
        """Put a Parquet file with the rows of a query in place, by renaming it."""
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        fresh = path.with_name(f".{path.name}")
        with duckdb.connect(":memory:") as memory:
            memory.execute(f"COPY ({query}) TO '{fresh}' (FORMAT parquet)").fetchall()
        return fresh.replace(path)

    def write(self, name: str, text: str | bytes) -> Path:
        """The same with a text."""
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        fresh = path.with_name(f".{path.name}")
        fresh.write_bytes(text.encode() if isinstance(text, str) else text)
        return fresh.replace(path)


Put = Callable[[str, str], Path]


@pytest.fixture
def parquet(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "shop", "parquet")


@pytest.fixture
def csv(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "shop", "csv")
