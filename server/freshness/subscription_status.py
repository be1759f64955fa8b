"""What this process knows of a subscription right now: its state, its tables and where it stands.

Fed by reports and by the control database; waits are judged against it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from engine.model.position import Lsn
from engine.model.subscription_state import DesiredState, SubscriptionState
from engine.model.table_state import TableState
from server.clock import SystemClock
from server.wording import seconds

STANDING_STILL = frozenset(
    {
        SubscriptionState.PAUSING,
        SubscriptionState.PAUSED,
        SubscriptionState.STOPPING,
        SubscriptionState.STOPPED,
        SubscriptionState.FAILED,
    }
)
"""States of a subscription in which nothing more will be applied until somebody acts."""

_HELD = frozenset({SubscriptionState.PAUSING, SubscriptionState.PAUSED})
"""States in which the engine holds the target as its last run left it."""

_RATE_SAMPLES = 50

GONE_AFTER_S = 30.0
"""For so long an engine may be away, or a fault be tried again, before waits count on neither any more. Longer than an engine's lease."""

NO_ENGINE = "no_engine"
_START_ENGINE = "Start an engine with 'penstock engine', or look whether it runs and reaches the server."


@dataclass(frozen=True, slots=True)
class Absence:
    """What a subscription that is to run lacks at present, in words that go on from its name. `cause`: `no_engine`, or the code of the
    fault that is tried again."""

    cause: str
    detail: str
    remedy: str | None
    seconds: float


@dataclass(slots=True)
class TableView:
    """A table as waits see it."""

    id: str
    schema: str
    name: str
    state: TableState
    reason: str | None = None
    remedy: str | None = None
    paused: bool = False
    """Its desired state is to be paused."""
    reload: str | None = None
    """The reload of the whole table that was asked for and has not ended."""
    insert_only: bool = False
    set_aside: int = 0
    """Rows of it that stand aside."""

    @property
    def left_out(self) -> bool:
        """It does not follow the source, or not much longer, and a wait that names no tables passes over it.

        What was declared and asked for decides, not the state that lags it: a table that was resumed, or a parked one that is to be
        reloaded, is waited for.
        """
        parked = self.state is TableState.PARKED and self.reload is None
        return self.paused or parked or self.state is TableState.REMOVED


