"""Parts of messages that say how a subscription is to be replicated."""

from __future__ import annotations

from pydantic import Field

from engine.link.message import Message
from engine.model.subscription import ApplyMode, LanePolicy, Visibility


class PatternPart(Message):
    """A pattern; fields as `engine.model.patterns.TablePattern`."""

    schema_name: str = Field(alias="schema")
    name: str
    exclude: tuple[str, ...] = ()


class BatchPart(Message):
    """When a batch is sealed; fields and defaults as `engine.model.subscription.BatchPolicy`."""

    max_transactions: int = 200_000
    max_bytes: int = 128 * 1024 * 1024
    max_age_ms: int = 200
    small_rows: int | None = None
    tasks: int | None = None


class ApplyPart(Message):
    """How batches are written to the target; fields and defaults as `engine.model.subscription.ApplyPolicy`."""

    mode: ApplyMode = ApplyMode.AUTO
    policy: LanePolicy = LanePolicy.PESSIMISTIC
    lanes: int | None = None
    group_size: int | None = None
    visibility: Visibility = Visibility.ATOMIC


class GuardPart(Message):
    """Rungs of the guard's ladder; fields and defaults as `engine.model.subscription.GuardPolicy`."""

    warn_share: float = 0.5
    persist_share: float = 0.6
    stop_copies_share: float = 0.7
    name_transaction_share: float = 0.8
    drop_slot_share: float = 0.95
    drop_slot: bool = True


class CopyPart(Message):
    """How fast copies read; fields and defaults as `engine.model.subscription.CopyPolicy`."""

    max_rows_per_second: int | None = None
    max_time_share: float = 1.0
    give_way: bool = True
