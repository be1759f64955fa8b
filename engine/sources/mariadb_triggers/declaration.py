"""Triggers with a shadow log as a way to capture MariaDB."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from engine.kinds import Consistency, Imported, SourceKind
from engine.sources.mariadb.declaration import MARIADB_CONNECTION
from engine.sources.mariadb_triggers.terms import MARIADB_TRIGGERS_TERMS
from engine.sources.shadow_log.declaration import TriggersCapture


class MariaDbTriggersCapture(TriggersCapture):
    """How changes are recorded on the source, and read."""

    words: ClassVar[str] = (
        "Triggers record each change in a shadow log, the database penstock on the source: three triggers on each table, which cost each"
        " writing transaction time, and more where foreign keys cascade. Changes are read in windows; only the end of a window is a state"
        " that the source had. After ALTER TABLE, TRUNCATE or RENAME a table is copied again; and if a column was dropped or renamed, or"
        " the table was renamed, writes to it fail until the triggers have been created again."
    )
    consistency: ClassVar[Consistency] = Consistency.WINDOWS

    kind: Literal["triggers"] = Field(default="triggers", description=words)


MARIADB_TRIGGERS = SourceKind(
    MARIADB_CONNECTION,
    MariaDbTriggersCapture,
    MARIADB_TRIGGERS_TERMS,
    Imported("engine.sources.mariadb_triggers.source:MariaDbTriggerSource"),
    Imported("engine.sources.mariadb_triggers.source:warm"),
    preloaded=("engine.sources.mariadb_triggers.source",),
)
