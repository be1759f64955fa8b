"""DuckDB as a kind of connection: the settings of a file, and what it can do as a target."""

from __future__ import annotations

from pydantic import Field

from engine.kinds import ConnectionKind, KindSettings, Size, SqlDialect, Text
from engine.model.masks import MASK_KEY


class DuckDbSettings(KindSettings):
    """A DuckDB file on the engine's machine."""

    path: Text = Field(
        description="The file. As a target it is created if missing, only the engine may open it, and a relative path is relative to the"
        " engine's data folder (`PENSTOCK_HOME`); a check of the connection as a target shows the absolute path. As a source it needs an"
        " absolute path, on no network file system."
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
    snapshot_folder: Text | None = Field(
        default=None,
        description="For a source: folder for temporary copies of the file, which cycles read; each is as large as the file. By default"
        " the system's folder for temporary files.",
    )


DUCKDB_CONNECTION = ConnectionKind(
    "duckdb",
    "DuckDB",
    DuckDbSettings,
    {
        "path": "File",
        "memory_limit": "Memory at most",
        "threads": "Threads at most",
        "spill_limit": "Disk space for intermediate results",
        "checkpoint_threshold": "Checkpoint from",
        "snapshot_folder": "Folder for temporary copies",
        MASK_KEY: "Key of hashed columns",
    },
    frozenset({MASK_KEY}),
    embedded=True,
    stages_changes=True,
    ignores_case=True,
    dialect=SqlDialect("duckdb", ("main", "public"), ignores_case=True),
    own_schemas=frozenset({"penstock", "information_schema", "pg_catalog"}),
)
