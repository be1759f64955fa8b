"""The in-memory status of a subscription: its state, tables and positions.

Updated by reports of engines and by reads of the control database; freshness waits are decided by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise

from engine.kinds import Consistency
from engine.link.messages import Progress
from engine.model.position import Lsn
from engine.model.positions import ONLY_LOG, Marks, PositionForm, Reached, text_of
from engine.model.subscription_state import DesiredState, SubscriptionState
from engine.model.table_state import TableStateKind
from server.clock import SystemClock
from server.declarations.freshness_goals import FreshnessGoal
from server.wording import format_seconds

HALTED_STATES = frozenset(
    {
        SubscriptionState.PAUSING,
        SubscriptionState.PAUSED,
        SubscriptionState.STOPPING,
        SubscriptionState.STOPPED,
        SubscriptionState.FAILED,
    }
)
"""States of a subscription in which nothing is applied until a user or an operator acts."""

_HELD = frozenset({SubscriptionState.PAUSING, SubscriptionState.PAUSED})
"""States in which the engine keeps the target as its last run left it."""

_RATE_SAMPLES = 50

_KEPT = ("source", "captured", "sealed_at", "committed_at", "cycle")
"""What a report of progress leaves out keeps its last value; lag and retained log do not."""

GONE_AFTER_S = 30.0
"""Seconds for which an engine may be disconnected, or a fault retried, before waits fail. Longer than an engine's lease."""

NO_ENGINE = "no_engine"
_START_ENGINE = "Start an engine with 'penstock engine', or look whether it runs and reaches the server."


@dataclass(frozen=True, slots=True)
class Absence:
    """What a subscription that should run currently lacks, as a phrase that continues after its name.

    `cause`: `no_engine`, or the code of the fault that is being retried.
    """

    cause: str
    detail: str
    remedy: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class _Step:
    """A report of progress: its time by the monotonic clock, the applied position, and the known end of the log."""

    at_s: float
    applied: int
    end: int


@dataclass(slots=True)
class TableView:
    """A table as waits see it."""

    id: str
    schema: str
    name: str
    state: TableStateKind
    reason: str | None = None
    remedy: str | None = None
    paused: bool = False
    """Its desired state is to be paused."""
    reload: str | None = None
    """The id of the requested reload of the whole table that has not ended."""
    insert_only: bool = False
    skips: bool = False
    """Not all operations that the source reports are followed."""
    set_aside: int = 0
    """The table has quarantined rows."""

    @property
    def left_out(self) -> bool:
        """Whether the table does not follow the source, or soon will not. A wait that names no tables then leaves it out.

        Declarations and requests decide, not the reported state, which lags them: a resumed table, or a parked one with
        a requested reload, is waited for.
        """
        parked = self.state is TableStateKind.PARKED and self.reload is None
        return self.paused or parked or self.state is TableStateKind.REMOVED


