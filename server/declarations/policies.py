"""The policies of a subscription. What is left out keeps its default, also when the default changes in a later version."""

from __future__ import annotations

from typing import Any

from pydantic import Field, TypeAdapter, ValidationInfo, field_validator

from engine.model.subscription import (
    ApplyMode,
    ApplyPolicy,
    BatchPolicy,
    CopyPolicy,
    LanePolicy,
    QueueMode,
    SchemaPolicy,
    Visibility,
)
from server.declarations.captures import CapturePolicy
from server.declarations.policy import SPEC, Policy

_APPLY = ApplyPolicy()
_BATCH = BatchPolicy()
_COPIES = CopyPolicy()


class BatchBody(Policy):
    """When a batch is sealed: at the first limit reached. A change takes hold at the next start."""

    max_transactions: int = Field(default=_BATCH.max_transactions, ge=1, le=10_000_000)
    max_bytes: int = Field(default=_BATCH.max_bytes, ge=64 * 1024, le=1024**3)
    max_age_ms: int = Field(default=_BATCH.max_age_ms, ge=1, le=600_000)
    small_rows: int | None = Field(
        default=_BATCH.small_rows,
        ge=0,
        le=10_000_000,
        description="Smaller batches run in the engine process; 0 = never, null = chosen by measured cost.",
    )
    tasks: int | None = Field(
        default=_BATCH.tasks,
        ge=1,
        le=1024,
        description="Parallel tasks of a batch that Spark prepares; null = chosen by measured cost.",
    )


class ApplyBody(Policy):
    """How the source's transactions become transactions of the target. A change takes hold at the next start."""

    mode: ApplyMode = Field(
        default=_APPLY.mode,
        description="`batch`: the net changes of a whole batch in one target transaction; `transactional`: each source transaction in"
        " a target transaction of its own, in commit order; `grouped`: some consecutive ones in one, statement by statement; `auto`:"
        " `batch` or `grouped`, whichever costs less. `grouped` and `transactional` need a PostgreSQL target; others get batches.",
    )
    policy: LanePolicy = Field(
        default=_APPLY.policy,
        description="What a lane does about rows that transactions of other lanes change as well. `pessimistic`: it changes them when"
        " all earlier transactions are committed; `optimistic`: at once, and transactions that come to wait for each other are rolled"
        " back and done again in order.",
    )
    visibility: Visibility = Field(
        default=_APPLY.visibility,
        description="How a batch of net changes becomes visible. `atomic`: all at once, in one target transaction; `relaxed`: `lanes`"
        " connections write its parts concurrently and commit them one shortly after the other, so that queries of your own in"
        " between see a part of it. `relaxed` needs a PostgreSQL target with `max_prepared_transactions` of `lanes` or more.",
    )
    lanes: int | None = Field(
        default=_APPLY.lanes,
        ge=1,
        le=64,
        description="Connections to the target that write concurrently, where transactions are not merged into a batch, and those"
        " that write the parts of a batch with `visibility` `relaxed`; null = chosen by measured cost, for parts 2.",
    )
    group_size: int | None = Field(
        default=_APPLY.group_size,
        ge=1,
        le=100_000,
        description="Source transactions in one target transaction, in the mode `grouped` only; null = chosen by measured commit rates.",
    )

    @field_validator("visibility")
    @classmethod
    def _whole_transactions_are_seen_whole(cls, value: Visibility, info: ValidationInfo) -> Visibility:
        mode = info.data.get("mode")
        if value is Visibility.RELAXED and mode in {ApplyMode.GROUPED, ApplyMode.TRANSACTIONAL}:
            raise ValueError(
                "only the parts of a batch become visible one by one; choose the mode 'auto' or 'batch', or leave visibility out (in a"
                " PATCH: null)"
            )
        return value

    @field_validator("lanes")
    @classmethod
    def _one_writes_a_batch(cls, value: int | None, info: ValidationInfo) -> int | None:
        atomic = info.data.get("visibility", Visibility.RELAXED) is Visibility.ATOMIC
        if value is not None and value > 1 and atomic and info.data.get("mode") is ApplyMode.BATCH:
            raise ValueError(
                "one connection writes a batch that becomes visible at once; choose the mode 'grouped' or 'transactional', or the"
                " visibility 'relaxed', or leave lanes out (in a PATCH: null)"
            )
        return value

    @field_validator("group_size")
    @classmethod
    def _only_groups_have_a_size(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("mode", ApplyMode.GROUPED) is not ApplyMode.GROUPED:
            raise ValueError(
                "only the mode 'grouped' has groups; choose it, or leave group_size out (in a PATCH: null)"
            )
        return value


class QueuePolicy(Policy):
    """How records wait between capture and target."""

    mode: QueueMode = Field(
        default=SPEC["queue_mode"],
        description="`memory`: the source keeps log until the target has it; `persist`: until our files have it; `auto`: `persist` while"
        " the slot's log needs it.",
    )
    budget_bytes: int = Field(
        default=SPEC["queue_budget_bytes"],
        ge=64 * 1024**2,
        description="Disk space of the queue's files. It is outgrown only by what transactions keep there that are open on the source.",
    )


class SchemaChangesBody(Policy):
    """What becomes of a table whose structure changes on the source. A change takes hold at the next start."""

    policy: SchemaPolicy = Field(
        default=SPEC["schema_changes"],
        description="`apply`: the target follows. In place where that is exact: columns added, dropped, renamed, or widened without a"
        " rewrite of the table; by a new copy, with the old rows readable until then, where rows may have changed in ways that the log"
        " does not show. `ask`: the table parks with the exact statements as its reason until they are approved"
        " (`POST …/tables/{table_id}/approvals`). `ignore`: the target's structure stays: new columns are left out, dropped ones are"
        " NULL in rows that come later, and what cannot be left out parks the table.",
    )


class CopiesBody(Policy):
    """How fast tables are read for copies and reloads, all of the subscription's together. A change takes hold at once."""

    max_rows_per_second: int | None = Field(
        default=_COPIES.max_rows_per_second, ge=1000, description="At most so many rows a second; null = no limit."
    )
    max_time_share: float = Field(
        default=_COPIES.max_time_share,
        ge=0.01,
        le=1,
        description="For so much of the time rows are read, and for the rest the source is left alone.",
    )
    give_way: bool = Field(
        default=_COPIES.give_way,
        description="Rows are read for less of the time, down to a tenth, while commits to other tables take longer to become readable"
        " than they do without copies.",
    )


class FreshnessBody(Policy):
    """What its freshness is judged by. A change takes hold at once."""

    goal_seconds: float = Field(
        default=60,
        gt=0,
        le=86_400,
        description="A target whose lag is above this is called late in the console.",
    )


POLICIES: dict[str, TypeAdapter[Any]] = {
    "capture": TypeAdapter(CapturePolicy),
    "batch": TypeAdapter(BatchBody),
    "apply": TypeAdapter(ApplyBody),
    "queue": TypeAdapter(QueuePolicy),
    "schema_changes": TypeAdapter(SchemaChangesBody),
    "copies": TypeAdapter(CopiesBody),
    "freshness": TypeAdapter(FreshnessBody),
}
