"""Opening a subscription's queue: what an earlier process left durable is taken in (persist), or the queue begins anew (memory)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Ordinal
from engine.model.position import Lsn
from engine.model.source import Landed, SlotStatus
from engine.model.subscription import QueueMode
from engine.queue import QueueCatalog, Recovered, open_folder, read_block, recover


@dataclass(frozen=True, slots=True)
class QueueStart:
    """A queue ready for a run. `landed` is to be sorted first; the log reader starts at `resume` with ordinal `next_ordinal`."""

    folder: Path
    catalog: QueueCatalog
    landed: list[Landed]
    next_ordinal: Ordinal
    resume: Lsn
    relations: tuple[bytes, ...]
    close: Callable[[], None]


@dataclass(frozen=True, slots=True)
class QueueCheck:
    """What a queue is judged by.

    `current`: where the source's log ends. `new_slot`: what lies in the queue is of an earlier slot, maybe of another history.
    `suspect`: read every block before it counts.
    """

    slot: SlotStatus
    current: Lsn
    new_slot: bool = False
    suspect: bool = False


def open_queue(folder: Path, mode: QueueMode, applied: Lsn, check: QueueCheck) -> QueueStart:
    """Lock the queue for this process and find where to go on.

    In `memory` mode the source still holds everything behind `applied`, so the folder is emptied. In `persist` mode what lies in it is
    taken in, and read on from its durable end; a folder that was lost or damaged only matters where the source has released more than
    the target holds.

    Raises EngineFault(SLOT_IN_USE) where another process works on this queue, LOG_GAP where neither queue nor source hold what the
    target needs next.
    """
    lock = open_folder(folder)
    try:
        catalog = QueueCatalog(folder)
        recovered = recover(folder) if mode is QueueMode.PERSIST and not check.new_slot else None
        usable = recovered is not None and recovered.begin <= applied <= recovered.end
        if recovered is not None and usable and check.suspect:
            usable = _is_sound(recovered)
        confirmed = check.slot.confirmed
        if recovered is None or not usable:
            if confirmed is not None and confirmed > applied:
                detail = f"the slot was confirmed up to {confirmed}, target and queue end at {applied}: changes between are gone"
                raise EngineFault(FaultKind.LOG_GAP, str(folder), detail)
            _empty(folder)
            return QueueStart(folder, catalog, [], Ordinal(0), applied, (), lock.close)
        if confirmed is not None and confirmed > recovered.end:
            detail = (
                f"the slot was confirmed up to {confirmed}, the queue ends at {recovered.end}: changes between are gone"
            )
            raise EngineFault(FaultKind.LOG_GAP, str(folder), detail)
        if recovered.end > check.current:
            detail = f"the queue ends at {recovered.end}, the source's log already at {check.current}: it was set back"
            raise EngineFault(FaultKind.LOG_GAP, str(folder), detail)
        return _resumed(folder, catalog, recovered, lock.close)
    except BaseException:
        lock.close()
        raise


def _is_sound(recovered: Recovered) -> bool:
    """Whether every block is what was written; recovery itself reads only the last segment's."""
    try:
        for landed in recovered.landed:
            if landed.block is not None:
                read_block(landed.block)
    except EngineFault as fault:
        if fault.kind is not FaultKind.QUEUE_CORRUPT:
            raise
        return False
    return True


def _resumed(folder: Path, catalog: QueueCatalog, recovered: Recovered, close: Callable[[], None]) -> QueueStart:
    return QueueStart(
        folder, catalog, recovered.landed, recovered.next_ordinal, recovered.end, recovered.relations, close
    )


def _empty(folder: Path) -> None:
    """Remove the segments of an earlier process; the folder's locks stay."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix != ".lock":
            path.unlink(missing_ok=True)
