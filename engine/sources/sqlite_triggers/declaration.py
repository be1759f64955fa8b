"""Triggers as a way to capture SQLite: their settings."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from engine.kinds import Consistency, Imported, SourceKind
from engine.sources.shadow_log.declaration import TriggersCapture
from engine.sources.sqlite.declaration import SQLITE_CONNECTION
from engine.sources.sqlite_triggers.terms import SQLITE_TRIGGERS_TERMS


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
