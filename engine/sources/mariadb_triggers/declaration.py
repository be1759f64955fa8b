"""MariaDB as a kind of connection, and triggers with a shadow log as the way to capture it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from engine.kinds import ConnectionKind, Consistency, Imported, KindSettings, SourceKind, Text
from engine.model.masks import MASK_KEY
from engine.sources.mariadb_triggers.terms import MARIADB_TRIGGERS_TERMS
from engine.sources.shadow_log.declaration import TriggersCapture


class MariaDbSettings(KindSettings):
    """A MariaDB server. Host and files are as seen from the engine's machine."""

    host: Text = Field(description="Name or address, or the path of a Unix socket.")
    port: int = Field(default=3306, ge=1, le=65535)
    database: Text = Field(description="The database whose tables are listed.")
    user: Text
    tls: Literal["disable", "require", "verify-full"] = "disable"
    tls_ca: Text | None = Field(default=None, description="File with trusted certificates.")


MARIADB_CONNECTION = ConnectionKind(
    "mariadb",
    "MariaDB",
    MariaDbSettings,
    {"tls": "Encryption", "tls_ca": "Certificates to trust", MASK_KEY: "Key of hashed columns"},
    frozenset({"password", MASK_KEY}),
    own_schemas=frozenset({"penstock", "information_schema", "mysql", "performance_schema", "sys"}),
)


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
