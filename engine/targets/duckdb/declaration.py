"""DuckDB as a kind of target."""

from __future__ import annotations

from engine.duckdb.declaration import DUCKDB_CONNECTION
from engine.kinds import Imported, TargetKind

DUCKDB = TargetKind(
    DUCKDB_CONNECTION,
    Imported("engine.targets.duckdb.opening:open_connection"),
    preloaded=(
        "engine.targets.duckdb.opening",
        "engine.targets.duckdb.query_process",
        "engine.targets.duckdb.catalog_query",
    ),
)
