"""Bodies of the subscription endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from engine.kinds import Consistency
from engine.model.subscription_state import DesiredState, SubscriptionState
from server.assessment.health import Health
from server.assessment.schemas import CopyTotals, LastFault
from server.declarations.captures import CONSISTENCY, CapturePolicy, read_capture
from server.declarations.policies import (
    POLICIES,
    ApplyBody,
    BatchBody,
    CopiesBody,
    FreshnessBody,
    QueuePolicy,
    SchemaChangesBody,
    VerifyBody,
)
from server.declarations.table_body import TableBody
from server.declarations.table_options import Identifier
from server.naming import Name
from server.remedies import Remedied
from server.tables.schemas import VerifiedShare

_EXAMPLE: dict[str, Any] = {
    "source": "shop",
    "target": "mart",
    "tables": [
        {"schema": "public", "name": "orders"},
        {"schema": "public", "name": "events", "insert_only": True},
        {"schema": "sales", "name": "*"},
    ],
    "desired_state": "running",
}
_LARGEST_LIST = 20_000
TargetSchemas = Annotated[
    dict[Identifier, Identifier],
    Field(
        max_length=1000,
        description="The target's schema by schema of the source, for the tables and patterns of this request that name none themselves."
        " Answers have it as `target` of each table.",
        examples=[{"public": "shop", "sales": "shop_sales"}],
    ),
]


_STAGING = (
    "Append each transaction to `penstock.uow` on the target, and its changes of the table `NAME` to `NAME__cd`, in the target"
    " transaction that applies them. It stays as it is."
)


def _in_schemas(tables: list[TableBody], schemas: Mapping[str, str]) -> list[TableBody]:
    """Raises ValueError for a schema of which there is no table."""
    unused = schemas.keys() - {table.schema_name for table in tables}
    if unused:
        raise ValueError(f"'target_schemas' names the schema '{min(unused)}', and 'tables' has no table of it")
    return [table.in_schemas(schemas) for table in tables]


class SubscriptionPut(BaseModel):
    """A whole subscription."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, json_schema_extra={"examples": [_EXAMPLE]})

    source: Name = Field(description="Name of a connection whose kind can be a source.")
    target: Name = Field(description="Name of a connection whose kind can be a target.")
    tables: list[TableBody] = Field(
        max_length=_LARGEST_LIST,
        description="Tables and patterns; a pattern includes existing tables and tables created later.",
    )
    target_schemas: TargetSchemas = Field(default_factory=dict)
    desired_state: DesiredState = DesiredState.RUNNING
    capture: CapturePolicy = Field(default_factory=lambda: read_capture({}))
    batch: BatchBody = Field(default_factory=BatchBody)
    apply: ApplyBody = Field(default_factory=ApplyBody)
    queue: QueuePolicy = Field(default_factory=QueuePolicy)
    schema_changes: SchemaChangesBody = Field(default_factory=SchemaChangesBody)
    copies: CopiesBody = Field(default_factory=CopiesBody)
    freshness: FreshnessBody = Field(default_factory=FreshnessBody)
    verify: VerifyBody = Field(default_factory=VerifyBody)
    staging: bool = Field(default=False, description=_STAGING)

    @model_validator(mode="after")
    def _placed(self) -> SubscriptionPut:
        self.tables = _in_schemas(self.tables, self.target_schemas)
        return self

    def policies(self) -> dict[str, dict[str, Any]]:
        """The given members of each policy, without defaults."""
        return {name: getattr(self, name).model_dump(exclude_unset=True, mode="json") for name in POLICIES}


class SubscriptionPatch(BaseModel):
    """Changes to a subscription. `tables` replaces the list. Policies, and objects within them such as `capture.guard`, are merged with
    the current values; null restores the default."""

    model_config = ConfigDict(
        extra="forbid", hide_input_in_errors=True, json_schema_extra={"examples": [{"desired_state": "paused"}]}
    )

    source: Name | None = None
    target: Name | None = None
    tables: list[TableBody] | None = Field(default=None, max_length=_LARGEST_LIST)
    target_schemas: TargetSchemas = Field(default_factory=dict)
    desired_state: DesiredState | None = None
    capture: dict[str, JsonValue] | None = None
    batch: dict[str, JsonValue] | None = None
    apply: dict[str, JsonValue] | None = None
    queue: dict[str, JsonValue] | None = None
    schema_changes: dict[str, JsonValue] | None = None
    copies: dict[str, JsonValue] | None = None
    freshness: dict[str, JsonValue] | None = None
    verify: dict[str, JsonValue] | None = None
    staging: bool | None = Field(default=None, description="Only the value that the subscription has.")

    @model_validator(mode="after")
    def _placed(self) -> SubscriptionPatch:
        if self.target_schemas and self.tables is None:
            raise ValueError("'target_schemas' applies to the 'tables' of the same request; send both")
        if self.tables is not None:
            self.tables = _in_schemas(self.tables, self.target_schemas)
        return self


