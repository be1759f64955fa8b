"""The health of a subscription: one word with reason and remedy, shown alike by API, command line and console.

Pure. It depends on the current state only: a fault that is over has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import BaseModel, Field

from engine.model.subscription_state import DesiredState, SubscriptionState
from engine.model.table_state import TableStateKind
from server.remedies import LATE_NODE_REMEDY, Remedied
from server.wording import format_count, format_seconds, format_share, format_size

SILENT_AFTER_S = 30.0
"""While a subscription runs, its engine reports every few seconds; a longer silence indicates a problem."""


class HealthStatus(StrEnum):
    """From worst to best. Only `running` is good: all tables follow the source, and an engine is connected."""

    FAILED = "failed"
    ATTENTION = "attention"
    UNKNOWN = "unknown"
    MOVING = "moving"
    RUNNING = "running"
    RESTING = "resting"


class HealthWord(StrEnum):
    """The reason for a status."""

    FAILED = "failed"
    RETRYING = "retrying"
    SILENT = "silent"
    PARKED_TABLES = "parked_tables"
    DIFFERENT = "different"
    NODE_AWAY = "node_away"
    LATE = "late"
    AT_RISK = "at_risk"
    NO_ENGINE = "no_engine"
    DELETING = "deleting"
    WAITING = "waiting"
    STARTING = "starting"
    PAUSING = "pausing"
    STOPPING = "stopping"
    COPYING = "copying"
    CATCHING_UP = "catching_up"
    RUNNING = "running"
    PARTLY_PAUSED = "partly_paused"
    NO_TABLES = "no_tables"
    PAUSED = "paused"
    STOPPED = "stopped"


class AspectName(StrEnum):
    """The aspects of health."""

    APPLYING = "applying"
    FRESHNESS = "freshness"
    SOURCE_LOG = "source_log"
    LAST_FAULT = "last_fault"


class Aspect(BaseModel):
    """One aspect of health."""

    name: AspectName
    status: HealthStatus
    reason: str


class Health(Remedied):
    """The worst aspect of a subscription, and all aspects."""

    status: HealthStatus = Field(
        description="`running` only if all tables follow the source and an engine is connected."
    )
    word: HealthWord = Field(description="The reason for the status.")
    reason: str = Field(description="The reason, as a sentence.")
    following: bool = Field(
        description="Changes are applied to live tables: it runs without a fault, and an engine is connected."
    )
    aspects: list[Aspect]


@dataclass(frozen=True, slots=True)
class Fault:
    """The newest fault. `over`: it has no effect any more."""

    age_s: float
    detail: str
    over: bool


@dataclass(frozen=True, slots=True)
class HealthInputs:
    """The inputs of `assess_health`."""

    state: SubscriptionState
    desired: DesiredState = DesiredState.RUNNING
    deleting: bool = False
    engine: bool = True
    """The engine that runs it is connected."""
    reason: str | None = None
    remedy: str | None = None
    tables: Mapping[TableStateKind, int] = field(default_factory=dict)
    copying: str = ""
    """Progress of its copies, in words."""
    set_aside: int = 0
    """Quarantined rows."""
    different: int = 0
    """Tables that a verification found different from the source, and none of the whole table equal since."""
    lag_seconds: float | None = None
    """None if it is unknown, or no table follows."""
    goal_seconds: float = 60.0
    reported_s: float | None = None
    """Seconds since the engine's last report, or since the state began if there was none."""
    nodes_away: str | None = None
    """Nodes of the source that cannot be read, each with the reason."""
    retained_bytes: int | None = None
    budget_bytes: int | None = None
    warn_share: float = 0.5
    fault: Fault | None = None

    def number(self, *states: TableStateKind) -> int:
        return sum(self.tables.get(state, 0) for state in states)

    @property
    def total(self) -> int:
        return sum(number for state, number in self.tables.items() if state is not TableStateKind.REMOVED)

    @property
    def live(self) -> int:
        return self.number(TableStateKind.LIVE)

    @property
    def copied(self) -> int:
        """How many are being copied, or wait for it."""
        return self.number(TableStateKind.REGISTERED, TableStateKind.COPYING, TableStateKind.RELOADING)

    @property
    def silent(self) -> bool:
        return self.reported_s is not None and self.reported_s > SILENT_AFTER_S

    @property
    def following(self) -> bool:
        runs = self.state is SubscriptionState.RUNNING and self.engine and self.reason is None
        return runs and not self.deleting and not self.silent


