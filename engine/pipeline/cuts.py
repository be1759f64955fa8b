"""Cuts: source and target read at one position while the load goes on. Verification compares at them."""

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
"""So long before it is sealed each try holds back what is read, while its snapshot is made. A snapshot has the position at which the
source found it, and that becomes known here some milliseconds later, where the machines are busy some hundred: until then nothing
behind it may be sealed. How long the snapshot itself takes does not matter."""


@dataclass
class _Wanted:
    position: Lsn
    decided: threading.Event = field(default_factory=threading.Event)
    pin: AbstractContextManager[TargetReader] | None = None
    reader: TargetReader | None = None
    refused: bool = False


class CutCoordinator:
    """Makes cuts for one run. `cut` is called from the verifier's thread, `reached` from the commit thread."""

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
        """A source snapshot and a target read of the same position.

        `read_early` is called with each snapshot that is tried, before the target gets there, which takes as long as the lag.

        Raises EngineFault(SOURCE_TIMEOUT) where open transactions on the source keep a snapshot from being made in time, or where its
        position is past again and again before it is known here.
        """
        for held_back_ms in HELD_BACK_MS:
            with ExitStack() as stack:
                snapshot, wanted = self._snapshot(stack, held_back_ms)
                read_early(snapshot)
                reader = self._target_at(wanted, stack)
                if reader is not None:
                    # The batch may end behind the snapshot's position, with no transaction in between: the same state.
                    yield replace(snapshot, position=reader.position), reader
                    return
        raise EngineFault(
            FaultKind.SOURCE_TIMEOUT,
            self._parts.spec.source.name,
            f"{len(HELD_BACK_MS)} snapshots became known only after later commits were on their way to the target, which they cannot be"
            " compared with: engine or source is too busy; try again",
        )

    def reached(self, batch: SealedBatch, applied: Lsn) -> None:
        """In the commit thread, behind the commit of `batch`: pin the target for every cut that ends here."""
        if not batch.cuts:
            return
        with self._lock:
            for wanted in [w for w in self._wanted if w.position in batch.cuts and applied >= batch.end]:
                wanted.pin = self._parts.target.pin(self._parts.spec.name)
                wanted.reader = wanted.pin.__enter__()
                self._wanted.remove(wanted)
                wanted.decided.set()

    def stop(self) -> None:
        """The run ends: cuts still wanted are given up."""
        self._stopped.set()
        with self._lock:
            for wanted in self._wanted:
                wanted.decided.set()
            self._wanted.clear()

    def records(self, tables: Sequence[TableId] | None) -> list[TableRecord]:
        """The live tables to compare, all of them where `tables` is None."""
        progress = self._parts.target.progress(self._parts.spec.name)
        live = {e.table for e in self._parts.book.in_state(TableStateKind.LIVE)}
        known = progress.tables if progress is not None else {}
        return [r for t, r in known.items() if t in live and (tables is None or t in tables)]

    def _snapshot(self, stack: ExitStack, held_back_ms: int) -> tuple[ExportedSnapshot, _Wanted]:
        """A snapshot, and the cut at its position, which nothing has been sealed behind."""
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
        """The target pinned at the wanted position; None where it had already gone past."""
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
