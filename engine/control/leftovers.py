"""Removes what a deleted subscription left on its source, its target and this machine."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from engine.connectors import terms_of
from engine.control.target_registry import TargetRegistry
from engine.model.fault import EngineFault
from engine.model.source import Source
from engine.model.subscription import ConnectionSpec, SubscriptionSpec
from engine.platform.settings import EngineSettings
from engine.safety.restart_watermark import RestartWatermark


def remove_leftovers(
    spec: SubscriptionSpec,
    open_source: Callable[[ConnectionSpec], Source],
    targets: TargetRegistry,
    settings: EngineSettings,
) -> list[str]:
    """Remove the reader on the source, the record on the target, and the files. Returns what could not be removed, as text. Blocks."""
    left: list[str] = []
    terms = terms_of(spec.source)
    try:
        source = open_source(spec.source)
        try:
            left += source.reader.remove(spec.reader)
        finally:
            source.close()
    except EngineFault as fault:
        left.append(f"{terms.reader} and {terms.sent_tables} {spec.reader} on the source: {fault.detail}")
    try:
        target = targets.acquire(spec.target)
        try:
            target.forget(spec.name)
        finally:
            targets.release(spec.target)
    except EngineFault as fault:
        left.append(f"the progress record on the target: {fault.detail}")
    shutil.rmtree(settings.queue_folder / spec.reader, ignore_errors=True)
    RestartWatermark(settings.queue_folder, spec.reader, terms).forget()
    return left
