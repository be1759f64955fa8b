"""Databases that drivers of ADBC read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.model.subscription import CaptureSpec, ConnectionSpec
from engine.sources.adbc_queries.declaration import DRIVER
from engine.sources.adbc_queries.terms import ADBC_QUERIES_TERMS
from engine.sources.arrow_rows.place import DriverPlace, call_of
from engine.sources.duckdb.database import ReadDatabase
from tests.process.sqlite_triggers.conftest import File, replicate

__all__ = ["replicate", "shop"]


def connection(
    settings: dict[str, Any], secrets: dict[str, str] | None = None, tables: dict[str, Any] | None = None
) -> ConnectionSpec:
    """A source that the test begins cycles of. `tables`: `capture.tables`."""
    capture = CaptureSpec("query_diff", {"every_seconds": 3600, "tables": json.dumps(tables or {})})
    return ConnectionSpec("shop", "adbc", settings, secrets or {}, capture)


def database(spec: ConnectionSpec) -> ReadDatabase:
    return ReadDatabase(DriverPlace(spec, call_of(spec, DRIVER)), ADBC_QUERIES_TERMS)


class Shop(File):
    """A SQLite file of a test's own. `tables`: `capture.tables`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.tables: dict[str, Any] = {}

    @property
    def connection(self) -> ConnectionSpec:
        settings = {"driver": "adbc_driver_sqlite", "uri": f"file:{self.path}?mode=ro"}
        return connection(settings, tables=self.tables)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop.db")