@dataclass(frozen=True, slots=True)
class _Finding:
    """The result for one aspect. `word` None: it does not affect the whole."""

    status: HealthStatus
    word: HealthWord | None
    reason: str
    remedy: str | None = None


_BY_STATUS = {status: place for place, status in enumerate(HealthStatus)}
_UNDER_WAY = frozenset(
    {
        SubscriptionState.CREATED,
        SubscriptionState.STARTING,
        SubscriptionState.RUNNING,
        SubscriptionState.PAUSING,
        SubscriptionState.STOPPING,
    }
)
"""States that need a connected engine to continue."""
_RESTING = frozenset({SubscriptionState.PAUSED, SubscriptionState.STOPPED})
_WANTED = frozenset({SubscriptionState.CREATED, SubscriptionState.STARTING, SubscriptionState.RUNNING})
_START_ENGINE = "Start an engine with 'penstock engine', or look whether it runs and reaches the server."
_LOOK_AT_PARKED = "Look at the parked tables: each says what it needs."


def assess_health(inputs: HealthInputs) -> Health:
    """The worst of all aspects; among equals, the first."""
    found = {
        AspectName.APPLYING: _applying(inputs),
        AspectName.FRESHNESS: _freshness(inputs),
        AspectName.SOURCE_LOG: _source_log(inputs),
        AspectName.LAST_FAULT: _last_fault(inputs),
    }
    counted = [finding for finding in found.values() if finding.word is not None]
    worst = min(counted, key=lambda finding: _BY_STATUS[finding.status])
    assert worst.word is not None  # noqa: S101 - only such were counted, and the first aspect always is
    return Health(
        status=worst.status,
        word=worst.word,
        reason=worst.reason,
        remedy=worst.remedy,
        following=inputs.following,
        aspects=[Aspect(name=name, status=each.status, reason=each.reason) for name, each in found.items()],
    )


def _applying(inputs: HealthInputs) -> _Finding:
    if inputs.state is SubscriptionState.FAILED and not inputs.deleting:
        return _Finding(
            HealthStatus.FAILED, HealthWord.FAILED, inputs.reason or "The engine gave no reason.", inputs.remedy
        )
    stopped = _parked(inputs) if inputs.state in _WANTED and not inputs.deleting else None
    begins = inputs.state in _RESTING and inputs.desired is DesiredState.RUNNING
    if not inputs.engine and (inputs.deleting or begins or inputs.state in _UNDER_WAY):
        return stopped or _no_engine(inputs)
    found = _retried(inputs) or _silence(inputs) or _node_away(inputs) or stopped
    return found or _differing(inputs) or _course(inputs)


def _no_engine(inputs: HealthInputs) -> _Finding:
    if inputs.deleting:
        reason = "It is being deleted, and no engine is connected that could drop its slot and publications."
        return _Finding(HealthStatus.UNKNOWN, HealthWord.NO_ENGINE, reason, _START_ENGINE)
    known = "" if inputs.state is SubscriptionState.CREATED else f" Its last known state is {inputs.state.value}."
    reason = f"No engine is connected: whether changes are applied is not known.{known}"
    return _Finding(HealthStatus.UNKNOWN, HealthWord.NO_ENGINE, reason, _START_ENGINE)


def _retried(inputs: HealthInputs) -> _Finding | None:
    """A state in progress that has a reason is being retried."""
    if inputs.reason is None or inputs.deleting or inputs.state not in _WANTED:
        return None
    return _Finding(HealthStatus.ATTENTION, HealthWord.RETRYING, inputs.reason, inputs.remedy)


