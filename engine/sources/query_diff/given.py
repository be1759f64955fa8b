"""The settings of a capture by queries, as the engine got them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.subscription import FOLDER, ConnectionSpec
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.declaration import (
    DEFAULT_EVERY_S,
    DEFAULT_METHOD,
    DEFAULT_SESSIONS,
    STAMPED,
    TableDetection,
)
from engine.sources.query_diff.folder import Folder

_TIMEOUT_S = 3_600.0
"""Seconds that a cycle waits for another one to end. Not measured."""


@dataclass(frozen=True, slots=True)
class Detection:
    """How the changes of a table are found. `stamp`: column by which cycles on schedule find inserts and updates; None: they compare all
    rows. `sweep_every`: one of so many cycles compares all rows in any case."""

    method: Method
    stamp: str | None = None
    sweep_every: int = 1


@dataclass(frozen=True, slots=True)
class Given:
    """`every_us`: microseconds from the beginning of one cycle to that of the next."""

    every_us: int
    method: Method
    timeout_s: float
    path: Path | None
    name: str
    tables: Mapping[str, TableDetection] = field(default_factory=dict)
    """By `schema.name`."""
    sessions: int = DEFAULT_SESSIONS

    def due_us(self) -> int | None:
        """When the next cycle is due by schedule, since 1970; None before the first one. Cycles of copies and cuts count: they read every
        table too."""
        newest = self.folder.files.reports(1)
        return newest[0].at_us + self.every_us if newest else None

    def detection(self, table: TableName) -> Detection:
        chosen = self.tables.get(str(table), TableDetection())
        if chosen.method in STAMPED:
            # Rows that were found by their stamps have no place in ranges.
            hashed = Method.INCREMENTAL if self.method is Method.INCREMENTAL else Method.ROW_CHECKSUM
            return Detection(hashed, chosen.stamp_column, chosen.sweep_every)
        return Detection(self.method if chosen.method is None else Method(chosen.method))

    @property
    def folder(self) -> Folder:
        """Raises EngineFault(INTERNAL) for a source that was opened outside a subscription."""
        if self.path is None:
            raise EngineFault(FaultKind.INTERNAL, self.name, "cycles belong to a subscription")
        return Folder(self.path)


def given_by(spec: ConnectionSpec) -> Given:
    settings = spec.capture.settings if spec.capture is not None else {}
    folder = settings.get(FOLDER)
    return Given(
        int(settings.get("every_seconds", DEFAULT_EVERY_S)) * 1_000_000,
        Method(str(settings.get("method", DEFAULT_METHOD))),
        _TIMEOUT_S,
        None if folder is None else Path(str(folder)),
        spec.name,
        {
            name: TableDetection.model_validate(one)
            for name, one in json.loads(str(settings.get("tables", "{}"))).items()
        },
        int(settings.get("sessions", DEFAULT_SESSIONS)),
    )
