"""Cuts: source and target read at one position during replication. Verification compares tables at them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.model.batch import SealedBatch
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.position import Lsn
from engine.model.source import ExportedSnapshot
from engine.model.table_state import TableStateKind
from engine.model.target import TableRecord, TargetReader
from engine.pipeline.intake import Cut, HoldBack, Intake
from engine.tables.context import RunContext

HELD_BACK_MS = (300, 600, 1200, 2400, 4800)
"""Delay in ms between reading and sealing, for each attempt, while its snapshot is made. A snapshot's position becomes known to the engine
some milliseconds after the source has chosen it, on busy machines some hundred. Nothing after that position may be sealed before. How
long the snapshot itself takes does not matter."""


@dataclass
class _Wanted:
    position: Lsn
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
        raise EngineFault(
            FaultKind.SOURCE_TIMEOUT,
            self._parts.spec.source.name,
            f"{len(HELD_BACK_MS)} snapshots became known only after later commits were on their way to the target, which they cannot be"
            " compared with: engine or source is too busy; try again",
        )

    def reached(self, batch: SealedBatch, applied: Lsn) -> None:
        """Pin the target for every cut at the end of `batch`. Called by the commit thread after the batch's commit."""
        if not batch.cuts:
            return
        with self._lock:
            for wanted in [w for w in self._wanted if w.position in batch.cuts and applied >= batch.end]:
                wanted.pin = self._parts.target.pin(self._parts.spec.name)
                wanted.reader = wanted.pin.__enter__()
                self._wanted.remove(wanted)
                wanted.decided.set()

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

    def _snapshot(self, stack: ExitStack, held_back_ms: int) -> tuple[ExportedSnapshot, _Wanted]:
        """A snapshot, and the requested cut at its position. Sealing is delayed until the cut is requested."""
        self._intake.put(HoldBack(held_back_ms, on=True))
        try:
            snapshot = stack.enter_context(self._parts.source.copies.snapshot(self._parts.settings.snapshot_timeout_s))
            return snapshot, self._want(snapshot.position)
        finally:
            self._intake.put(HoldBack(held_back_ms, on=False))

    def _want(self, position: Lsn) -> _Wanted:
        wanted = _Wanted(position)
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
            if wanted in self._wanted:
                self._wanted.remove(wanted)
            if wanted.pin is not None:
                stack.push(wanted.pin)
        if self._stopped.is_set():
            raise EngineFault(
                FaultKind.SOURCE_TIMEOUT, str(self._parts.spec.name), "replication stopped before the cut was reached"
            )
        return wanted.reader
