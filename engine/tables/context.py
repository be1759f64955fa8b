"""What one run of a subscription works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.model.source import Source
from engine.model.subscription import ConnectionSpec, SubscriptionSpec
from engine.model.target import Target
from engine.model.tasks import TaskRunner
from engine.platform.clock import Clock
from engine.platform.settings import EngineSettings
from engine.tables.registry import TableRegistry
from engine.tables.reporter import Reporter
from engine.tables.start_point import StartPoint


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run works with; it owns none of it."""

    spec: SubscriptionSpec
    source: Source
    open_source: Callable[[ConnectionSpec], Source]
    """Importable by name: log reader and tasks get it."""
    target: Target
    start: StartPoint
    runner: TaskRunner
    settings: EngineSettings
    clock: Clock
    reporter: Reporter
    book: TableRegistry
    number: int
    """Of this run (`Reporter.run`)."""
    suspect_queue: bool = False
    """A damaged place was met in the queue: what lies in it is read through before it counts."""
