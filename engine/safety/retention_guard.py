"""Applies the escalation policy to the log retained for one reader: sends events with the figures, and returns the actions for the run.

It outlives runs, so that each level is reported once, however often a run restarts.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from engine.model.sizes import size
from engine.model.source import GuardReading, SourceTerms
from engine.model.subscription import SubscriptionSpec
from engine.platform.clock import Clock
from engine.safety.escalation import (
    EscalationLevel,
    EscalationState,
    Growth,
    Look,
    budget_of,
    escalate,
)
from engine.safety.node_watch import NodeWatch
from engine.tables.reporter import Reporter


@dataclass(frozen=True, slots=True)
class RetentionProgress:
    """What the run can do about the retained log: make its queue durable (`may_persist`), end copies (`copying`). Nothing without a run."""

    may_persist: bool = False
    copying: bool = False


@dataclass(frozen=True, slots=True)
class RetentionActions:
    """Actions in force from now on. `drop`: why the reader must be dropped, None if it stays."""

    persist: bool
    hold_copies: bool
    drop: str | None = None


_STANDING_STILL = RetentionProgress()


class RetentionGuard:
    """Judges the figures of one reader, which its run reads, or the supervisor while there is no run."""

    def __init__(
        self, spec: SubscriptionSpec, reporter: Reporter, clock: Clock, patience_s: float, terms: SourceTerms
    ) -> None:
        self._terms = terms
        self._spec = spec
        self._reporter = reporter
        self._clock = clock
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._standing = EscalationState()
        self._growth = Growth()
        self._nodes = NodeWatch(reporter, clock)

    def configure(self, spec: SubscriptionSpec) -> None:
        """Take over budget and shares from the subscription."""
        with self._lock:
            self._spec = spec

    def begin_again(self) -> None:
        """Reset for a new reader, for which nothing is retained yet."""
        with self._lock:
            self._standing, self._growth = EscalationState(), Growth()

    @property
    def orders(self) -> RetentionActions:
        """The actions in force since the last check."""
        return self._orders(None)

    def judge(self, reading: GuardReading, under_way: RetentionProgress = _STANDING_STILL) -> RetentionActions:
        """Evaluate one check and send its events. The caller carries out the returned actions."""
        status = reading.reader
        self._nodes.look(status.logs)
        with self._lock:
            look = Look(
                at_s=self._clock.monotonic_ms() / 1000,
                retained_bytes=status.retained_bytes,
                budget_bytes=budget_of(
                    self._spec.retained_log_budget_bytes, status.retained_bytes, status.safe_wal_bytes
                ),
                copy_retained_bytes=reading.copy_retained_bytes,
                may_persist=under_way.may_persist,
                copying=under_way.copying,
                open_s=reading.oldest_open_s if reading.oldest_open else None,
            )
            self._growth.add(look.at_s, look.retained_bytes)
            step = escalate(self._standing, look, self._spec.guard, self._patience_s)
            self._standing = step.standing
            figures = self._figures(look)
        for rung in step.reached:
            self._report_level(rung, figures, reading)
        if EscalationLevel.STOP_COPIES in step.left:
            self._reporter.event("info", "slot_lets_copies_go_on", self._spec.reader, f"{figures}; copies begin again")
        dropped = (
            f"{figures}, and nothing else helped{self._since(reading)}"
            if EscalationLevel.DROP_READER in step.reached
            else None
        )
        return self._orders(dropped)

    def _orders(self, drop: str | None) -> RetentionActions:
        reached = self._standing.reached
        return RetentionActions(EscalationLevel.PERSIST_QUEUE in reached, EscalationLevel.STOP_COPIES in reached, drop)

    def _figures(self, look: Look) -> str:
        held = f"{size(look.retained_bytes)} of log, {look.share:.0%} of the {size(look.budget_bytes)} it may"
        text = f"the {self._terms.reader} holds back {held}"
        if look.share_for(EscalationLevel.STOP_COPIES) > look.share:
            text += f"; copies hold back {size(look.copy_retained_bytes)}"
        rate, full = self._growth.bytes_per_s, self._growth.full_in_s(look.budget_bytes)
        if rate is None:
            return text
        if full is None:
            return f"{text}; it does not grow"
        return f"{text}; it grows by {size(rate)} a second and is full in {full:.0f} s"

    def _report_level(self, rung: EscalationLevel, figures: str, reading: GuardReading) -> None:
        reader = self._spec.reader
        holder = f"; the oldest open transaction on the source is {reading.oldest_open}" if reading.oldest_open else ""
        if rung is EscalationLevel.WARN:
            self._reporter.event("warning", "slot_retains_log", reader, figures + holder)
        elif rung is EscalationLevel.PERSIST_QUEUE:
            self._reporter.event("warning", "slot_persists_queue", reader, f"{figures}; the queue is made durable")
        elif rung is EscalationLevel.STOP_COPIES:
            detail = f"{figures}; copies and reloads are stopped, and begin again when there is room"
            self._reporter.event("warning", "slot_stops_copies", reader, detail)
        elif rung is EscalationLevel.NAME_TRANSACTION:
            detail = f"{figures}; {reading.oldest_open} on the source holds it: only its end lets the log go"
            self._reporter.event("warning", "slot_held_by_transaction", reader, detail)

    def _since(self, reading: GuardReading) -> str:
        confirmed = reading.reader.confirmed
        if confirmed is None:
            return ""
        return f"; changes after {self._terms.text(confirmed)} are no longer held for this subscription"
