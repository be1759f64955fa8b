"""Escalation policy: maps the log retained for a reader to the actions that are due. Pure; the caller passes the time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import IntEnum

from engine.model.subscription import GuardPolicy

CLEAR_PART = 0.8
"""Hysteresis: a level is left, and can be reached again, once the share falls to this fraction of the level's own."""
HELD_FROM_S = 5.0
"""Open transactions younger than this are not reported as the cause of retained log."""
_GROWTH_OVER_S = 300.0
"""Seconds over which the growth is averaged: long enough to level out bursts of writes, short enough to follow a change of load. Not
measured."""


class EscalationLevel(IntEnum):
    """Levels in the order in which they are reached."""

    WARN = 1
    PERSIST_QUEUE = 2
    STOP_COPIES = 3
    NAME_TRANSACTION = 4
    DROP_READER = 5


@dataclass(frozen=True, slots=True)
class Look:
    """Figures of one check of the source, and the state of the run.

    `copy_retained_bytes`: Log retained by the copies. `may_persist`: the queue is in memory and may be made durable.
    `copying`: tables are being copied or wait for a copy. `open_s`: age of the oldest open transaction in seconds, None if none.
    """

    at_s: float
    retained_bytes: int
    budget_bytes: int
    copy_retained_bytes: int = 0
    may_persist: bool = False
    copying: bool = False
    open_s: float | None = None

    @property
    def share(self) -> float:
        return self.retained_bytes / self.budget_bytes

    def share_for(self, rung: EscalationLevel) -> float:
        """The share that counts for this level. Log retained by copies counts only for the level that ends copies, which releases it."""
        if rung is EscalationLevel.STOP_COPIES:
            return max(self.share, self.copy_retained_bytes / self.budget_bytes)
        return self.share


@dataclass(frozen=True, slots=True)
class EscalationState:
    """State kept from check to check.

    `reached`: levels in force. `least_bytes`: minimum of the retained log, at time `least_at_s`, since the share rose above the last
    level; None while it is below.
    """

    reached: frozenset[EscalationLevel] = frozenset()
    least_bytes: int | None = None
    least_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EscalationStep:
    """Result of one check: levels that are newly reached, in order, and levels that are left."""

    standing: EscalationState
    reached: tuple[EscalationLevel, ...] = ()
    left: tuple[EscalationLevel, ...] = ()


def escalate(standing: EscalationState, look: Look, policy: GuardPolicy, patience_s: float) -> EscalationStep:
    """Evaluate one check. Several levels may be reached at once, but the last (drop the reader) only alone.

    The reader is dropped as the last resort: an earlier check has warned, every other applicable level is in force, and the retained log
    has not decreased for `patience_s`.
    """
    left = tuple(r for r in sorted(standing.reached) if look.share_for(r) < share_of(policy, r) * CLEAR_PART)
    holding = standing.reached - set(left)
    reached: tuple[EscalationLevel, ...] = tuple(
        r
        for r in EscalationLevel
        if r is not EscalationLevel.DROP_READER
        and r not in holding
        and look.share_for(r) >= share_of(policy, r)
        and _applies(r, look)
    )
    least, since = _least(standing, look, policy)
    last_due = (
        policy.drop_slot
        and EscalationLevel.DROP_READER not in holding
        and EscalationLevel.WARN in holding
        and not reached
        and least is not None
        and look.at_s - since >= patience_s
    )
    if last_due:
        reached = (EscalationLevel.DROP_READER,)
    return EscalationStep(EscalationState(holding | set(reached), least, since), reached, left)


def share_of(policy: GuardPolicy, rung: EscalationLevel) -> float:
    """The share of the budget at which a level is reached."""
    return {
        EscalationLevel.WARN: policy.warn_share,
        EscalationLevel.PERSIST_QUEUE: policy.persist_share,
        EscalationLevel.STOP_COPIES: policy.stop_copies_share,
        EscalationLevel.NAME_TRANSACTION: policy.name_transaction_share,
        EscalationLevel.DROP_READER: policy.drop_slot_share,
    }[rung]


def budget_of(configured: int, retained: int, safe: int | None) -> int:
    """The smaller of the configured budget and the source's own limit (`retained` + `safe`), in bytes; at least 1."""
    budget = configured if safe is None else min(configured, retained + max(safe, 0))
    return max(1, budget)


def _applies(rung: EscalationLevel, look: Look) -> bool:
    if rung is EscalationLevel.PERSIST_QUEUE:
        return look.may_persist
    if rung is EscalationLevel.STOP_COPIES:
        return look.copying
    if rung is EscalationLevel.NAME_TRANSACTION:
        return look.open_s is not None and look.open_s >= HELD_FROM_S
    return True


def _least(standing: EscalationState, look: Look, policy: GuardPolicy) -> tuple[int | None, float]:
    if look.share < policy.drop_slot_share:
        return None, look.at_s
    if standing.least_bytes is None or look.retained_bytes < standing.least_bytes:
        return look.retained_bytes, look.at_s
    return standing.least_bytes, standing.least_at_s


class Growth:
    """Growth of the retained log, measured over the checks of the last minutes."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, at_s: float, retained_bytes: int) -> None:
        self._seen.append((at_s, retained_bytes))
        while at_s - self._seen[0][0] > _GROWTH_OVER_S:
            self._seen.popleft()

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes per second; None until there are two checks at different times."""
        if not self._seen:
            return None
        (first_at, first), (last_at, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else None

    def full_in_s(self, budget_bytes: int) -> float | None:
        """Seconds until the budget is used up at this rate; None if the retained log does not grow, or the rate is unknown."""
        rate = self.bytes_per_s
        if rate is None or rate <= 0:
            return None
        return max(0.0, (budget_bytes - self._seen[-1][1]) / rate)
