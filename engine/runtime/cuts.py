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
from engine.model.table_state import TableState
from engine.model.target import TableRecord, TargetReader
from engine.runtime.intake import Cut, HoldSeal, Intake
from engine.runtime.parts import RunParts

HOLD_S = 2.0
"""How long sealing may stand still for a snapshot; longer transactions on the source cost another try instead of freshness."""
TRIES = 5


@dataclass
class _Wanted:
    position: Lsn
    decided: threading.Event = field(default_factory=threading.Event)
    pin: AbstractContextManager[TargetReader] | None = None
    reader: TargetReader | None = None
    refused: bool = False


class CutDesk:
    """Makes cuts for one run. `cut` is called from the verifier's thread, `reached` from the commit thread."""

    def __init__(self, parts: RunParts, intake: Intake, staging: Path) -> None:
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

        Raises EngineFault(SOURCE_TIMEOUT) where open transactions on the source keep a snapshot from being made in time.
        """
        for _ in range(TRIES):
            with ExitStack() as stack:
                snapshot, wanted = self._held_snapshot(stack)
                read_early(snapshot)
                reader = self._target_at(wanted, stack)
                if reader is not None:
                    # The batch may end behind the snapshot's position, with no transaction in between: the same state.
                    yield replace(snapshot, position=reader.position), reader
                    return
        raise EngineFault(
            FaultKind.SOURCE_TIMEOUT,
            self._parts.spec.source.name,
            "long open transactions on the source keep a cut from being made",
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
        live = {e.table for e in self._parts.book.in_state(TableState.LIVE)}
        known = progress.tables if progress is not None else {}
        return [r for t, r in known.items() if t in live and (tables is None or t in tables)]

    def _held_snapshot(self, stack: ExitStack) -> tuple[ExportedSnapshot, _Wanted]:
        """A snapshot, with sealing held while it is made, so that its position is still ahead; held for HOLD_S at most."""
        release = _once(lambda: self._intake.put(HoldSeal(on=False)))
        self._intake.put(HoldSeal(on=True))
        timer = threading.Timer(HOLD_S, release)
        timer.daemon = True
        timer.start()
        stack.callback(release)
        try:
            snapshot = stack.enter_context(self._parts.source.snapshot(self._parts.settings.snapshot_timeout_s))
            return snapshot, self._want(snapshot.position)
        finally:
            timer.cancel()
            release()

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


def _once(action: Callable[[], None]) -> Callable[[], None]:
    lock = threading.Lock()
    done = False

    def run() -> None:
        nonlocal done
        with lock:
            if done:
                return
            done = True
        action()

    return run