@dataclass(slots=True)
class Picture:
    """One subscription. Changed only on the event loop."""

    name: str
    epoch: int = 0
    state: SubscriptionState = SubscriptionState.CREATED
    desired: DesiredState = DesiredState.RUNNING
    deleting: bool = False
    reload: str | None = None
    """The reload of all tables that was asked for and has not ended."""
    code: str | None = None
    reason: str | None = None
    remedy: str | None = None
    faulty_since: datetime | None = None
    """Since when it is tried again and again because of a fault; None where it is not."""
    tables: dict[str, TableView] = field(default_factory=dict)
    source: Lsn | None = None
    captured: Lsn | None = None
    applied: Lsn | None = None
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    retained_bytes: int | None = None
    sealed_at: datetime | None = None
    committed_at: datetime | None = None
    structure: Lsn | None = None
    structure_at: datetime | None = None
    """Where and when the source's catalog was last looked at with everything that it showed in force."""
    at: datetime | None = None
    run: int = 0
    """The engine's newest run that is known; positions of earlier ones count no more."""
    stream: Callable[[], str | None] = field(default=lambda: None, repr=False)
    """The stream that is open to the engine which runs the subscription; None where there is none."""
    away_s: Callable[[], float | None] = field(default=lambda: None, repr=False)
    """Seconds for which no engine that runs the subscription has been connected; None where one is."""
    now: Callable[[], datetime] = field(default=SystemClock().now, repr=False)
    _vouched_on: str | None = None
    """The stream on which the living run has reported `applied`."""
    _steps: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_RATE_SAMPLES))

    @property
    def reached(self) -> Lsn | None:
        """The position that waits may count: where the target is, as the living run says. None where no run says so now.

        `applied` is the last that was known. Between two runs, or while no engine is there, the target may be replaced by an older
        one; so a position counts on the stream on which its run reported it, until that run ends or the stream does. In a pause the
        engine holds the target, and what the last run reported counts on. Of a failed subscription nothing counts: a source that was
        restored from a backup issues positions again.
        """
        if self.state is SubscriptionState.FAILED:
            return None
        return self.applied if self._vouched_on is not None and self._vouched_on == self.stream() else None

    @property
    def standing_still(self) -> bool:
        """Nothing more is applied until somebody acts. What was declared and asked for decides, not the state that lags it."""
        if self.desired is not DesiredState.RUNNING:
            return True
        return self.state is SubscriptionState.FAILED and self.reload is None

    def stand(self, state: SubscriptionState, run: int) -> None:
        """Take in the state that the engine reports, and the run of which it reports it."""
        held = state in _HELD or (state is SubscriptionState.RUNNING and run == self.run)
        if not held:
            self._vouched_on = None
        self._heard_of(run)
        self.state = state

    def explain(self, code: str | None, reason: str | None, remedy: str | None) -> None:
        """Take in why the subscription is in its state, behind that state."""
        self.code, self.reason, self.remedy = code, reason, remedy
        if self.state is not SubscriptionState.STARTING or reason is None:
            self.faulty_since = None
        elif self.faulty_since is None:
            self.faulty_since = self.now()

    def absence(self) -> Absence | None:
        """What keeps the subscription from applying anything now, and for how long already; None where nothing is known to."""
        away_s = self.away_s()
        if away_s is not None:
            detail = f"no engine that runs it has been connected for {seconds(away_s)}"
            return Absence(NO_ENGINE, detail, _START_ENGINE, away_s)
        if self.faulty_since is None:
            return None
        faulty_s = max(0.0, (self.now() - self.faulty_since).total_seconds())
        detail = f"it has been tried again for {seconds(faulty_s)} because of a fault, {self.reason}"
        return Absence(self.code or "unknown", detail, self.remedy, faulty_s)

    def gone(self) -> Absence | None:
        """The same, once it lasts for too long."""
        absence = self.absence()
        return absence if absence is not None and absence.seconds > GONE_AFTER_S else None

    def reload_ended(self, reload: str) -> set[str]:
        """A reload has ended, well or badly; returns the tables that it was to copy."""
        self.reload = None if self.reload == reload else self.reload
        ended = {table.id for table in self.tables.values() if table.reload == reload}
        for table in ended:
            self.tables[table].reload = None
        return ended

    def vouch(self, run: int, stream: str) -> bool:
        """A position was reported by this run, on this stream. False where a later run is known: it counts for nothing."""
        if run < self.run:
            return False
        self._heard_of(run)
        self._vouched_on = stream
        return True

    def _heard_of(self, run: int) -> None:
        if run > self.run:
            self.run = run
            self.structure = self.structure_at = None

    @property
    def living(self) -> tuple[int, int]:
        """The run that is known to go on, among all of all engines. Another one may begin on an older target."""
        return self.epoch, self.run

    @property
    def furthest(self) -> Lsn | None:
        """The highest position that is known to exist."""
        known = [position for position in (self.source, self.captured, self.applied) if position is not None]
        return max(known) if known else None

    def beyond(self, position: Lsn) -> bool:
        """Whether `position` lies beyond the last known end of the source's log: nobody can tell when it comes, or whether."""
        return self.source is not None and self.furthest is not None and position > self.furthest

    def lag_at(self, now: datetime, *, engine: bool) -> tuple[int | None, float | None]:
        """How far the live tables are behind, in bytes and seconds; nothing where none is live. While no engine is connected, the time
        since it last reported is added."""
        if not any(table.state is TableState.LIVE for table in self.tables.values()):
            return None, None
        if self.lag_seconds is None or self.at is None or engine:
            return self.lag_bytes, self.lag_seconds
        return self.lag_bytes, round(self.lag_seconds + max(0.0, (now - self.at).total_seconds()), 3)

    def advance(self, applied: Lsn, monotonic_s: float) -> bool:
        """Take in the applied position.

        False where it went back, because the source was replaced by one with a shorter log.
        """
        forward = self.applied is None or applied >= self.applied
        if not forward:
            self._steps.clear()
        self.applied = applied
        self._steps.append((monotonic_s, applied.value))
        return forward

    def restate(self, fresh: Picture) -> None:
        """Take over everything but positions, which reports bring earlier than the control database."""
        if fresh.epoch != self.epoch:
            self.run, self._vouched_on = 0, None
            self.structure = self.structure_at = None
        self.epoch = fresh.epoch
        self.state = fresh.state
        self.desired = fresh.desired
        self.deleting = fresh.deleting
        self.reload = fresh.reload
        self.code, self.reason, self.remedy = fresh.code, fresh.reason, fresh.remedy
        self.faulty_since = fresh.faulty_since and (self.faulty_since or fresh.faulty_since)
        self.tables = fresh.tables

    def estimate_ms(self, position: Lsn, monotonic_s: float) -> int | None:
        """How long until `position` is applied, by the pace of late; None where it stands still or nothing is known."""
        if self.applied is None or len(self._steps) < 2:
            return None
        began, low = self._steps[0]
        _, high = self._steps[-1]
        if high <= low or monotonic_s <= began:
            return None
        return max(0, round((position.value - high) * (monotonic_s - began) / (high - low) * 1000))
