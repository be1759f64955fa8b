"""Causes of lag, as they are measured: what kept changes from the target's readers, and since when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class LagCause(StrEnum):
    """What keeps changes from readers of the target."""

    LONG_OPEN_TRANSACTION = "long_open_transaction"
    """A transaction of the source has written and is still open."""
    TARGET_LOCK = "target_lock"
    """A session of the target holds a lock that the commit waits for."""
    QUEUE_AT_BUDGET = "queue_at_budget"
    """As much waits for the target as the queue's budget allows; reading the log has stopped."""
    COPY_RUNNING = "copy_running"
    """A table is copied; its changes are kept until the copy is complete."""
    SLOW_SENDER = "slow_sender"
    """The source's sender reads and decodes its log; what it has not sent yet is not known here."""
    SLOW_READER = "slow_reader"
    """The source's sender waits for the engine's log reader to take what it sends."""
    SILENT_NODE = "silent_node"
    """Changes of other nodes wait for the log of one, which has not been read up to their time."""
    AWAITING_KEEPALIVE = "awaiting_keepalive"
    """A position is waited for that the source has reached, but not confirmed: it has no change to send, and its keepalive is not here."""
    HUGE_TRANSACTION = "huge_transaction"
    """Most of a batch is one source transaction, which is prepared or committed as a whole."""
    HOT_TABLE = "hot_table"
    """Most rows of a batch that is committed are of one table."""
    CPU_STARVED = "cpu_starved"
    """A stage that works on a batch waits for a processor for most of its time."""
    KEY_SKEW = "key_skew"
    """One of the parallel tasks or connections of a batch has most of its rows, and the others have nothing to do."""
    SMALL_BATCHES = "small_batches"
    """Waits have batches sealed early: most of the time is the cost that each batch has, whatever its size."""
    COMPUTING = "computing"
    """A batch is prepared."""
    SLOW_COMMIT = "slow_commit"
    """A batch is committed on the target."""
    GATHERING = "gathering"
    """Changes wait to be sealed into a batch, or for the next stage."""


@dataclass(frozen=True, slots=True)
class LagSpan:
    """A cause that was present from `from_ms` to `to_ms` milliseconds before the measurement. `evidence`: measured values by name, without
    row values."""

    cause: LagCause
    from_ms: float
    to_ms: float = 0.0
    evidence: Mapping[str, str | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Blocker:
    """A session that holds a lock for which a commit waits: the wait in ms, its pid, the age of its transaction in seconds, and its last
    statement, redacted."""

    waiting_ms: float
    pid: int
    open_s: float
    statement: str
