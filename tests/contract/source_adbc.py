"""Databases read by drivers of ADBC as the source under contract: SQLite files and PostgreSQL, only queried."""

from __future__ import annotations

import json
from typing import Any

from engine.model.source import Source
from engine.model.subscription import FOLDER, CaptureSpec, ConnectionSpec
from engine.sources.adbc_queries.source import open_source
from tests.contract.source_material import Can
from tests.contract.source_postgres import QueriesOrigin
from tests.contract.source_sqlite import SqliteOrigin


class AdbcSqliteOrigin(SqliteOrigin):
    """Origin over one file."""

    CAN = frozenset({Can.SELECT_COLUMNS, Can.SNAPSHOT_ALONE, Can.BEGIN_ANYWHERE})

    def _source(self, spec: ConnectionSpec) -> Source:
        kept = self._path.parent / "cycles" / self.slot
        settings: dict[str, Any] = {"driver": "adbc_driver_sqlite", "uri": f"file:{self._path}?mode=ro"}
        capture = CaptureSpec("query_diff", {"every_seconds": 3600, FOLDER: str(kept)})
        return open_source(ConnectionSpec(spec.name, "adbc", settings, {}, capture))


class AdbcPostgresOrigin(QueriesOrigin):
    """Origin over one database. Its driver does not tell the order of a key's columns, so one key is declared."""

    CAN = frozenset({Can.SELECT_COLUMNS, Can.WRITE_AT_ONCE, Can.SNAPSHOT_ALONE, Can.BEGIN_ANYWHERE})

    def _source(self, spec: ConnectionSpec) -> Source:
        settings: dict[str, Any] = {"driver": "adbc_driver_postgresql", "uri": self._database.dsn}
        tables = json.dumps({"public.order_lines": {"key": ["n", "order_id"]}})
        kept = str(self._folder / self.slot)
        capture = CaptureSpec("query_diff", {"every_seconds": 3600, FOLDER: kept, "tables": tables})
        return open_source(ConnectionSpec(spec.name, "adbc", settings, {}, capture))