class Positions(BaseModel):
    """Positions in the source's log; null if not yet known."""

    source: str | None = Field(default=None, description="The log's end.")
    captured: str | None = Field(default=None, description="Read up to here.")
    applied: str | None = Field(default=None, description="Durable on the target up to here.")
    as_of: datetime | None = Field(default=None, description="When the engine reported it.")


class Lag(BaseModel):
    """How far the live tables are behind; null if unknown, or if no table is live."""

    bytes: int | None = None
    seconds: float | None = Field(
        default=None,
        description="While no engine is connected or the engine does not report, the time since its last report is added. With the"
        " consistency `snapshots` it is the time since the snapshot of the last cycle that is visible.",
    )
    tables: int = Field(default=0, description="The number of live tables; the lag does not include others.")


class SubscriptionView(Remedied):
    """A subscription: its declaration and its current condition."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "shop",
                    **_EXAMPLE,
                    "state": "running",
                    "state_since": "2026-05-04T10:00:05Z",
                    "code": None,
                    "reason": None,
                    "remedy": None,
                    "health": {
                        "status": "running",
                        "word": "running",
                        "reason": "All 2 tables are live, 200 ms behind the source.",
                        "remedy": None,
                        "following": True,
                        "aspects": [],
                    },
                    "last_fault": None,
                    "positions": {
                        "source": "0/16B3748",
                        "captured": "0/16B3748",
                        "applied": "0/16B3710",
                        "as_of": "2026-05-04T10:12:00Z",
                    },
                    "lag": {"bytes": 56, "seconds": 0.2, "tables": 2},
                    "consistency": "transactions",
                    "staging": False,
                    "table_states": {"live": 2},
                    "slot": "penstock_shop_1f00c3d2",
                    "created_at": "2026-05-04T10:00:00Z",
                    "updated_at": "2026-05-04T10:00:00Z",
                }
            ]
        }
    )

    name: str
    source: str
    target: str
    tables: list[TableBody] = Field(description="Declared tables and patterns.")
    desired_state: DesiredState
    capture: CapturePolicy
    batch: BatchBody
    apply: ApplyBody
    queue: QueuePolicy
    schema_changes: SchemaChangesBody
    copies: CopiesBody
    freshness: FreshnessBody
    verify: VerifyBody
    staging: bool = Field(description="Its changes are kept in staging tables on the target.")
    state: SubscriptionState
    state_since: datetime | None = None
    code: str | None = Field(default=None, description="Stable name of the reason.")
    reason: str | None = None
    health: Health = Field(
        description="Its condition in one word, with the reason; the console and the CLI show the same."
    )
    last_fault: LastFault | None = None
    verified: VerifiedShare | None = Field(
        default=None, description="How much of it is verified; null without a schedule (`verify.every_seconds`)."
    )
    copying: CopyTotals | None = Field(default=None, description="Progress of its copies; null if none is in progress.")
    deleting: bool = False
    positions: Positions
    lag: Lag
    consistency: Consistency = Field(description=CONSISTENCY)
    retained_bytes: int | None = Field(default=None, description="Log that the slot retains on the source.")
    table_states: dict[str, int] = Field(description="Number of tables by state.")
    slot: str = Field(
        description="Name of the replication slot and the publications on the source, unless `capture` names existing ones."
    )
    created_at: datetime
    updated_at: datetime

    def known_arguments(self) -> dict[str, str | None]:
        of_target = (self.code or "").startswith("target_")
        return {"subscription": self.name, "connection": self.target if of_target else self.source}

    def name_actions(self, known: Mapping[str, str | None]) -> None:
        super().name_actions(known)
        for part in filter(None, (self.health, self.last_fault)):
            part.name_actions(self.known_arguments())
