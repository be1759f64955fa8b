"""The settings of a subscription that all captures by queries have."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import Field, StringConstraints, ValidationInfo, field_validator, model_validator

from engine.kinds import OF_ANY_SOURCE, SPEC, Capture, Consistency, Policy, Text
from engine.model.subscription import GuardPolicy

DEFAULT_EVERY_S = 300
"""Seconds between two cycles: each reads the tables as a whole. Not measured."""
DEFAULT_METHOD = "incremental"
DEFAULT_SESSIONS = 2
"""Sessions that read one large table: two halve the time where the source has two cores to spare."""
SHARE = "share_scans"
TIMESTAMP = "timestamp"
DELETE_FLAG = "timestamp_delete_flag"
STAMPED = frozenset({TIMESTAMP, DELETE_FLAG})
"""Methods that find changed rows by a stamp."""
_GUARD = GuardPolicy()
ClockTime = Annotated[str, StringConstraints(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
"""A time of day in hours and minutes."""


class StampBelow(Policy):
    """A stamp of a relation below a view."""

    stamp_column: Text = Field(
        description="A column of the relation, as `stamp_column` of a table: every insert and update sets it to the time of the database."
    )
    columns: dict[Text, Text] = Field(
        min_length=1,
        max_length=32,
        description="Columns of the view, each with the column of the relation whose value it has: a changed row of the relation changes at"
        " most the rows of the view with equal values in all of them. With columns of the view's key, rows that leave the view are found.",
    )


class TableDetection(Policy):
    """How the changes of one table are found, where that differs from `method`."""

    method: (
        Literal["incremental", "row_checksum", "range_checksum", "outer_join", "timestamp", "timestamp_delete_flag"]
        | None
    ) = Field(
        default=None,
        description="As `method` of the capture. `timestamp`: cycles on schedule read only rows whose `stamp_column` is not older than"
        " the newest stamp of the last cycle, less the age of the oldest transaction that was open then. They find inserts and updates."
        " Cycles for waits, copies and comparisons, and one of `sweep_every`, compare all rows, and find deletes and wrong stamps too."
        " `timestamp_delete_flag`: the same, and rows whose `flag_column` is set count as deleted, so that each cycle finds them.",
    )
    stamp_column: Text | None = Field(
        default=None,
        description="For `timestamp` and `timestamp_delete_flag`: a column of type timestamp, date or timestamp with time zone that every"
        " insert and update sets to the time of the database, for example by a trigger. An index on it lets the source read few pages."
        " Of SQLite: a column of texts or numbers that never get smaller.",
    )
    flag_column: Text | None = Field(
        default=None,
        description="For `timestamp_delete_flag`: a boolean column, or one of type smallint, integer or bigint, by which the application"
        " marks a row as deleted. True, or another number than 0, means deleted; NULL does not.",
    )
    sweep_every: int = Field(
        default=12,
        ge=1,
        le=100_000,
        description="For `timestamp` and `timestamp_delete_flag`: one of so many cycles compares all rows.",
    )
    key: list[Text] | None = Field(
        default=None,
        min_length=1,
        max_length=32,
        description="Columns that identify a row of a view, or of a table without a key. The source does not keep them unique, so each"
        " cycle checks that they are, and that none is NULL; otherwise the table is parked. A table with a key of its own is compared"
        " by that.",
    )
    stamps_below: dict[Text, StampBelow] = Field(
        default_factory=dict,
        max_length=32,
        description="For `timestamp` of a view, in place of `stamp_column`: by `schema.name`, the tables below the view, and the columns by"
        " which their changed rows say which rows of the view may have changed. Cycles on schedule read only these.",
    )
    columns: dict[Text, Text] = Field(
        default_factory=dict,
        max_length=1000,
        description="For CSV files: the types of columns, such as `bigint`, `decimal(10,2)` or `timestamp`, by name; those that are not"
        " named are text. A text that is not exactly a value of its type is refused.",
    )

    @model_validator(mode="after")
    def _has_columns(self) -> Self:
        if self.stamps_below and (self.method != TIMESTAMP or self.stamp_column is not None or self.key is None):
            raise ValueError("stamps_below is for the method timestamp, with a key, and without stamp_column")
        if (self.method in STAMPED) is (self.stamp_column is None and not self.stamps_below):
            raise ValueError("stamp_column is for the methods timestamp and timestamp_delete_flag, which need it")
        if (self.method == DELETE_FLAG) is (self.flag_column is None):
            raise ValueError("flag_column is for the method timestamp_delete_flag, which needs it")
        if self.key is not None and len(set(self.key)) < len(self.key):
            raise ValueError("key names a column twice")
        if self.key is not None and self.method in STAMPED and not self.stamps_below:
            raise ValueError(
                f"the method {self.method} needs a key that the source keeps unique, so no `key` can be named"
            )
        return self


class QueryDiffCapture(Capture):
    """Base of captures by queries."""

    title: ClassVar[str] = "Queries"
    consistency: ClassVar[Consistency] = Consistency.SNAPSHOTS
    keeps_folder: ClassVar[bool] = True
    unstamped: ClassVar[str | None] = None
    """Why changed rows cannot be found by stamps; None if they can."""

    kind: Literal["query_diff"] = "query_diff"
    every_seconds: int = Field(
        default=DEFAULT_EVERY_S,
        ge=1,
        le=604_800,
        title="Cycle every … seconds",
        description="Seconds from the beginning of one cycle to that of the next. A wait for what is committed now begins one at once.",
    )
    method: Literal["incremental", "row_checksum", "range_checksum", "outer_join"] = Field(
        default="incremental",
        title="How changes are found",
        description="`incremental`: all rows are read, and hashed by Penstock. `row_checksum`: the database hashes its rows; keys and"
        " hashes are read, and the rows whose hash changed. `range_checksum`: it hashes ranges of the key, and only of those that changed"
        " keys and hashes are read. `outer_join` (PostgreSQL only): the database keeps a copy of each table in the schema `penstock`, in"
        " which the user may create tables, and joins the table with it; only rows that differ are read. Tables that the database cannot"
        " compare so are compared by `row_checksum`, or else by `incremental`; those for `outer_join` by `incremental`.",
    )
    sessions: int = Field(
        default=DEFAULT_SESSIONS,
        ge=1,
        le=16,
        title="Sessions",
        description="Sessions of the source that read one large table at the same time, where the database can read parts of it.",
    )

    tables: dict[Text, TableDetection] = Field(
        default_factory=dict,
        max_length=1000,
        description="By `schema.name`: tables whose changes are found in another way.",
    )

    snapshot_seconds: int | None = Field(
        default=None,
        ge=1,
        le=86_400,
        title="New snapshot after … seconds",
        description="null: a cycle reads all tables in one snapshot of the source, however long that takes. A number: one that takes longer"
        " goes on in a new snapshot at the next table, so that the source keeps no old row versions for longer than a table takes; and if"
        " the connection is lost, it goes on at the table that it was reading, and in a large one after the range of the key that it read"
        " last. Tables, and ranges of such a table, are then as they were at different moments, and"
        " `consistency` is `ranges`. Cycles of copies and comparisons have one snapshot in any case.",
    )
    max_time_share: float = Field(
        default=1.0,
        gt=0,
        le=1,
        title="Share of the time that cycles may read",
        description="Cycles on schedule rest after each read, so that they read for this share of the time. Those that a wait or a request"
        " needs do not rest.",
    )
    max_bytes_per_second: int | None = Field(
        default=None,
        ge=1000,
        title="Most bytes per second",
        description="Cycles on schedule rest after each read, so that no more bytes arrive from the source in a second. What the database"
        " reads to hash rows and ranges does not count, and neither does one statement's answer of up to 32 MiB. null: no limit.",
    )
    give_way: bool = Field(
        default=False,
        title="Give way to other work of the source",
        description="Cycles on schedule read the less, down to a tenth of the time, the longer the source takes for the same: if a read"
        " takes three times as long as the fastest one of the same table, they rest for twice that time after it.",
    )
    share_scans: bool = Field(
        default=True,
        title="Share reads with other subscriptions",
        description="Subscriptions of one connection that follow the same tables read them once: where one begins a cycle, others that are"
        " due use what it reads. A cycle begins up to half of `every_seconds` early where another one reads all that it needs. The rows"
        " are kept on the engine's machine meanwhile, in files that only its user may read.",
    )
    between: list[ClockTime] | None = Field(
        default=None,
        min_length=2,
        max_length=2,
        title="Cycles on schedule only between",
        description='Two times of day, such as `["22:00", "06:00"]`: cycles on schedule begin only from the first up to the second one.',
    )
    time_zone: Text = Field(default="UTC", description="Of `between`: a name such as `Europe/Berlin`.")
    only_between: bool = Field(
        default=False,
        description="Cycles for waits and requests begin in the hours `between` only, too; until then they wait. Cycles of copies and"
        " comparisons begin at any time.",
    )

    @field_validator("time_zone")
    @classmethod
    def _exists(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError("there is no such time zone") from error
        return zone

    @model_validator(mode="after")
    def _has_hours(self) -> Self:
        if self.only_between and self.between is None:
            raise ValueError("only_between needs the hours: between")
        return self

    def promised(self) -> Consistency:
        return Consistency.SNAPSHOTS if self.snapshot_seconds is None else Consistency.RANGES

    @model_validator(mode="after")
    def _is_possible(self, given: ValidationInfo) -> Self:
        if given.context == OF_ANY_SOURCE:
            return self
        for name, one in self.tables.items():
            if one.method in STAMPED and self.unstamped is not None:
                raise ValueError(
                    f"{name}: the method {one.method} is not possible with this kind of source: {self.unstamped};"
                    " without a method all rows are compared"
                )
            options = {
                "flag_column": one.flag_column,
                "key": one.key,
                "columns": one.columns,
                "stamps_below": one.stamps_below,
            }
            wrong = [option for option, value in options.items() if value and option not in self.table_options]
            if wrong:
                raise ValueError(f"{name}: {' and '.join(wrong)}: not possible with this kind of source")
        return self

    def usual_lag_s(self) -> float:
        """Before the next cycle is visible, rows are as old as the time between two and what that cycle takes, at most as long again. With
        hours for cycles they may be older by a day."""
        return max(super().usual_lag_s(), 2.0 * self.every_seconds) + (86_400 if self.between is not None else 0)

    def assigned(self) -> dict[str, Any]:
        tables = {name: one.model_dump(exclude_defaults=True) for name, one in sorted(self.tables.items())}
        settings: dict[str, int | str] = {"every_seconds": self.every_seconds, "method": self.method}
        if self.sessions != DEFAULT_SESSIONS:
            settings["sessions"] = self.sessions
        if tables:
            settings["tables"] = json.dumps(tables)
        if self.snapshot_seconds is not None:
            settings["snapshot_seconds"] = self.snapshot_seconds
        if self.max_time_share < 1:
            settings["max_time_share"] = str(self.max_time_share)
        if self.max_bytes_per_second is not None:
            settings["max_bytes_per_second"] = self.max_bytes_per_second
        if self.give_way:
            settings["give_way"] = "yes"
        if not self.share_scans:
            settings[SHARE] = "no"
        if self.between is not None:
            settings["between"] = " ".join((*self.between, self.time_zone))
        if self.only_between:
            settings["only_between"] = "yes"
        return {"capture": {"kind": self.kind, "settings": settings}}

    def log_budget(self) -> tuple[int, float]:
        """Nothing is held back on the source."""
        return SPEC["retained_log_budget_bytes"], _GUARD.warn_share


class LimitsStatements(QueryDiffCapture):
    """Of databases that end statements which take too long."""

    statement_seconds: int | None = Field(
        default=None,
        ge=1,
        le=21_600,
        title="Most seconds of a statement",
        description="A statement of a cycle that takes longer is ended by the source, rests within it included, and its table is parked as"
        " `table_not_read` until a cycle can read it. null: 6 hours.",
    )

    def assigned(self) -> dict[str, Any]:
        found = super().assigned()
        if self.statement_seconds is not None:
            found["capture"]["settings"]["statement_seconds"] = self.statement_seconds
        return found
