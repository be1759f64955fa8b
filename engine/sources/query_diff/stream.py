"""The stream over the cycles of one subscription: a thread runs those that are due, and their changes are sent as transactions."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.positions.windows import end_of
from engine.model.source import RecordChunk
from engine.platform.clock import SystemClock
from engine.platform.compiled import Array
from engine.platform.process_sessions import close_session, is_alive, open_session
from engine.records.landing import Changes, CopyLines, TableRows, Transaction, Transactions, chunk_of, records_of
from engine.records.window_stream import WINDOW_S, WindowStream, begin_at
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.cycle_files import CycleFound, TableFound
from engine.sources.query_diff.cycle_numbers import locked
from engine.sources.query_diff.database import ComparedDatabase
from engine.sources.query_diff.folder import Folder
from engine.sources.query_diff.given import Given
from engine.sources.query_diff.rests import Read, Rests
from engine.sources.query_diff.table_reading import Conduct, StoppedError

_LOOK_S = 0.05
"""Seconds between two looks for a request of another process, as for a SQLite file."""
_MOST_AHEAD = 20
"""Cycles that are not durable on the target, from which on none begins by schedule."""
_AFTER_DELETES = 1 << 40
"""Number of the first change that is no delete: in a cycle deletes come first, so that values that are unique are free."""
_DELETE, _UPDATE = ord("D"), ord("U")
_OLD = "old"
"""The column of old rows, in the files of cycles that know them."""


class CycleThread:
    """Runs the cycles that are due until `close`: on schedule, and for requests."""

    def __init__(self, database: ComparedDatabase, folder: Folder, given: Given) -> None:
        self._database = database
        self._folder = folder
        self._given = given
        self._rests = Rests(given.manners)
        self._group = given.group()
        self._stopping = threading.Event()
        self._fault: EngineFault | None = None
        self._descriptors: tuple[int, ...] = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.ended, self._end = self._descriptors
        """A descriptor that is readable after a cycle."""
        self._thread = threading.Thread(target=self._work, name="cycles", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise the fault that ended the thread."""
        if self._fault is not None:
            raise self._fault

    def close(self) -> None:
        """Give a running cycle up. Idempotent."""
        self._stopping.set()
        self._thread.join()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = ()

    def _work(self) -> None:
        try:
            self._given.sweep_shared()
            seen, last_us = -1, 0
            while not self._stopping.wait(_LOOK_S):
                _, wanted = self._folder.numbers.read()
                published = self._folder.files.last
                if published != seen:
                    seen, last_us = published, self._given.last_us() or 0
                    if self._group is not None:
                        self._group.register(last_us + self._given.every_us // 2)
                now = SystemClock().wall_us()
                is_due = (self._given.is_due(last_us, now) or self._is_offered(now)) and not self._is_ahead()
                if not is_due and (wanted <= published or not self._given.may_begin(now)):
                    continue
                conduct = Conduct(self._check, self._rest, self._given.manners.snapshot_s, self._group)
                with run_cycle(self._database, self._given, conduct, complete=False):
                    pass
                with contextlib.suppress(BlockingIOError):
                    os.write(self._end, b".")
        except StoppedError:
            pass
        except EngineFault as fault:
            self._end_with(fault)
        except Exception as error:
            self._end_with(
                EngineFault(FaultKind.INTERNAL, self._folder.path.name, f"{type(error).__name__} in a cycle")
            )
        finally:
            if self._group is not None:
                self._group.close()

    def _is_offered(self, now_us: int) -> bool:
        """Whether another subscription reads what the next cycle would, which then costs the source nothing."""
        group, hours = self._group, self._given.manners.hours
        if group is None:
            return False
        group.sweep()
        return (hours is None or hours.hold(now_us)) and group.is_offered(now_us)

    def _is_ahead(self) -> bool:
        """Whether many cycles wait for the target: a later one finds the same changes, and needs no room meanwhile."""
        return len(self._folder.files.published()) >= _MOST_AHEAD

    def _check(self) -> None:
        if self._stopping.is_set():
            raise StoppedError

    def _rest(self, read: Read) -> None:
        """Leave the source alone after a read, unless this cycle or the next one was requested."""
        until = time.monotonic() + self._rests.after(read)
        while (remaining := until - time.monotonic()) > 0:
            begun, wanted = self._folder.numbers.read()
            if wanted >= begun:
                return
            if self._stopping.wait(min(remaining, _LOOK_S)):
                raise StoppedError

    def _end_with(self, fault: EngineFault) -> None:
        self._fault = fault
        with contextlib.suppress(BlockingIOError):
            os.write(self._end, b".")


@dataclass(frozen=True, slots=True)
class Cycles:
    """Published cycles that are read together."""

    found: tuple[CycleFound, ...]

    @property
    def last(self) -> int:
        return self.found[-1].number


class CycleLog:
    """`WindowLog` over published cycles."""

    def __init__(self, folder: Folder, thread: CycleThread, session: str, after: int) -> None:
        self._files = folder.files
        self._folder = folder
        self._thread = thread
        self._session = session
        self._after = after
        self._announced: dict[int, bytes] = {}

    def faults(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def next_windows(self, after: int) -> Cycles | None:
        self._check_session()
        numbers = [number for number in self._files.published() if number > after]
        if not numbers:
            return None
        found = self._files.read(numbers[0])
        if found.previous > after:
            raise EngineFault(FaultKind.LOG_GAP, self._folder.path.name, f"cycle {found.previous} is gone")
        return Cycles((found,))

    def close_if_unread(self) -> bool:
        """The thread runs cycles; here its fault is raised."""
        self._thread.check()
        return self._files.last > self._after

    def chunks(self, windows: Cycles) -> Iterator[RecordChunk]:
        for cycle in windows.found:
            yield from self._chunks(cycle)
            self._after = cycle.number

    def _chunks(self, cycle: CycleFound) -> Iterator[RecordChunk]:
        transactions = Transactions.of([Transaction(cycle.number, end_of(cycle.number), cycle.at_us)])
        parts = (rows for table in cycle.tables for rows in self._rows(cycle.number, table))
        begun, held = False, next(parts, None)
        while held is not None:
            following = next(parts, None)
            ends = following is None
            reached = end_of(cycle.number if ends else cycle.previous)
            yield chunk_of(transactions, [held], reached, begins=not begun, ends=ends)
            begun, held = True, following

    def _rows(self, number: int, table: TableFound) -> Iterator[TableRows]:
        """The table's changes in parts, each small enough for a chunk."""
        if table.unreadable or table.resumed or table.fault is not None:
            # What was announced before does not hold any more, whether there are rows or not.
            self._announced[table.relation] = table.record
            none = np.empty(0, np.int64)
            yield TableRows(none, none, np.empty(0, np.uint8), np.zeros(1, np.int64), table.record, (0, number))
        at = 0
        for batch in self._files.batches(number, table.deletes) if table.deletes is not None else ():
            for part in _parted(batch):
                yield self._records(table, _deleted(table, part, at, number), whole=_OLD in part.schema.names)
                at += part.num_rows
        at = _AFTER_DELETES
        for batch in self._files.batches(number, table.rows) if table.rows is not None else ():
            yield self._records(table, _written(table, batch, at, number), whole=_OLD in batch.schema.names)
            at += batch.num_rows

    def _records(self, table: TableFound, changes: Changes, *, whole: bool) -> TableRows:
        announcement = table.record if self._announced.get(table.relation) != table.record else None
        self._announced[table.relation] = table.record
        return records_of(changes, RelationId(table.relation), table.keys, whole=whole, announcement=announcement)

    def confirm(self, window: int) -> bool:
        self._check_session()
        self._files.confirm(window)
        return True

    def wait(self, seconds: float, wake: int | None) -> bool:
        watched = [self._thread.ended, *([] if wake is None else [wake])]
        ready, _, _ = select.select(watched, [], [], max(0.0, min(seconds, WINDOW_S)))
        if self._thread.ended in ready:
            os.read(self._thread.ended, 64)
            self._thread.check()
        return wake not in ready

    def close(self) -> None:
        self._thread.close()
        close_session(self._session)

    def _check_session(self) -> None:
        if self._folder.session()[0] != self._session:
            raise EngineFault(FaultKind.SOURCE_UNREACHABLE, self._folder.path.name, "the session was ended")


def open_stream(
    database: ComparedDatabase,
    given: Given,
    reader: str,
    start: Lsn,
    application: str,
    last: LastCommit | None,
    wake: int | None,
) -> WindowStream[Cycles]:
    """See LogSource.open_stream. Raises EngineFault: LOG_GAP, SLOT_IN_USE if another session reads."""
    folder = given.folder
    if reader != folder.path.name or not folder.has_reader:
        raise EngineFault(FaultKind.LOG_GAP, reader, "the reader does not exist any more")
    with locked(folder.path / "session.lock"):
        if folder.session()[0] and is_alive(folder.session()[0]):
            raise EngineFault(FaultKind.SLOT_IN_USE, reader, "another session reads for it")
        begin = begin_at(reader, folder.files.durable, start, last, database.terms)
        session = open_session()
        folder.set_session(session, application)
    try:
        thread = CycleThread(database, folder, given)
    except BaseException:
        close_session(session)
        raise
    return WindowStream(CycleLog(folder, thread, session, begin.after), begin, wake)


def _parted(batch: Any) -> list[Any]:
    """Deleted rows without `old` where no old row is known, and those with all of them."""
    if _OLD not in batch.schema.names:
        return [batch]
    known = batch.column(_OLD).is_valid()
    parts = batch.filter(pc.invert(known)).drop_columns([_OLD]), batch.filter(known)
    return [part for part in parts if part.num_rows]


def _deleted(table: TableFound, batch: Any, at: int, number: int) -> Changes:
    """`batch`: see `_parted`."""
    rows = batch.num_rows
    if _OLD in batch.schema.names:
        lines = CopyLines.of(_text(batch, _OLD), table.columns)
        olds = lines.starts, lines.sizes
    else:
        lines, olds = CopyLines.of(_text(batch), len(table.keys)), _absent(rows, table.columns)
        olds[0][:, list(table.keys)], olds[1][:, list(table.keys)] = lines.starts, lines.sizes
    operations = np.full(rows, _DELETE, np.uint8)
    return Changes(*_numbers(rows, at, number), operations, lines.data, olds, _absent(rows, table.columns))


def _written(table: TableFound, batch: Any, at: int, number: int) -> Changes:
    text, operations = _text(batch), batch.column("op").to_numpy()
    rows, known = batch.num_rows, np.zeros(batch.num_rows, np.bool_)
    if _OLD in batch.schema.names:
        known = batch.column(_OLD).is_valid().to_numpy(zero_copy_only=False)
    if known.any():
        text += _text(batch.filter(batch.column(_OLD).is_valid()), _OLD)
    lines, olds = CopyLines.of(text, table.columns), _absent(rows, table.columns)
    olds[0][known], olds[1][known] = lines.starts[rows:], lines.sizes[rows:]
    news = lines.starts[:rows], lines.sizes[:rows]
    return Changes(*_numbers(rows, at, number), operations, lines.data, olds, news, (operations == _UPDATE) & ~known)


def _text(batch: Any, column: str = "line") -> bytes:
    """The lines of a batch, none of which is NULL."""
    lines = batch.column(column)
    _, borders, data = lines.buffers()
    offsets = np.frombuffer(borders, np.int64)[lines.offset : lines.offset + len(lines) + 1]
    return bytes(memoryview(data)[int(offsets[0]) : int(offsets[-1])])


def _numbers(rows: int, at: int, number: int) -> tuple[Array, Array]:
    """Numbers of changes from `at` on, and their transaction."""
    return np.arange(at, at + rows, dtype=np.int64), np.full(rows, number, np.int64)


def _absent(rows: int, columns: int) -> tuple[Array, Array]:
    return np.zeros((rows, columns), np.int64), np.full((rows, columns), -1, np.int64)
