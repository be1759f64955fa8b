"""What outlives a run of a subscription."""

from __future__ import annotations

from dataclasses import dataclass

from engine.copy.reload_requests import ReloadRequests
from engine.pipeline.tickets import TicketTracker
from engine.safety.retention_guard import RetentionGuard


@dataclass(frozen=True, slots=True)
class CrossRunState:
    """Held by the subscription's supervisor and handed to each of its runs."""

    reloads: ReloadRequests
    care: RetentionGuard
    tickets: TicketTracker
