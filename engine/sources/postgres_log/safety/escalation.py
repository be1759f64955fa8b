"""The guard's ladder: from how much log a slot holds back to what has to be done about it. Pure; the clock is handed in."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import IntEnum

from engine.model.subscription import GuardPolicy

CLEAR_PART = 0.8
"""A rung is left, and can be reached again, when the share has come down to this part of the rung's own."""
HELD_FROM_S = 5.0
"""An open transaction younger than this holds no log worth a word."""
_GROWTH_OVER_S = 300.0


class EscalationLevel(IntEnum):
    """In the order in which they are reached."""

    WARN = 1
    PERSIST_QUEUE = 2
    STOP_COPIES = 3
    NAME_TRANSACTION = 4
    DROP_SLOT = 5


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the source found, and what is under way.

    `copy_retained_bytes`: log that slots of copies hold back. `may_persist`: a queue that is in memory may be made durable.
    `copying`: tables are being copied or wait for it. `open_s`: age of the oldest open transaction, None where there is none.
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
        """What the rung is measured by: log that only copies hold back is freed by ending them, and by nothing else."""
        if rung is EscalationLevel.STOP_COPIES:
            return max(self.share, self.copy_retained_bytes / self.budget_bytes)
        return self.share


@dataclass(frozen=True, slots=True)
class EscalationState:
    """What the ladder remembers from look to look.

    `reached`: rungs that hold. `least_bytes`: the least log held back since the share was last below the last rung, seen at
    `least_at_s`; None while it is below.
    """

    reached: frozenset[EscalationLevel] = frozenset()
    least_bytes: int | None = None
    least_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EscalationStep:
    """What one look leads to: rungs that are reached by it, in order, and rungs that are left."""

    standing: EscalationState
    reached: tuple[EscalationLevel, ...] = ()
    left: tuple[EscalationLevel, ...] = ()


def escalate(standing: EscalationState, look: Look, policy: GuardPolicy, patience_s: float) -> EscalationStep:
    """One look's step on the ladder. Any number of rungs may be reached at once, but the last only alone.

    The slot is dropped when nothing else helped: an earlier look has warned, every other rung that applies holds, and for `patience_s`
    the log held back has not come down.
    """
    left = tuple(r for r in sorted(standing.reached) if look.share_for(r) < share_of(policy, r) * CLEAR_PART)
    holding = standing.reached - set(left)
    reached: tuple[EscalationLevel, ...] = tuple(
        r
        for r in EscalationLevel
        if r is not EscalationLevel.DROP_SLOT
        and r not in holding
        and look.share_for(r) >= share_of(policy, r)
        and _applies(r, look)
    )
    least, since = _least(standing, look, policy)
    last_due = (
        policy.drop_slot
        and EscalationLevel.DROP_SLOT not in holding
        and EscalationLevel.WARN in holding
        and not reached
        and least is not None
        and look.at_s - since >= patience_s
    )
    if last_due:
        reached = (EscalationLevel.DROP_SLOT,)
    return EscalationStep(EscalationState(holding | set(reached), least, since), reached, left)


def share_of(policy: GuardPolicy, rung: EscalationLevel) -> float:
    """The share at which a rung is reached."""
    return {
        EscalationLevel.WARN: policy.warn_share,
        EscalationLevel.PERSIST_QUEUE: policy.persist_share,
        EscalationLevel.STOP_COPIES: policy.stop_copies_share,
        EscalationLevel.NAME_TRANSACTION: policy.name_transaction_share,
        EscalationLevel.DROP_SLOT: policy.drop_slot_share,
    }[rung]


def budget_of(configured: int, retained: int, safe: int | None) -> int:
    """The smaller of the configured budget and what the source itself leaves, in bytes; at least 1."""
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
    """How fast the log held back grows, measured over the looks of the last minutes."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, at_s: float, retained_bytes: int) -> None:
        self._seen.append((at_s, retained_bytes))
        while at_s - self._seen[0][0] > _GROWTH_OVER_S:
            self._seen.popleft()

    @property
    def bytes_per_s(self) -> float | None:
        """None until two looks lie apart."""
        if not self._seen:
            return None
        (first_at, first), (last_at, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else None

    def full_in_s(self, budget_bytes: int) -> float | None:
        """When the budget is used up if it goes on like this; None where it does not grow, or that is not known yet."""
        rate = self.bytes_per_s
        if rate is None or rate <= 0:
            return None
        return max(0.0, (budget_bytes - self._seen[-1][1]) / rate)
