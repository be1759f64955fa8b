"""DuckDB as a kind of target: the settings of a file, and what it can do."""

from __future__ import annotations

from pydantic import Field

from engine.kinds import ConnectionKind, Imported, KindSettings, Size, SqlDialect, TargetKind, Text


class DuckDbSettings(KindSettings):
    """A DuckDB file on the engine's machine."""

    path: Text = Field(
        description="The file; created if missing. Only the engine may open it. A relative path is relative to the engine's data folder"
        " (`PENSTOCK_HOME`); a check of the connection as a target shows the absolute path."
    )
    memory_limit: Size | None = Field(
        default=None,
        description="Memory limit of DuckDB, such as `2GiB`; by default the engine's `PENSTOCK_DUCKDB_MEMORY_MB`.",
    )
    threads: int | None = Field(default=None, ge=1, le=1024)
    spill_limit: Size | None = Field(default=None, description="Disk space for intermediate results, such as `10GiB`.")
    checkpoint_threshold: Size | None = Field(
        default=None, description="Size of the write-ahead file that starts a checkpoint."
    )


DUCKDB = TargetKind(
    ConnectionKind(
        "duckdb",
        "DuckDB",
        DuckDbSettings,
        {
            "path": "File",
            "memory_limit": "Memory at most",
            "threads": "Threads at most",
            "spill_limit": "Disk space for intermediate results",
            "checkpoint_threshold": "Checkpoint from",
        },
        frozenset(),
        embedded=True,
        ignores_case=True,
        dialect=SqlDialect("duckdb", ("main", "public"), ignores_case=True),
        own_schemas=frozenset({"penstock", "information_schema", "pg_catalog"}),
    ),
    Imported("engine.targets.duckdb.opening:open_connection"),
    preloaded=(
        "engine.targets.duckdb.opening",
        "engine.targets.duckdb.query_process",
        "engine.targets.duckdb.catalog_query",
    ),
)
