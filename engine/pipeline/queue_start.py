"""Opening a subscription's queue: what an earlier process left is taken in where it is needed, or the queue begins anew."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Ordinal
from engine.model.position import Lsn
from engine.model.source import Landed, ReaderStatus
from engine.model.subscription import QueueMode
from engine.queue import QueueCatalog, Recovered, is_durable, open_folder, recover, unmark_durable


@dataclass(frozen=True, slots=True)
class QueueStart:
    """A queue ready for a run. `landed` is to be sorted first; the log reader starts at `resume` with ordinal `next_ordinal`.

    `damage`: what was wrong with the queue that was found; what lies behind `resume` is then read from the source again.
    """

    folder: Path
    catalog: QueueCatalog
    landed: list[Landed]
    next_ordinal: Ordinal
    resume: Lsn
    relations: tuple[bytes, ...]
    close: Callable[[], None]
    damage: str | None = None
    resumed: bool = False
    """What an earlier process left is gone on with."""

    def check_reader(self, status: ReaderStatus) -> None:
        """Raises EngineFault(LOG_GAP) where the source has let go of something behind `resume`: it would skip it in silence."""
        if status.confirmed is not None and status.confirmed > self.resume:
            raise _gap(self.folder, status.confirmed, f"target and queue end at {self.resume}", self.damage)


@dataclass(frozen=True, slots=True)
class QueueCheck:
    """What a queue is judged by.

    `current`: where the source's log ends. `new_reader`: what lies in the queue is of an earlier slot, maybe of another history.
    `suspect`: a damaged place was met in it; every block is read before it counts.
    """

    reader: ReaderStatus
    current: Lsn
    new_reader: bool = False
    suspect: bool = False


def open_queue(folder: Path, mode: QueueMode, applied: Lsn, check: QueueCheck) -> QueueStart:
    """Lock the queue for this process and find where to go on.

    Whether the queue is needed is a fact, and no setting decides it: it is where the source has released more than the target holds.
    Where it is not, the source still has everything behind `applied`, and the folder is emptied, unless `persist` is set and what lies
    in it is durable. What is taken in counts up to the first damage, and the log is read on from its end. A queue that was lost or
    damaged only matters where the source has released more than target and queue hold.

    Raises EngineFault(SLOT_IN_USE) where another process works on this queue, LOG_GAP where neither queue nor source hold what the
    target needs next.
    """
    lock = open_folder(folder)
    try:
        return _opened(folder, mode, applied, check, lock.close)
    except BaseException:
        lock.close()
        raise


def _opened(folder: Path, mode: QueueMode, applied: Lsn, check: QueueCheck, close: Callable[[], None]) -> QueueStart:
    confirmed = check.reader.confirmed
    needed = confirmed is not None and confirmed > applied
    durable = is_durable(folder)
    recovered = None
    if not check.new_reader and (needed or (durable and mode is QueueMode.PERSIST)):
        # Without the mark nobody has vouched for what lies there: every block is read before it counts.
        recovered = recover(folder, thorough=check.suspect or not durable)
    damage = _damage(recovered, check)
    if recovered is None or not recovered.begin <= applied <= recovered.end:
        start = QueueStart(folder, QueueCatalog(folder), [], Ordinal(0), applied, (), close, damage)
        start.check_reader(check.reader)
        _empty(folder)
        return start
    start = QueueStart(
        folder,
        QueueCatalog(folder),
        recovered.landed,
        recovered.next_ordinal,
        recovered.end,
        recovered.relations,
        close,
        damage,
        resumed=True,
    )
    start.check_reader(check.reader)
    if recovered.end > check.current:
        detail = f"the queue ends at {recovered.end}, the source's log already at {check.current}: it was set back"
        raise EngineFault(FaultKind.LOG_GAP, str(folder), detail)
    return start


def _damage(recovered: Recovered | None, check: QueueCheck) -> str | None:
    """What was wrong with the queue, in words; None where nothing was, as far as anybody looked."""
    if recovered is not None and recovered.damaged:
        return f"the queue was damaged after {recovered.end}"
    return "a damaged place was met in the queue" if check.suspect and not check.new_reader else None


def _gap(folder: Path, confirmed: Lsn, held: str, damage: str | None) -> EngineFault:
    detail = f"the slot was confirmed up to {confirmed}, {held}: changes between are gone"
    return EngineFault(FaultKind.LOG_GAP, str(folder), f"{detail} ({damage})" if damage else detail)


def _empty(folder: Path) -> None:
    """Remove the segments of an earlier process; the folder's locks stay. The mark goes first: it vouches for all or nothing."""
    unmark_durable(folder)
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix != ".lock":
            path.unlink(missing_ok=True)
