"""The policies of a subscription. Members that are left out have their default, even if a later version changes it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationInfo, field_validator

from engine.kinds import SPEC, Policy
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
from engine.model.verification import VerificationMethod
from server.declarations.captures import CapturePolicy

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
        description="Batches with fewer rows are prepared in the engine process; 0 = never, null = chosen by measured cost.",
    )
    tasks: int | None = Field(
        default=_BATCH.tasks,
        ge=1,
        le=1024,
        description="Parallel Spark tasks that prepare a batch; null = chosen by measured cost.",
    )


class ApplyBody(Policy):
    """How the source's transactions become transactions of the target. A change takes hold at the next start."""

    mode: ApplyMode = Field(
        default=_APPLY.mode,
        description="`batch`: the net changes of a whole batch in one target transaction; `transactional`: each source transaction in a"
        " separate target transaction, in commit order; `grouped`: several consecutive source transactions in one, change by"
        " change; `auto`: `batch` or `grouped`, whichever costs less. `grouped` and `transactional` require a PostgreSQL target;"
        " with `auto`, other targets use `batch`.",
    )
    policy: LanePolicy = Field(
        default=_APPLY.policy,
        description="How lanes (concurrent connections) handle rows that transactions in several lanes change. `pessimistic`: wait until"
        " all earlier transactions are committed; `optimistic`: change them at once; transactions that block each other are rolled"
        " back and repeated in order.",
    )
    visibility: Visibility = Field(
        default=_APPLY.visibility,
        description="How a batch of net changes becomes visible. `atomic`: in one target transaction; `relaxed`: `lanes` connections"
        " write parts of it concurrently and commit them one shortly after the other, so that queries run directly on the target"
        " may see only some of the parts. `relaxed` requires a PostgreSQL target whose `max_prepared_transactions` is at least"
        " `lanes`.",
    )
    lanes: int | None = Field(
        default=_APPLY.lanes,
        ge=1,
        le=64,
        description="Connections that write to the target concurrently: transactions in the modes `grouped` and `transactional`, parts"
        " of a batch with `visibility` `relaxed`. null = chosen by measured cost; 2 for parts.",
    )
    group_size: int | None = Field(
        default=_APPLY.group_size,
        ge=1,
        le=100_000,
        description="Source transactions in one target transaction, only in the mode `grouped`; null = chosen by measured commit rates.",
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
        description="Disk space of the queue's files. Only transactions that are still open on the source can exceed it.",
    )


class SchemaChangesBody(Policy):
    """What happens to a table whose schema changes on the source. Takes effect at the next start."""

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
        default=_COPIES.max_rows_per_second, ge=1000, description="Maximum rows per second; null = no limit."
    )
    max_time_share: float = Field(
        default=_COPIES.max_time_share,
        ge=0.01,
        le=1,
        description="Share of the time in which rows are read; in the rest the source is not used for copies.",
    )
    give_way: bool = Field(
        default=_COPIES.give_way,
        description="Adaptive throttling: reduce that share, down to a tenth, while commits to other tables take longer to become"
        " readable than they do without copies.",
    )


GoalSeconds = Annotated[float, Field(gt=0, le=15 * 86_400)]
GoalPercent = Annotated[float, Field(ge=50, le=99.999)]
WindowHours = Annotated[int, Field(ge=6, le=2160)]


class FreshnessBody(Policy):
    """What its freshness is judged by. A change takes hold at once."""

    goal_seconds: GoalSeconds = Field(
        default=60,
        description="The console shows a target with a larger lag as late. Of a capture by queries the default is twice its"
        " `every_seconds`, at least 60.",
    )
    goal_percent: GoalPercent | None = Field(
        default=None,
        description="Share of the time in which the lag is to be at most `goal_seconds`; null = it is not measured.",
    )
    window_hours: WindowHours = Field(
        default=168, description="Length of the window, up to now, over which that share is measured."
    )
    count_pauses: bool = Field(
        default=True,
        description="Time in which a user has paused or stopped the subscription, or paused the table, counts as late; false: it does"
        " not count at all.",
    )


class TableFreshnessBody(Policy):
    """The table's own freshness goal; members that are left out are those of the subscription."""

    goal_seconds: GoalSeconds | None = None
    goal_percent: GoalPercent | None = None
    window_hours: WindowHours | None = None
    count_pauses: bool | None = None

    def given(self) -> dict[str, Any] | None:
        """The members that differ from the subscription's; None if there are none."""
        return self.model_dump(mode="json", exclude_none=True) or None


def table_freshness(stored: dict[str, Any] | None) -> TableFreshnessBody | None:
    """The stored freshness goal of a table."""
    return None if stored is None else TableFreshnessBody.model_validate(stored)


class VerifyBody(Policy):
    """How tables are verified on a schedule, one after another. A change takes hold at once."""

    every_seconds: int | None = Field(
        default=None,
        ge=60,
        le=366 * 86_400,
        description="Each live table is compared again after this time, the longest ago first; null = there is no schedule.",
    )
    budget: float = Field(
        default=0.1,
        ge=0.001,
        le=1,
        description="Largest share of the time in which the schedule compares, and so reads the source.",
    )
    method: VerificationMethod = Field(
        default=VerificationMethod.ROWS,
        description="How tables are compared: `rows` reads every row, `checksum` those of key ranges whose checksums differ.",
    )
    sample: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="About which share of each table is compared, in ranges of keys that are chosen at random, others each time; 1:"
        " everything. A table is not verified by a sample.",
    )


POLICIES: dict[str, TypeAdapter[Any]] = {
    "capture": TypeAdapter(CapturePolicy),
    "batch": TypeAdapter(BatchBody),
    "apply": TypeAdapter(ApplyBody),
    "queue": TypeAdapter(QueuePolicy),
    "schema_changes": TypeAdapter(SchemaChangesBody),
    "copies": TypeAdapter(CopiesBody),
    "freshness": TypeAdapter(FreshnessBody),
    "verify": TypeAdapter(VerifyBody),
}