def _silence(inputs: HealthInputs) -> _Finding | None:
    if inputs.state is not SubscriptionState.RUNNING or not inputs.silent or inputs.deleting:
        return None
    reason = f"The engine is connected and has not reported for {format_seconds(inputs.reported_s)}."
    return _Finding(HealthStatus.ATTENTION, HealthWord.SILENT, reason, "Look at the engine's log and its load.")


def _node_away(inputs: HealthInputs) -> _Finding | None:
    if inputs.nodes_away is None or inputs.state is not SubscriptionState.RUNNING or inputs.deleting:
        return None
    reason = f"Of the source's nodes these cannot be read: {inputs.nodes_away}. What needs their logs waits."
    return _Finding(HealthStatus.ATTENTION, HealthWord.NODE_AWAY, reason, LATE_NODE_REMEDY)


def _parked(inputs: HealthInputs) -> _Finding | None:
    number = inputs.number(TableStateKind.PARKED)
    if number == 0:
        return None
    parked = f"{format_count(number, 'table')} {_is(number)} parked because of a fault and {_is(number)} not followed."
    if not inputs.engine:
        return _Finding(
            HealthStatus.ATTENTION,
            HealthWord.PARKED_TABLES,
            f"{parked} No engine is connected: whether others are is not known.",
            f"{_START_ENGINE} {_LOOK_AT_PARKED}",
        )
    others = f" {_followers(inputs)}" if inputs.live and inputs.following else ""
    copied = f" {_copied(inputs)}" if inputs.copied and inputs.following else ""
    return _Finding(HealthStatus.ATTENTION, HealthWord.PARKED_TABLES, parked + copied + others, _LOOK_AT_PARKED)


def _differing(inputs: HealthInputs) -> _Finding | None:
    if inputs.different == 0 or inputs.state is not SubscriptionState.RUNNING or inputs.deleting:
        return None
    reason = f"Verifications found {format_count(inputs.different, 'table')} different from the source."
    remedy = "Look at the differing keys of the verification; reload these tables, or verify them again as a whole."
    return _Finding(HealthStatus.ATTENTION, HealthWord.DIFFERENT, reason, remedy)


def _course(inputs: HealthInputs) -> _Finding:
    moving, resting = HealthStatus.MOVING, HealthStatus.RESTING
    if inputs.deleting:
        return _Finding(moving, HealthWord.DELETING, "It is being deleted; its tables on the target stay.")
    asked = f"It was asked to be {inputs.desired.value}."
    if inputs.state in _RESTING and inputs.desired is DesiredState.RUNNING:
        return _Finding(moving, HealthWord.STARTING, asked)  # the engine has not yet reported that it starts
    unwatched = "" if inputs.engine else " No engine is connected, so nothing watches over how much that is."
    match inputs.state:
        case SubscriptionState.CREATED:
            return _Finding(moving, HealthWord.WAITING, "It waits for the engine to begin.")
        case SubscriptionState.STARTING | SubscriptionState.PAUSING | SubscriptionState.STOPPING:
            return _Finding(moving, HealthWord(inputs.state.value), inputs.reason or asked, inputs.remedy)
        case SubscriptionState.PAUSED:
            reason = f"It is paused by request; the source keeps its log for it.{unwatched}"
            return _Finding(resting, HealthWord.PAUSED, reason)
        case SubscriptionState.STOPPED:
            reason = f"It was stopped by request; the source keeps its log for it.{unwatched}"
            return _Finding(resting, HealthWord.STOPPED, reason)
        case _:
            return _running(inputs, asked)