@dataclass(slots=True)
class SubscriptionStatus:
    """One subscription. Changed on the event loop only.

    Lags are in bytes of the source's log and in seconds; times are in UTC.
    """

    name: str
    form: PositionForm
    """How positions of its source are written and measured."""
    consistency: Consistency = Consistency.TRANSACTIONS
    """Which states of its source readers see."""
    epoch: int = 0
    state: SubscriptionState = SubscriptionState.CREATED
    desired: DesiredState = DesiredState.RUNNING
    deleting: bool = False
    reload: str | None = None
    """The id of the requested reload of all tables that has not ended."""
    code: str | None = None
    reason: str | None = None
    remedy: str | None = None
    faulty_since: datetime | None = None
    """The start of the retries because of a fault; None if nothing is being retried."""
    tables: dict[str, TableView] = field(default_factory=dict)
    goals: dict[str, FreshnessGoal] = field(default_factory=dict)
    """Freshness goals of tables by their ids; empty: of all tables that have none of their own."""
    progress: Progress | None = None
    """The last report of progress, with the earlier positions and times where it has none."""
    structure: Lsn | None = None
    structure_at: datetime | None = None
    """Position and time of the last read of the source's catalog whose structures are all in force."""
    run: int = 0
    """The newest known run of the engine; positions of earlier runs do not count."""
    stream: Callable[[], str | None] = field(default=lambda: None, repr=False)
    """The open stream of the engine that runs the subscription; None if there is none."""
    away_s: Callable[[], float | None] = field(default=lambda: None, repr=False)
    """Seconds for which no engine that runs the subscription has been connected; None while one is connected."""
    now: Callable[[], datetime] = field(default=SystemClock().now, repr=False)
    _confirmed_on: str | None = None
    """The stream on which the current run has reported `applied`."""
    _steps: deque[_Step] = field(default_factory=lambda: deque(maxlen=_RATE_SAMPLES))

    @property
    def applied(self) -> Lsn | None:
        return None if self.progress is None else self.progress.applied

    @property
    def source(self) -> Lsn | None:
        return None if self.progress is None else self.progress.source

    @property
    def confirmed_position(self) -> Lsn | None:
        """The applied position that waits may rely on: confirmed by the current run. None if it has confirmed none.

        `applied` is the last known position. Between two runs, or while no engine is connected, the target may be
        replaced by an older one; so a position counts on the stream on which its run reported it, until the run or the
        stream ends. During a pause the engine holds the target, and the last reported position remains valid. A failed
        subscription has none: a source restored from a backup issues positions again.
        """
        if self.state is SubscriptionState.FAILED:
            return None
        return self.applied if self._confirmed_on is not None and self._confirmed_on == self.stream() else None

    def text(self, position: Lsn | None) -> str | None:
        """A position in the text form of its source."""
        return text_of(self.form, position)

    @property
    def applied_marks(self) -> Reached:
        """`applied` by log."""
        if self.progress is not None and self.progress.applied_of_logs:
            return self.progress.applied_of_logs
        return _in_only_log(self.applied)

    @property
    def confirmed_marks(self) -> Reached:
        """`confirmed_position` by log; empty if there is none."""
        return {} if self.confirmed_position is None else self.applied_marks

    @property
    def highest_marks(self) -> Reached:
        """`highest_position` by log."""
        known = self.progress
        if known is None or not known.applied_of_logs:
            return _in_only_log(self.highest_position)
        ends = {**known.source_of_logs, ONLY_LOG: self.highest_position or known.applied}
        return {log: max(at, ends.get(log, at)) for log, at in known.applied_of_logs.items()}

    @property
    def is_halted(self) -> bool:
        """Whether nothing is applied until a user or an operator acts.

        Declarations decide, not the reported state, which lags them.
        """
        if self.desired is not DesiredState.RUNNING:
            return True
        return self.state is SubscriptionState.FAILED and self.reload is None

    def set_state(self, state: SubscriptionState, run: int) -> None:
        """Set the state that the engine reports of a run. A state in which that run may end revokes the confirmed position."""
        held = state in _HELD or (state is SubscriptionState.RUNNING and run == self.run)
        if not held:
            self._confirmed_on = None
        self._advance_run(run)
        self.state = state

    def set_reason(self, code: str | None, reason: str | None, remedy: str | None) -> None:
        """Set the reason of the state; call it after `set_state`."""
        self.code, self.reason, self.remedy = code, reason, remedy
        if self.state is not SubscriptionState.STARTING or reason is None:
            self.faulty_since = None
        elif self.faulty_since is None:
            self.faulty_since = self.now()

    def absence(self) -> Absence | None:
        """What prevents the subscription from applying changes now, and for how long; None if nothing is known to."""
        away_s = self.away_s()
        if away_s is not None:
            detail = f"no engine that runs it has been connected for {format_seconds(away_s)}"
            return Absence(NO_ENGINE, detail, _START_ENGINE, away_s)
        if self.faulty_since is None:
            return None
        faulty_s = max(0.0, (self.now() - self.faulty_since).total_seconds())
        detail = f"it has been tried again for {format_seconds(faulty_s)} because of a fault, {self.reason}"
        return Absence(self.code or "unknown", detail, self.remedy, faulty_s)

    def lasting_absence(self) -> Absence | None:
        """Like `absence`, but only after it has lasted for more than `GONE_AFTER_S`."""
        absence = self.absence()
        return absence if absence is not None and absence.seconds > GONE_AFTER_S else None

    def end_reload(self, reload: str) -> set[str]:
        """A reload has ended, successfully or not. Returns the ids of the tables that it was to copy."""
        self.reload = None if self.reload == reload else self.reload
        ended = {table.id for table in self.tables.values() if table.reload == reload}
        for table in ended:
            self.tables[table].reload = None
        return ended

    def confirm_run(self, run: int, stream: str) -> bool:
        """Record that this run reports `applied` on this stream, which confirms it.

        Returns False, and changes nothing, if a later run is known.
        """
        if run < self.run:
            return False
        self._advance_run(run)
        self._confirmed_on = stream
        return True

    def _advance_run(self, run: int) -> None:
        if run > self.run:
            self.run = run
            self.structure = self.structure_at = None

    @property
    def current_run(self) -> tuple[int, int]:
        """Epoch and number of the newest known run. A later run may start on an older target."""
        return self.epoch, self.run

    @property
    def highest_position(self) -> Lsn | None:
        """The highest position that is known to exist."""
        if self.progress is None:
            return None
        known = (self.progress.applied, self.progress.captured, self.progress.source)
        return max(position for position in known if position is not None)

    def is_beyond_log(self, marks: Marks) -> bool:
        """Whether one of the marks is after the last known end of its log, and may therefore never be reached."""
        highest = self.highest_marks
        return self.source is not None and any(
            mark.log in highest and mark.position > highest[mark.log] for mark in marks
        )

    def lag_at(self, now: datetime, *, engine: bool) -> tuple[int | None, float | None]:
        """How far the live tables are behind, in bytes and seconds; nothing where none is live. While no engine is connected, the time
        since it last reported is added."""
        known = self.progress
        if known is None or not any(table.state is TableStateKind.LIVE for table in self.tables.values()):
            return None, None
        if known.lag_seconds is None or engine:
            return known.lag_bytes, known.lag_seconds
        return known.lag_bytes, round(known.lag_seconds + max(0.0, (now - known.at).total_seconds()), 3)

    def seconds_behind(self) -> float | None:
        """Age of the oldest change that is not applied, by the last report, plus the age of that report. None: unknown."""
        known = self.progress
        if known is None or known.lag_seconds is None:
            return None
        return round(known.lag_seconds + max(0.0, (self.now() - known.at).total_seconds()), 3)

    def set_progress(self, report: Progress, monotonic_s: float) -> bool:
        """Store a report of the current run; `monotonic_s`: its time, for `estimate_ms`.

        Returns False if the applied position moved back, because the source was replaced by one with a shorter log.
        """
        before = self.progress
        forward = before is None or report.applied >= before.applied
        if not forward:
            self._steps.clear()
        kept = {} if before is None else {n: getattr(before, n) for n in _KEPT if getattr(report, n) is None}
        self.progress = report.model_copy(update=kept) if kept else report
        if report.structure is not None:
            self.structure, self.structure_at = report.structure, report.structure_at
        end = self.highest_position or report.applied
        self._steps.append(_Step(monotonic_s, report.applied.value, end.value))
        return forward

    def replace_declared(self, fresh: SubscriptionStatus) -> None:
        """Replace everything but the positions by the content of `fresh`.

        Reports bring positions earlier than the control database.
        """
        if fresh.epoch != self.epoch:
            self.run, self._confirmed_on = 0, None
            self.structure = self.structure_at = None
        self.consistency = fresh.consistency
        self.epoch = fresh.epoch
        self.state = fresh.state
        self.desired = fresh.desired
        self.deleting = fresh.deleting
        self.reload = fresh.reload
        self.code, self.reason, self.remedy = fresh.code, fresh.reason, fresh.remedy
        self.faulty_since = fresh.faulty_since and (self.faulty_since or fresh.faulty_since)
        self.tables = fresh.tables
        self.goals = fresh.goals

    def estimate_ms(self, marks: Marks) -> int | None:
        """Milliseconds until the marks are applied at the rate of the recent reports; None if too little is known.

        The rate is that of the intervals between two reports in which the subscription did not reach the end of the log as the first report
        had it: in others it waited for changes, and might have been faster. It is known for a source with one log only.
        """
        if self.applied is None or marks[0].log != ONLY_LOG:
            return None
        left = marks[0].position.value - self.applied.value
        if left <= 0:
            return 0
        pairs = [(one, other) for one, other in pairwise(self._steps) if other.applied < one.end]
        moved = sum(other.applied - one.applied for one, other in pairs)
        took_s = sum(other.at_s - one.at_s for one, other in pairs)
        return round(left * took_s / moved * 1000) if moved > 0 and took_s > 0 else None


def _in_only_log(position: Lsn | None) -> Reached:
    return {} if position is None else {ONLY_LOG: position}
