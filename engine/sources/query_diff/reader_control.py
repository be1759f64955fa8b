"""The reader of cycles: the folder that holds what is known of the source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engine.model.fault import EngineFault, FaultKind
from engine.model.positions.windows import end_of
from engine.model.source import ExportedSnapshot, GuardReading, ReaderStatus
from engine.platform.process_sessions import close_session, family, is_alive
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.cycle_numbers import locked
from engine.sources.query_diff.database import ComparedDatabase
from engine.sources.query_diff.given import Given
from engine.sources.query_diff.reports import last_cycle
from engine.sources.query_diff.source_copies import CopiesMade


class CycleReader:
    """`ReaderControl`, and the part of `SourceSafety` that checks the reader."""

    def __init__(self, database: ComparedDatabase, given: Given) -> None:
        self._database = database
        self._given = given

    @contextmanager
    def create(self, reader: str) -> Iterator[ExportedSnapshot]:
        """A first cycle, and its snapshot. The reader begins there."""
        del reader
        given = self._given
        given.folder.make()
        with run_cycle(self._database, given) as (snapshot, number):
            given.folder.files.confirm(number)
            yield ExportedSnapshot(snapshot, end_of(number))

    def status(self, reader: str) -> ReaderStatus:
        del reader
        folder = self._given.folder
        if not folder.has_reader:
            return ReaderStatus(exists=False)
        confirmed = end_of(folder.files.durable)
        session, _ = folder.session()
        pid = int(session.split(" ")[0]) if session and is_alive(session) else None
        return ReaderStatus(True, confirmed, confirmed, pid, last_cycle=last_cycle(folder))

    def check_reader(self, reader: str) -> GuardReading:
        return GuardReading(reader=self.status(reader))

    def release(self, reader: str) -> list[str]:
        return self.remove(reader)

    def remove(self, reader: str) -> list[str]:
        """What is kept goes, with the copies on the source, and the rows that were read for other subscriptions. The statements that drop
        copies which could not be dropped."""
        del reader
        folder = self._given.folder
        left = CopiesMade(folder.path).drop_others(self._database.copies, ())
        folder.files.remove()
        self._given.sweep_shared(at_once=True)
        return sorted(left.values())

    def end_other(self, reader: str, application: str) -> bool:
        folder = self._given.folder
        if not folder.exists:
            return False
        with locked(folder.path / "session.lock"):
            session, other = folder.session()
            if not session or not is_alive(session):
                return False
            if family(other) != family(application):
                detail = f"process {session.split(' ')[0]} reads it, which is not ours"
                raise EngineFault(FaultKind.SLOT_IN_USE, reader, detail)
            folder.set_session("", "")
            close_session(session)
        return True
