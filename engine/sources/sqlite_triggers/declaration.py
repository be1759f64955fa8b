"""SQLite as a kind of connection, and triggers as the way to capture it: their settings."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints

from engine.kinds import SPEC, Capture, ConnectionKind, Imported, KindSettings, SourceKind
from engine.model.masks import MASK_KEY
from engine.model.subscription import GuardPolicy
from engine.sources.sqlite_triggers.terms import SQLITE_TRIGGERS_TERMS

_GUARD = GuardPolicy()
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


class SqliteTriggersCapture(Capture):
    """How changes are recorded in the file, and read."""

    title: ClassVar[str] = "Triggers"
    words: ClassVar[str] = (
        "Triggers record each change in tables of the file whose names begin with penstock_. Penstock writes to the file too, so programs"
        " that use it must wait for other writers (busy_timeout). Not recorded: writes of a program that turns triggers off, and"
        " incremental writes into BLOBs. While the file is in rollback-journal mode, writers wait for as long as a copy of it is made."
    )

    kind: Literal["triggers"] = Field(default="triggers", description=words)
    budget_bytes: int = Field(
        default=SPEC["retained_log_budget_bytes"],
        ge=1024**2,
        description="Size of the recorded changes above which recording is stopped to protect the disk; all tables must then be copied"
        " again. A warning event is recorded at half of it.",
    )

    def assigned(self) -> dict[str, Any]:
        guard = {
            "warn_share": _GUARD.warn_share,
            "persist_share": _GUARD.persist_share,
            "stop_copies_share": _GUARD.stop_copies_share,
            "name_transaction_share": _GUARD.name_transaction_share,
            "drop_slot_share": _GUARD.drop_slot_share,
            "drop_slot": True,
        }
        return {"capture": {"kind": self.kind}, "slot_budget_bytes": self.budget_bytes, "guard": guard}

    def log_budget(self) -> tuple[int, float]:
        return self.budget_bytes, _GUARD.warn_share


SQLITE_TRIGGERS = SourceKind(
    SQLITE_CONNECTION,
    SqliteTriggersCapture,
    SQLITE_TRIGGERS_TERMS,
    Imported("engine.sources.sqlite_triggers.source:SqliteSource"),
    Imported("engine.records.landing:warm"),
    preloaded=("engine.sources.sqlite_triggers.source",),
)
