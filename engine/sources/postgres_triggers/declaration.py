"""Triggers and a shadow log as a way to capture PostgreSQL: its settings in a subscription."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from engine.kinds import SPEC, Capture, Imported, SourceKind, SourceQueries
from engine.model.subscription import GuardPolicy
from engine.postgres.declaration import POSTGRES_CONNECTION
from engine.sources.postgres_triggers.terms import POSTGRES_TRIGGERS_TERMS

_GUARD = GuardPolicy()


class PostgresTriggersCapture(Capture):
    """How changes are recorded on the source, and read."""

    title: ClassVar[str] = "Triggers"
    words: ClassVar[str] = (
        "Triggers record each change in a shadow log, the schema penstock on the source. For databases without logical decoding: it needs"
        " no replication role and no server setting, but costs each writing transaction time, and four triggers on each table."
    )

    kind: Literal["triggers"] = Field(default="triggers", description=words)
    budget_bytes: int = Field(
        default=SPEC["retained_log_budget_bytes"],
        ge=1024**2,
        description="Size of the shadow log above which recording is stopped to protect the source's disk; all tables must then be copied"
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


POSTGRES_TRIGGERS = SourceKind(
    POSTGRES_CONNECTION,
    PostgresTriggersCapture,
    POSTGRES_TRIGGERS_TERMS,
    Imported("engine.sources.postgres_triggers.source:TriggerSource"),
    Imported("engine.sources.postgres_triggers.json_rows:warm"),
    preloaded=("engine.sources.postgres_triggers.source",),
    queries=SourceQueries(
        Imported("engine.sources.postgres.queries:rows_of"), Imported("engine.sources.postgres.queries:run_query")
    ),
)
