"""Cuts: source and target read at one position during replication. Verification compares tables at them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from engine.model.batch import SealedBatch
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.position import Lsn
from engine.model.repair import Repair, RepairedRows, RepairResult, TableRepair
from engine.model.source import ExportedSnapshot
from engine.model.table_state import TableStateKind
from engine.model.target import TableRecord, TargetReader
from engine.pipeline.intake import Cut, HoldBack, Intake
from engine.platform.failpoints import Failpoint, hit
from engine.tables.context import RunContext

HELD_BACK_MS = (300, 600, 1200, 2400, 4800)
"""Delay in ms between reading and sealing, for each attempt, while its snapshot is made. A snapshot's position becomes known to the engine
some milliseconds after the source has chosen it, on busy machines some hundred. Nothing after that position may be sealed before. How
long the snapshot itself takes does not matter."""


WRITE_WAIT_S = 10.0
"""Longest time in seconds for which the commit thread waits for what is to be written at a cut. Not measured."""
_LOOK_S = 0.05
"""How often it looks meanwhile whether the run ends."""

Read = TypeVar("Read")
Written = TypeVar("Written")


class _Work(Protocol):
    def do(self, position: Lsn, stopped: threading.Event) -> None:
        """In the commit thread, when the target is at the cut, before anything else is written to it."""
        ...


@dataclass
class _Write(Generic[Read, Written]):
    """Something that is written to the target at a cut. What it needs is read from the source meanwhile, by another thread."""

    write: Callable[[Read, Lsn], Written]
    read: list[Read] = field(default_factory=list)
    """One element once it was read."""
    ready: threading.Event = field(default_factory=threading.Event)
    """The read has ended, possibly with a fault."""
    late: bool = False
    """The target went on without it."""
    written: list[Written] = field(default_factory=list)
    fault: EngineFault | None = None

    def do(self, position: Lsn, stopped: threading.Event) -> None:
        waited = 0.0
        while not self.ready.wait(_LOOK_S) and waited < WRITE_WAIT_S and not stopped.is_set():
            waited += _LOOK_S
        self.late = not self.ready.is_set()
        if self.late or not self.read or stopped.is_set():
            return
        try:
            self.written.append(self.write(self.read[0], position))
        except EngineFault as fault:
            self.fault = fault
            raise


@dataclass
class _Wanted:
    position: Lsn
    work: _Work | None = None
    decided: threading.Event = field(default_factory=threading.Event)
    pin: AbstractContextManager[TargetReader] | None = None
    reader: TargetReader | None = None
    refused: bool = False


class CutCoordinator:
    """Makes cuts for one run. The verifier's thread calls `cut`, the commit thread `reached`; any thread may call the rest."""

    def __init__(self, parts: RunContext, intake: Intake, staging: Path) -> None:
        self._parts = parts
        self._intake = intake
        self._staging = staging
        self._wanted: list[_Wanted] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    @contextmanager
    def cut(
        self, read_early: Callable[[ExportedSnapshot], None] = lambda _: None
    ) -> Iterator[tuple[ExportedSnapshot, TargetReader]]:
        """A source snapshot and a reader of the target at its position, for the time of the block.

        Blocks until the target has reached the position, for about as long as the lag. `read_early` is called with each attempted snapshot
        before that.

        Raises:
            EngineFault: SOURCE_TIMEOUT if open transactions on the source delay the snapshot for too long, if batches after its position
                were sealed in every attempt before the position was known, or if the run ended.
        """
        for held_back_ms in HELD_BACK_MS:
            with ExitStack() as stack:
                snapshot, wanted = self._snapshot(stack, held_back_ms)
                read_early(snapshot)
                reader = self._target_at(wanted, stack)
                if reader is not None:
                    # The batch may end after the snapshot's position if there is no transaction in between: the state is the same.
                    yield replace(snapshot, position=reader.position), reader
                    return
        raise self._too_busy()

    def _too_busy(self) -> EngineFault:
        return EngineFault(
            FaultKind.SOURCE_TIMEOUT,
            self._parts.spec.source.name,
            f"{len(HELD_BACK_MS)} snapshots became known only after later commits were on their way to the target, which they cannot be"
            " compared with: engine or source is too busy; try again",
        )

    def write_at_cut(self, read: Callable[[ExportedSnapshot], Read], write: Callable[[Read, Lsn], Written]) -> Written:
        """Write to the target what `read` returns of a source snapshot, when the target is at the snapshot's position.

        `write` is called in the commit thread, after the batch that ends at the position and before the next one, with the position; the
        position is reported as applied only afterwards. Replication waits meanwhile, and before at most WRITE_WAIT_S for the end of
        `read`. What `write` raises also ends the run. `read` is called for each attempted snapshot.

        Raises:
            EngineFault: as `cut`, SOURCE_TIMEOUT also if the read takes too long; what `read` and `write` raise.
        """
        for held_back_ms in HELD_BACK_MS:
            work = _Write(write)
            with ExitStack() as stack:
                snapshot, wanted = self._snapshot(stack, held_back_ms, work)
                try:
                    work.read.append(read(snapshot))
                finally:
                    work.ready.set()
                self._target_at(wanted, stack)
            if work.fault is not None:
                raise work.fault
            if work.written:
                return work.written[0]
            if work.late:
                detail = f"the source did not return the rows within {WRITE_WAIT_S:g} s, the longest time for which replication waits"
                raise EngineFault(FaultKind.SOURCE_TIMEOUT, self._parts.spec.source.name, detail)
        raise self._too_busy()

    def write_repair(self, verification: str, tables: Sequence[TableRepair], position: Lsn) -> RepairResult:
        """As RepairTarget.repair, to be called in the `write` of `write_at_cut`. An event names each repaired table, without values."""
        name = self._parts.spec.name
        hit(Failpoint.REPAIR_BEFORE)
        result = self._parts.target.repair(Repair(name, verification, position, tables))
        hit(Failpoint.REPAIR_AFTER)
        for table, rows in result.written.items():
            detail = (
                f"verification {verification} replaced rows by the source's: {rows.inserted} inserted, {rows.updated} updated,"
                f" {rows.deleted} deleted; penstock.repaired_rows on the target has them"
            )
            if rows != RepairedRows():
                self._parts.reporter.event("warning", "rows_repaired", str(table), detail)
        return result

    def reached(self, batch: SealedBatch, applied: Lsn) -> None:
        """Make every cut at the end of `batch`: write what is to be written there, then pin the target. Called by the commit thread after
        the batch's commit. Raises what a `write` raises."""
        if not batch.cuts:
            return
        with self._lock:
            found = [w for w in self._wanted if w.position in batch.cuts and applied >= batch.end]
            self._wanted = [w for w in self._wanted if w not in found]
        try:
            for wanted in sorted(found, key=lambda w: w.work is None):
                if wanted.work is not None:
                    wanted.work.do(applied, self._stopped)
                else:
                    self._pin(wanted)
        finally:
            for wanted in found:
                wanted.decided.set()

    def _pin(self, wanted: _Wanted) -> None:
        wanted.pin = self._parts.target.pin(self._parts.spec.name)
        wanted.reader = wanted.pin.__enter__()

    def stop(self) -> None:
        """End waiting cuts with a fault, because the run ends."""
        self._stopped.set()
        with self._lock:
            for wanted in self._wanted:
                wanted.decided.set()
            self._wanted.clear()

    def records(self, tables: Sequence[TableId] | None) -> list[TableRecord]:
        """The target's records of the live tables among `tables`, or of all live tables if None."""
        progress = self._parts.target.progress(self._parts.spec.name)
        live = {e.table for e in self._parts.book.all().in_state(TableStateKind.LIVE)}
        known = progress.tables if progress is not None else {}
        return [r for t, r in known.items() if t in live and (tables is None or t in tables)]

    def _snapshot(
        self, stack: ExitStack, held_back_ms: int, work: _Work | None = None
    ) -> tuple[ExportedSnapshot, _Wanted]:
        """A snapshot, and the requested cut at its position. Sealing is delayed until the cut is requested."""
        self._intake.put(HoldBack(held_back_ms, on=True))
        try:
            snapshot = stack.enter_context(self._parts.source.copies.snapshot(self._parts.settings.snapshot_timeout_s))
            return snapshot, self._want(snapshot.position, work)
        finally:
            self._intake.put(HoldBack(held_back_ms, on=False))

    def _want(self, position: Lsn, work: _Work | None) -> _Wanted:
        wanted = _Wanted(position, work)
        with self._lock:
            self._wanted.append(wanted)

        def refused() -> None:
            wanted.refused = True
            wanted.decided.set()

        self._intake.put(Cut(position, refused))
        return wanted

    def _target_at(self, wanted: _Wanted, stack: ExitStack) -> TargetReader | None:
        """The target pinned at the wanted position; None if a later batch was sealed already, or the target did not reach it in time."""
        wanted.decided.wait(self._parts.settings.snapshot_timeout_s)
        with self._lock:
            waiting = wanted in self._wanted
            if waiting:
                self._wanted.remove(wanted)
        if not waiting:
            # The target is there, and the commit thread makes the cut.
            wanted.decided.wait()
        if wanted.pin is not None:
            stack.push(wanted.pin)
        if self._stopped.is_set():
            raise EngineFault(
                FaultKind.SOURCE_TIMEOUT, str(self._parts.spec.name), "replication stopped before the cut was reached"
            )
        return wanted.reader
