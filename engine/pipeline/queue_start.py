"""Opens a subscription's queue: the segments of an earlier process are used if they are needed, otherwise the queue begins empty."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Ordinal
from engine.model.position import Lsn
from engine.model.source import Landed, ReaderStatus, SourceTerms
from engine.model.subscription import QueueMode
from engine.queue import QueueCatalog, Recovered, is_durable, open_folder, recover, unmark_durable


@dataclass(frozen=True, slots=True)
class QueueStart:
    """A queue that is locked and ready for a run.

    `landed`: records of the earlier process, to be sorted first. The log reader starts at `resume` with ordinal `next_ordinal`.
    `relations`: relation records in force at `resume`. `close` releases the lock. `damage`: the damage that was found in the queue, as
    text; the log after `resume` is then read from the source again.
    """

    folder: Path
    catalog: QueueCatalog
    landed: list[Landed]
    next_ordinal: Ordinal
    resume: Lsn
    relations: tuple[bytes, ...]
    close: Callable[[], None]
    terms: SourceTerms
    damage: str | None = None
    resumed: bool = False
    """Whether the segments of an earlier process are used."""

    def check_reader(self, status: ReaderStatus) -> None:
        """Raise EngineFault(LOG_GAP) if the source has released log after `resume`: it would skip those changes without an error."""
        if status.confirmed is not None and status.confirmed > self.resume:
            confirmed, resume = self.terms.text(status.confirmed), self.terms.text(self.resume)
            detail = f"the {self.terms.reader} was confirmed up to {confirmed}, target and queue end at {resume}: changes between are gone"
            raise EngineFault(
                FaultKind.LOG_GAP, str(self.folder), f"{detail} ({self.damage})" if self.damage else detail
            )


@dataclass(frozen=True, slots=True)
class QueueCheck:
    """The facts that decide whether a queue is used.

    `reader`: the source's reader. `current`: the end of the source's log. `terms`: the source's. `new_reader`: the queue belongs to an
    earlier reader, possibly of another history. `suspect`: an earlier run found damage in the queue, so every block is read and checked
    before it is used.
    """

    reader: ReaderStatus
    current: Lsn
    terms: SourceTerms
    new_reader: bool = False
    suspect: bool = False


def open_queue(folder: Path, mode: QueueMode, applied: Lsn, check: QueueCheck) -> QueueStart:
    """Lock the queue for this process and determine where reading continues. `applied`: the target's position.

    The queue is needed if the source has released log that the target does not contain, whatever `mode` is. Otherwise the source still
    has everything after `applied`; the queue is then used only if `mode` is `persist` and the queue is durable, and emptied if not.
    A queue is used up to the first damage, and the log after that is read from the source. A lost or damaged queue is a fault only if
    the source has released log that neither the target nor the queue contains.

    Raises:
        EngineFault: SLOT_IN_USE if another process has locked the queue; LOG_GAP if neither the queue nor the source has the log that the
            target needs next, or if the source's log ends before the queue's.
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
        # Without the durability mark the segments may be incomplete, so every block is read and checked before it is used.
        recovered = recover(folder, thorough=check.suspect or not durable)
    damage = _damage(recovered, check)
    if recovered is None or not recovered.begin <= applied <= recovered.end:
        start = QueueStart(folder, QueueCatalog(folder), [], Ordinal(0), applied, (), close, check.terms, damage)
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
        check.terms,
        damage,
        resumed=True,
    )
    start.check_reader(check.reader)
    if recovered.end > check.current:
        end, current = check.terms.text(recovered.end), check.terms.text(check.current)
        detail = f"the queue ends at {end}, the source's log already at {current}: it was set back"
        raise EngineFault(FaultKind.LOG_GAP, str(folder), detail)
    return start


def _damage(recovered: Recovered | None, check: QueueCheck) -> str | None:
    """The queue's damage as text; None if none was found. A queue that is not needed is not examined."""
    if recovered is not None and recovered.damaged:
        return f"the queue was damaged after {check.terms.text(recovered.end)}"
    return "a damaged place was met in the queue" if check.suspect and not check.new_reader else None


def _empty(folder: Path) -> None:
    """Remove the segments of an earlier process, but not the locks. The durability mark is removed first, since it covers all segments."""
    unmark_durable(folder)
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix != ".lock":
            path.unlink(missing_ok=True)
