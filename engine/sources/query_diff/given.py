"""The settings of a capture by queries, as the engine got them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.model.fault import EngineFault, FaultKind
from engine.model.subscription import FOLDER, ConnectionSpec
from engine.sources.query_diff.cycle import Folder
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.declaration import DEFAULT_EVERY_S, DEFAULT_METHOD

_TIMEOUT_S = 3_600.0
"""Seconds that a cycle waits for another one to end. Not measured."""


@dataclass(frozen=True, slots=True)
class Given:
    """`every_us`: microseconds from the beginning of one cycle to that of the next."""

    every_us: int
    method: Method
    timeout_s: float
    path: Path | None
    name: str

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
    )
