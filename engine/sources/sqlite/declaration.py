"""SQLite as a kind of connection."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from engine.kinds import ConnectionKind, KindSettings
from engine.model.masks import MASK_KEY

_Absolute = Annotated[str, StringConstraints(min_length=2, max_length=1024, pattern=r"^/[^\x00]*$")]


class SqliteSettings(KindSettings):
    """A SQLite file on the engine's machine."""

    path: _Absolute = Field(
        description="Absolute path of the file, as seen from the engine's machine; on no network file system."
    )
    busy_timeout_ms: int = Field(
        default=10_000,
        ge=100,
        le=600_000,
        description="How long Penstock waits while another program writes to the file.",
    )
    snapshot_folder: _Absolute | None = Field(
        default=None,
        description="Folder for temporary copies of the file, which copies and comparisons read; each is as large as the file. By default"
        " the system's folder for temporary files.",
    )


SQLITE_CONNECTION = ConnectionKind(
    "sqlite",
    "SQLite",
    SqliteSettings,
    {
        "path": "File",
        "busy_timeout_ms": "Wait for other writers (ms)",
        "snapshot_folder": "Folder for temporary copies",
        MASK_KEY: "Key of hashed columns",
    },
    frozenset({MASK_KEY}),
    ignores_case=True,
)
