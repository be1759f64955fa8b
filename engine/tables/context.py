"""What one run of a subscription works with."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.source import Source
from engine.model.subscription import SubscriptionSpec
from engine.model.target import Target
from engine.model.tasks import TaskRunner
from engine.runtime.clock import Clock
from engine.runtime.reloads import ReloadBook
from engine.runtime.reporting import Reporter
from engine.runtime.settings import EngineSettings
from engine.runtime.slot_care import SlotCare
from engine.runtime.startup import StartPoint
from engine.runtime.table_book import TableBook
from engine.runtime.tickets import TicketBook


@dataclass(frozen=True, slots=True)
class RunParts:
    """What a run works with; it owns none of it."""

    spec: SubscriptionSpec
    source: Source
    target: Target
    start: StartPoint
    runner: TaskRunner
    settings: EngineSettings
    clock: Clock
    reporter: Reporter
    book: TableBook
    reloads: ReloadBook
    care: SlotCare
    tickets: TicketBook
    number: int
    """Of this run (`Reporter.run`)."""
    suspect_queue: bool = False
    """A damaged place was met in the queue: what lies in it is read through before it counts."""
