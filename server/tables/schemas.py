"""Bodies of the table endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from engine.model.table_state import TableStateKind
from server.assessment.schemas import Copied, TableHealth
from server.declarations.policies import TableFreshnessBody
from server.declarations.table_options import ColumnOptions, Identifier, Operation, patches_options, shows_options
from server.naming import Aliased, QualifiedName
from server.remedies import Remedied


class TableDesiredState(StrEnum):
    """The state that the user requests for a table."""

    RUNNING = "running"
    PAUSED = "paused"


class OnRemoval(StrEnum):
    """What to do with the table on the target."""

    KEEP = "keep"
    DROP = "drop"


class TargetTable(StrEnum):
    """What happened to the target's table after the removal of a table."""

    KEPT = "kept"
    TO_BE_DROPPED = "to_be_dropped"
    DROPPED = "dropped"
    NOT_DROPPED = "not_dropped"


@patches_options
class TablePatch(BaseModel):
    """Changes to a table. Members that are left out stay, null restores the default, `columns` is merged by name."""

    model_config = ConfigDict(
        extra="forbid", hide_input_in_errors=True, json_schema_extra={"examples": [{"desired_state": "paused"}]}
    )

    desired_state: TableDesiredState | None = None
    key: list[Identifier] | None = None
    operations: list[Operation] | None = None
    where: str | None = None
    insert_only: bool | None = None
    into_existing: bool | None = None
    columns: dict[Identifier, ColumnOptions | None] | None = None
    freshness: TableFreshnessBody | None = None


class TableTarget(QualifiedName):
    """The table's name on the target."""


class SharedView(QualifiedName):
    """The shared table that shows a table's rows, and the value that identifies them in it."""

    source_column: str
    source_value: str


class VerifiedView(BaseModel):
    """The last comparison of a table with its source."""

    position: str | None = Field(description="Position at which both sides were compared.")
    at: datetime
    method: str = Field(description="How it was compared: `rows` or `checksum`.")
    equal: bool
    sample: float = Field(
        default=1.0,
        description="The share of the table that was to be compared; below 1, it was a sample: the table is not verified as a whole.",
    )
    whole_at: datetime | None = Field(default=None, description="The last comparison of the whole table.")
    source_rows: int = Field(description="Rows of the source that were compared.")
    target_rows: int = Field(description="Rows of the target that were compared.")
    verification: str = Field(description="Id of the verification, which lists what differs.")
    before_copy: bool = Field(
        description="Its rows were replaced since, by a copy, a reload, or a reload of partitions: the result says nothing of them."
    )
    overdue: bool = Field(description="It was longer ago than `verify.every_seconds`; false without a schedule.")


class VerificationProblem(BaseModel):
    """Why the schedule could not compare a table."""

    at: datetime = Field(description="The end of the last attempt.")
    code: str
    detail: str
    remedy: str | None
    attempts: int = Field(description="Attempts without a result, one after another.")
    retry_at: datetime = Field(description="The next attempt is not before.")


class VerifiedShare(BaseModel):
    """How much of a subscription was found equal to its source, by comparisons of whole tables within `verify.every_seconds`, and not
    copied since."""

    tables: int
    verified_tables: int
    tables_ratio: float | None = Field(description="Share of the tables; null if it has none.")
    rows_ratio: float | None = Field(
        description="Share of the rows, by the counts of the last comparison or copy; a table counts with at least one row."
    )
    sampled_tables: int = Field(
        default=0,
        description="Number of other tables of which a sample was found equal within that time, and which are not known to differ.",
    )
    sampled_ratio: float | None = Field(default=None, description="Share of these tables; null if it has none.")
    oldest_at: datetime | None = Field(
        description="The comparison that is longest ago; null if a table was never compared."
    )


@shows_options
class TableView(Aliased, Remedied):
    """A table of a subscription."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "t3f2a9c81d07e",
                    "schema": "public",
                    "name": "orders",
                    "target": {"schema": "public", "name": "orders"},
                    "state": "copying",
                    "reason": None,
                    "remedy": None,
                    "health": {"status": "moving", "reason": None, "remedy": None, "following": False},
                    "desired_state": "running",
                    "copied": {"rows": 120000, "bytes": 14000000, "percent": 41.5, "eta_seconds": 12.0},
                    "key": [],
                    "operations": ["delete", "insert", "truncate", "update"],
                    "where": None,
                    "insert_only": False,
                    "columns": {},
                    "into_existing": False,
                    "priority": 0,
                    "refused_rows": "park",
                    "deletes": "delete",
                    "history": False,
                    "rows_set_aside": 0,
                    "created_at": "2026-05-04T10:00:00Z",
                }
            ]
        },
    )

    id: str
    schema_name: str = Field(validation_alias="schema", serialization_alias="schema")
    name: str
    target: TableTarget
    state: TableStateKind
    state_since: datetime | None = None
    code: str | None = Field(default=None, description="Stable name of the reason.")
    reason: str | None = None
    health: TableHealth
    desired_state: TableDesiredState
    copied: Copied
    key: list[str] = Field(description="The declared key; empty if the source's key is used.")
    operations: list[Operation]
    where: str | None = None
    insert_only: bool
    columns: dict[str, ColumnOptions]
    into_existing: bool
    freshness: TableFreshnessBody | None = Field(
        default=None, description="Its own freshness goal; null if that of the subscription applies."
    )
    shared_into: SharedView | None = Field(
        default=None, description="The shared table that shows its rows together with those of other sources."
    )
    rows_set_aside: int = Field(
        default=0, description="Rows in quarantine because the target rejected them, including skipped ones."
    )
    verified: VerifiedView | None = Field(
        default=None, description="Its last comparison with the source; null: none yet."
    )
    verification_problem: VerificationProblem | None = Field(
        default=None, description="Why the schedule of verifications could not compare it the last time."
    )
    target_table: TargetTable | None = Field(
        default=None,
        description="Of a removed table: what happened to its table on the target. An event says why it was `not_dropped`.",
    )
    from_pattern: bool = Field(default=False, description="A pattern of the subscription added it.")
    created_at: datetime

    def known_arguments(self) -> dict[str, str | None]:
        return {"table": f"{self.schema_name}.{self.name}"}

    def name_actions(self, known: Mapping[str, str | None]) -> None:
        super().name_actions(known)
        self.health.name_actions({**known, **self.known_arguments()})
