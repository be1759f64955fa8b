"""Triggers and a shadow log as a way to capture PostgreSQL: its settings in a subscription."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Literal

from pydantic import Field

from engine.kinds import Imported, SourceKind, SourceQueries
from engine.postgres.declaration import POSTGRES_CONNECTION
from engine.sources.postgres_triggers.terms import POSTGRES_TRIGGERS_TERMS
from engine.sources.shadow_log.declaration import TriggersCapture


class PostgresTriggersCapture(TriggersCapture):
    """How changes are recorded on the source, and read."""

    words: ClassVar[str] = (
        "Triggers, four on each table, record each change in a shadow log, the schema penstock on the source. For databases without logical"
        " decoding: it needs no replication role and no server setting. Each transaction arrives whole, in an order in which it finds what"
        " it found on the source, and writes one more row for each row that it changes, which costs it time. Not possible: partitioned"
        " tables, row filters, origin none, tickets, DDL capture. Choose the log where it can be had."
    )

    kind: Literal["triggers"] = Field(default="triggers", description=words)
    install: bool = Field(
        default=True,
        description="If false, Penstock creates and drops nothing on the source: an administrator runs the statements that"
        " `POST /connections/{name}/change-triggers/plans` shows, and the user owns nothing. Then nothing limits the shadow log once the"
        " subscription has ended: the administrator drops the triggers.",
    )
    audit: bool = Field(
        default=False,
        description="The shadow log also records the user and the application of each change, for statements on the source. Once a"
        " subscription has asked for it, it stays recorded for the table.",
    )

    changed_columns: list[str] = Field(
        default_factory=list,
        max_length=1000,
        description="Tables, as `schema.name`, of whose updates only the key and the changed columns are recorded: for tables with large"
        " values that seldom change. Updates of narrow tables take longer with it. Tables without a key, with a row filter, or with types"
        " that JSON does not hold exactly are recorded whole.",
    )
    recorder: Literal["triggers", "application"] = Field(
        default="triggers",
        title="Who records the changes",
        description="Triggers, or the application, which writes rows of the table penstock.changes in the transactions that change the"
        " tables. Then no triggers are created.",
    )

    def assigned(self) -> dict[str, Any]:
        chosen: dict[str, int | str] = {
            "install": int(self.install),
            "audit": int(self.audit),
            "recorder": self.recorder,
            "changed_columns": json.dumps(sorted(self.changed_columns)),
        }
        usual = {"install": 1, "audit": 0, "recorder": "triggers", "changed_columns": "[]"}
        settings = {name: value for name, value in chosen.items() if value != usual[name]}
        found = super().assigned()
        if settings:
            found["capture"]["settings"] = settings
        return found


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
