"""The policies of a subscription. What is left out keeps its default, also when the default changes in a later version."""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.model.subscription import BatchPolicy, QueueMode, SubscriptionSpec

_BATCH = BatchPolicy()
_SPEC: dict[str, Any] = {field.name: field.default for field in fields(SubscriptionSpec)}


class _Policy(BaseModel):
    model_config = ConfigDict(extra="forbid")


class CapturePolicy(_Policy):
    """How changes are read from the source."""

    kind: Literal["postgres_log"] = Field(default="postgres_log", description="The source's log, by logical decoding.")
    slot_budget_bytes: int = Field(
        default=_SPEC["slot_budget_bytes"],
        ge=1024**2,
        description="Log that may be held back on the source before it is told.",
    )


class BatchBody(_Policy):
    """When a batch is sealed: at the first limit reached."""

    max_transactions: int = Field(default=_BATCH.max_transactions, ge=1, le=10_000_000)
    max_bytes: int = Field(default=_BATCH.max_bytes, ge=64 * 1024, le=1024**3)
    max_age_ms: int = Field(default=_BATCH.max_age_ms, ge=1, le=600_000)
    small_rows: int = Field(
        default=_BATCH.small_rows,
        ge=0,
        le=10_000_000,
        description="Smaller batches run in the engine process; 0 = never.",
    )
    tasks: int = Field(default=_BATCH.tasks, ge=1, le=1024, description="Parallel tasks of a larger batch.")


class ApplyPolicy(_Policy):
    """How changes are applied. There is nothing to choose yet."""


class QueueModeBody(StrEnum):
    """Where the durable end of the queue is."""

    MEMORY = QueueMode.MEMORY.value
    PERSIST = QueueMode.PERSIST.value
    AUTO = "auto"


class QueuePolicy(_Policy):
    """How records wait between capture and target."""

    mode: QueueModeBody = Field(
        default=QueueModeBody(_SPEC["queue_mode"].value),
        description="`memory`: the source is told what the target has; `persist`: what is safe in our files. `auto` comes later.",
    )
    budget_bytes: int = Field(
        default=_SPEC["queue_budget_bytes"], ge=64 * 1024**2, description="Disk space of the queue's files."
    )


POLICIES: dict[str, type[_Policy]] = {
    "capture": CapturePolicy,
    "batch": BatchBody,
    "apply": ApplyPolicy,
    "queue": QueuePolicy,
}
