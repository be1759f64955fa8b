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
from engine.tables.copy_admission import CopyAdmission
from engine.tables.parking import TableParking
from engine.tables.registry import TableRegistry
from engine.tables.reporter import Reporter
from engine.tables.start_point import StartPoint


@dataclass(frozen=True, slots=True)
class RunContext:
    """Everything that a run uses. The run owns and closes none of it."""

    spec: SubscriptionSpec
    source: Source
    open_source: Callable[[ConnectionSpec], Source]
    """Opens a source. Must be importable by name, because it is sent to the log reader process and to tasks."""
    target: Target
    start: StartPoint
    runner: TaskRunner
    settings: EngineSettings
    clock: Clock
    reporter: Reporter
    book: TableRegistry
    admission: CopyAdmission
    parking: TableParking
    number: int
    """The run's number (`Reporter.run`)."""
    suspect_queue: bool = False
    """A damaged block was found in the queue: the queue is verified completely before its records are used."""
