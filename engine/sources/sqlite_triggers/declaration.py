"""SQLite as a kind of connection, and triggers as the way to capture it: their settings."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from engine.kinds import ConnectionKind, Consistency, Imported, KindSettings, SourceKind
from engine.model.masks import MASK_KEY
from engine.sources.shadow_log.declaration import TriggersCapture
from engine.sources.sqlite_triggers.terms import SQLITE_TRIGGERS_TERMS

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


class SqliteTriggersCapture(TriggersCapture):
    """How changes are recorded in the file, and read."""

    words: ClassVar[str] = (
        "Triggers record each change in tables of the file whose names begin with penstock_. The target shows states of the file between"
        " two transactions only. Penstock writes to the file too, so programs that use it must wait for other writers (busy_timeout). Not"
        " recorded: writes of a program that turns triggers off, and incremental writes into BLOBs. While the file is in"
        " rollback-journal mode, writers wait for as long as a copy of it is made."
    )
    consistency: ClassVar[Consistency] = Consistency.WINDOWS

    kind: Literal["triggers"] = Field(default="triggers", description=words)


SQLITE_TRIGGERS = SourceKind(
    SQLITE_CONNECTION,
    SqliteTriggersCapture,
    SQLITE_TRIGGERS_TERMS,
    Imported("engine.sources.sqlite_triggers.source:SqliteSource"),
    Imported("engine.records.landing:warm"),
    preloaded=("engine.sources.sqlite_triggers.source",),
)
