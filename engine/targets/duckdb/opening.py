"""Opens a DuckDB file with the settings of the engine."""

from __future__ import annotations

from dataclasses import replace

from engine.model.subscription import ConnectionSpec
from engine.net.copy_text import decode_copy_text
from engine.platform.settings import EngineSettings
from engine.targets.duckdb.target import DuckDbTarget, open_target


def open_connection(connection: ConnectionSpec, settings: EngineSettings) -> DuckDbTarget:
    """The target of a connection; its own limits come before the engine's."""
    limits: dict[str, str | int] = {
        "memory_limit": f"{settings.duckdb_memory_mb}MiB",
        "threads": settings.duckdb_threads,
        "query_memory": settings.query_memory_mb << 20,
    }
    return open_target(replace(connection, settings={**limits, **connection.settings}), settings.home, decode_copy_text)
