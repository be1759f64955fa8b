"""State of a subscription that outlives a run."""

from __future__ import annotations

from dataclasses import dataclass

from engine.copy.reload_requests import ReloadRequests
from engine.pipeline.tickets import TicketTracker
from engine.safety.retention_guard import RetentionGuard


@dataclass(frozen=True, slots=True)
class CrossRunState:
    """Kept by the subscription's supervisor and passed to each of its runs."""

    reloads: ReloadRequests
    care: RetentionGuard
    tickets: TicketTracker