def _running(inputs: HealthInputs, asked: str) -> _Finding:
    if inputs.desired is not DesiredState.RUNNING:
        word = HealthWord.PAUSING if inputs.desired is DesiredState.PAUSED else HealthWord.STOPPING
        return _Finding(HealthStatus.MOVING, word, asked)
    late = inputs.number(TableStateKind.CATCHING_UP)
    others = f" {_followers(inputs)}" if inputs.live else ""
    of_all = f"of {format_count(inputs.total, 'table')}"
    if inputs.copied:
        return _Finding(HealthStatus.MOVING, HealthWord.COPYING, _copied(inputs) + others)
    if late:
        reason = f"{late} {of_all} {'catches' if late == 1 else 'catch'} up with the source.{others}"
        return _Finding(HealthStatus.MOVING, HealthWord.CATCHING_UP, reason)
    if inputs.total == 0:
        return _Finding(HealthStatus.RESTING, HealthWord.NO_TABLES, "It has no tables.")
    paused = inputs.number(TableStateKind.PAUSED)
    if paused:
        reason = f"{paused} {of_all} {_is(paused)} paused by request.{others}"
        return _Finding(HealthStatus.RESTING, HealthWord.PARTLY_PAUSED, reason)
    aside = f" {format_count(inputs.set_aside, 'row')} that the target refused {_is(inputs.set_aside)} set aside."
    reason = _followers(inputs) + (aside if inputs.set_aside else "")
    return _Finding(HealthStatus.RUNNING, HealthWord.RUNNING, reason)


def _followers(inputs: HealthInputs) -> str:
    """The aspect of the live tables; there must be at least one."""
    if inputs.live == inputs.total:
        which = "Its one table is" if inputs.live == 1 else f"All {inputs.live:,} tables are"
    else:
        which = f"{format_count(inputs.live, 'table')} {_is(inputs.live)}"
    behind = (
        "not known yet how far from" if inputs.lag_seconds is None else f"{format_seconds(inputs.lag_seconds)} behind"
    )
    return f"{which} live, {behind} the source."


def _copied(inputs: HealthInputs) -> str:
    """The aspect of the tables being copied; there must be at least one."""
    far = f": {inputs.copying}" if inputs.copying else ""
    return f"{inputs.copied} of {format_count(inputs.total, 'table')} {_is(inputs.copied)} being copied{far}."


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _freshness(inputs: HealthInputs) -> _Finding:
    if inputs.state is not SubscriptionState.RUNNING:
        return _Finding(HealthStatus.RESTING, None, "It is judged while the subscription runs.")
    if not inputs.engine:
        return _Finding(HealthStatus.UNKNOWN, None, "It is not known while no engine is connected.")
    if inputs.live == 0:
        return _Finding(HealthStatus.UNKNOWN, None, "No table follows the source now.")
    if inputs.lag_seconds is None:
        return _Finding(HealthStatus.UNKNOWN, None, "How far the target is behind the source is not known yet.")
    behind = (
        f"{format_seconds(inputs.lag_seconds)} behind the source; the goal is {format_seconds(inputs.goal_seconds)}."
    )
    if inputs.lag_seconds <= inputs.goal_seconds:
        return _Finding(HealthStatus.RUNNING, None, behind)
    remedy = "Look at its stages for the one that the others wait for."
    return _Finding(HealthStatus.ATTENTION, HealthWord.LATE, f"It is {behind}", remedy)


def _source_log(inputs: HealthInputs) -> _Finding:
    if inputs.retained_bytes is None or not inputs.budget_bytes:
        return _Finding(HealthStatus.UNKNOWN, None, "The log retained by the source is not known.")
    of_budget = inputs.retained_bytes / inputs.budget_bytes
    holds = "The source retains" if inputs.engine else "At the last report the source retained"
    reason = f"{holds} {format_size(inputs.retained_bytes)} of log, {format_share(of_budget)} of its budget."
    if of_budget < inputs.warn_share:
        return _Finding(HealthStatus.RUNNING if inputs.engine else HealthStatus.UNKNOWN, None, reason)
    remedy = "Let the subscription run and catch up, or raise its slot budget."
    return _Finding(HealthStatus.ATTENTION, HealthWord.AT_RISK, reason, remedy)


def _last_fault(inputs: HealthInputs) -> _Finding:
    """The newest fault, for information: its effects are assessed by other aspects."""
    fault = inputs.fault
    if fault is None:
        return _Finding(HealthStatus.RUNNING, None, "None is known.")
    reason = f"{format_seconds(fault.age_s)} ago{', and over' if fault.over else ''}: {fault.detail}"
    status = HealthStatus.FAILED if inputs.state is SubscriptionState.FAILED else HealthStatus.ATTENTION
    return _Finding(HealthStatus.RUNNING if fault.over else status, None, reason)
