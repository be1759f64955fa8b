"""Replicated tables: what the user declared, and what the engine last reported."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Index, text
from sqlmodel import Field, SQLModel

from engine.model.position import Lsn
from server.db.base import document, large, moment, position

_PRESENT = text("state <> 'removed'")


class TableRow(SQLModel, table=True):
    """One table of a subscription. A removed table stays as history; adding it again makes a new row with a new id."""

    __tablename__ = "tables"
    __table_args__ = (
        Index(
            "uq_tables_present_name",
            "subscription_id",
            "schema_name",
            "name",
            unique=True,
            sqlite_where=_PRESENT,
            postgresql_where=_PRESENT,
        ),
    )

    id: str = Field(primary_key=True, max_length=16)
    subscription_id: int = Field(foreign_key="subscriptions.id", ondelete="CASCADE", index=True)
    schema_name: str
    name: str
    target_schema: str
    target_name: str
    key: list[str] = document(default_factory=list)
    operations: list[str] = document(default_factory=list)
    where: str | None = None
    insert_only: bool = False
    map_as: dict[str, str] = document(default_factory=dict)
    into_existing: bool = False
    shared_into: dict[str, str] | None = document(default=None, nullable=True)
    """`schema`, `name`, `source_column` and `source_value` (engine.model.shared.SharedInto)."""
    include_columns: list[str] = document(default_factory=list)
    exclude_columns: list[str] = document(default_factory=list)
    rename: dict[str, str] = document(default_factory=dict)
    mask: dict[str, dict[str, Any]] = document(default_factory=dict)
    priority: int = 0
    freshness: dict[str, Any] | None = document(default=None, nullable=True)
    """Its own freshness goal: members of `server.declarations.policies.TableFreshnessBody`. None: that of the subscription."""
    refused_rows: str = Field(default="park", max_length=16)
    deletes: str = Field(default="delete", max_length=16)
    history: bool = False
    staging: bool = False
    """As its subscription."""
    rows_set_aside: int = 0
    differs: bool = False
    """A verification found differences from the source; since then it was not copied, and no comparison of the whole table found it
    equal."""
    verified_at: datetime | None = moment(default=None, nullable=True)
    """The time at which the result of its last comparison was reported; the members up to `verified_by` are of that result."""
    verified_position: Lsn | None = position(default=None, nullable=True)
    verified_method: str | None = Field(default=None, max_length=16)
    verified_equal: bool | None = None
    verified_source_rows: int | None = large(default=None, nullable=True)
    verified_target_rows: int | None = large(default=None, nullable=True)
    verified_by: str | None = Field(default=None, max_length=40)
    """Id of the verification."""
    verified_sample: float = Field(default=1.0, sa_column_kwargs={"server_default": "1"})
    """The share of the table that this comparison was of."""
    verified_whole_at: datetime | None = moment(default=None, nullable=True)
    """As `verified_at`, of the last comparison of the whole table."""
    reloaded_at: datetime | None = moment(default=None, nullable=True)
    """The time at which its newest copy began, or the newest reload of partitions ended: comparisons before it say nothing of its rows."""
    verify_tried_at: datetime | None = moment(default=None, nullable=True)
    """The end of the last attempt to compare it, by whomever and with whatever result."""
    verify_failures: int = 0
    """Attempts of the schedule without a result since the last one with a result."""
    verify_retry_at: datetime | None = moment(default=None, nullable=True)
    """The schedule does not try again before."""
    verify_problem: dict[str, Any] | None = document(default=None, nullable=True)
    """Why the last attempt of the schedule had no result: `at`, `code`, `detail`, `remedy`."""
    from_pattern: bool = False
    kept_out: bool = False
    """For a removed table: a user removed it, and no pattern adds a table of its name again."""
    desired_state: str = Field(max_length=16)
    target_table: str | None = Field(default=None, max_length=16)
    """For a removed table: the planned or completed treatment of its table on the target (TargetTable)."""

    state: str = Field(max_length=16)
    code: str | None = Field(default=None, max_length=64)
    reason: str | None = None
    remedy: str | None = None
    state_position: Lsn | None = position(default=None, nullable=True)
    state_at: datetime = moment()

    copied_rows: int | None = large(default=None, nullable=True)
    copied_bytes: int | None = large(default=None, nullable=True)
    copied_percent: float | None = None
    copied_eta_seconds: float | None = None
    copied_total_rows: int | None = large(default=None, nullable=True)
    copied_total_bytes: int | None = large(default=None, nullable=True)
    copied_rows_per_second: float | None = None
    copied_bytes_per_second: float | None = None
    copied_at: datetime | None = moment(default=None, nullable=True)
    """The time of the last report of its copy's figures."""
    copy_asked_at: datetime | None = moment(default=None, nullable=True)
    """The time at which it began to wait for its current or last copy."""

    stamp: str = Field(max_length=16)
    revision: int = 1
    created_at: datetime = moment()

    @property
    def full_name(self) -> str:
        """schema.name on the source, as texts for users and the subjects of events have it."""
        return f"{self.schema_name}.{self.name}"
