"""Preparation of a log reader's session: the source's reader is freed, and the last transaction that was read is determined."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from engine.model.control import SESSION_ORIGINS, ControlKind
from engine.model.last_commit import LastCommit
from engine.model.position import ZERO, Lsn
from engine.model.source import Landed
from engine.model.subscription import OriginFilter
from engine.model.target import TargetProgress
from engine.pipeline.intake import Batching, Intake
from engine.pipeline.queue_start import QueueStart
from engine.pipeline.streamed_transactions import OPEN_SLICE_RATIO, StreamedSliceCutter, StreamedTransactionStager
from engine.queue import QueueCatalog
from engine.sort.batcher import Alone, Batcher
from engine.sort.capture_tally import CaptureTally
from engine.sort.sorter import TransactionSorter
from engine.tables.context import RunContext

READER_GRACE_MS = 5000.0
"""Time in ms for an older session to end by itself: longer than `reader_process.STOP_TIMEOUT_S`, after which a log reader is killed."""


def last_at_start(parts: RunContext) -> LastCommit:
    """The last transaction up to the target's position, with which the session verifies the log.

    What is included of merged logs is kept in every case; with another origin filter, the last transactions of their nodes are unknown.

    If it is unknown, or was read with another origin filter, an event reports that the log is not verified at this start.
    """
    progress, origin = parts.start.progress, parts.spec.origin
    last = progress.last
    if last is not None and last.logs is not None and last.origin is not origin:
        last = replace(last, logs=last.logs.forgotten())
    if last is None:
        reason = "the target's record is of an earlier version, which did not note the last transaction"
        last = LastCommit.unknown(progress.end, origin)
    elif last.origin is not origin and (last.known or last.end != progress.end):
        reason = f"what was read so far was read with capture.origin {last.origin}"
        last = LastCommit.unknown(progress.end, last.origin, last.logs)
    else:
        return last
    end = parts.source.terms.text(progress.end)
    detail = f"{reason}: whether the source's log is the one that was read up to {end} is not verified at this start"
    parts.reporter.event("info", "log_not_verified", parts.spec.reader, detail)
    return last


def batching(parts: RunContext, catalog: QueueCatalog, stager: StreamedTransactionStager, alone: Alone) -> Batching:
    """The stages from records to batches. Transactions that end at or before the target's position are ignored."""
    spec, end = parts.spec, parts.start.progress.end
    sorter = TransactionSorter(end)
    ahead = StreamedSliceCutter(sorter, catalog.bytes_between, parts.settings.piece_bytes // OPEN_SLICE_RATIO, stager)
    batcher = Batcher(spec.batch, end, alone, last_at_start(parts), spec.origin)
    return Batching(sorter, ahead, batcher, CaptureTally(end))


def restore(intake: Intake, opened: QueueStart, progress: TargetProgress, origin: OriginFilter) -> None:
    """Pass the records that an earlier process left in the queue to the intake."""
    before = None if progress.last is None else progress.last.origin
    unknown_end = read_otherwise(opened.landed, before, origin, opened.resume)
    intake.restore(opened.landed, opened.next_ordinal, unknown_end)


def read_otherwise(landed: Iterable[Landed], before: OriginFilter | None, origin: OriginFilter, end: Lsn) -> Lsn:
    """The position up to which the log before and in the queue was read with another filter than `origin`.

    `before`: the filter before the first session that the queue contains; None if unknown. `end`: the end of the queue.
    """
    found, same = ZERO, before is origin
    for one in landed:
        for code in one.controls["subxid"][one.controls["kind"] == ControlKind.SESSION].tolist():
            found = found if same else one.wal_end
            same = code == SESSION_ORIGINS[origin]
    return found if same else end


def free_reader(parts: RunContext, stop: threading.Event) -> None:
    """Wait until no session uses the source's reader; after READER_GRACE_MS, end the session of an older log reader of the engine.

    Called after the target has accepted this engine's epoch, so an older engine cannot write to the target any more. Returns early when
    `stop` is set. Raises EngineFault(SLOT_IN_USE) if the session belongs to another client or does not end.
    """
    deadline = parts.clock.monotonic_ms() + READER_GRACE_MS
    while parts.source.reader.status(parts.spec.reader).active_pid is not None:
        if stop.wait(0.1):
            return
        if parts.clock.monotonic_ms() >= deadline:
            parts.source.reader.end_other(parts.spec.reader, f"penstock-{parts.spec.name}-")
            return
