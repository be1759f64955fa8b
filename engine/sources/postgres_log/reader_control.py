"""The replication slot of a log reader, as the engine controls it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from engine.model.fault import EngineFault, FaultKind
from engine.model.source import (
    ExportedSnapshot,
    GuardReading,
    ReaderStatus,
)
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.open_transactions import reading_of
from engine.sources.postgres_log import publications, slots
from engine.sources.postgres_log.given import Given


class PostgresReaderControl:
    """`ReaderControl`: the reader's name is that of its replication slot."""

    def __init__(self, connector: Connector, open_slots: set[str], given: Given) -> None:
        """`open_slots`: names of the copies' temporary slots, whose retained WAL `check_reader` reports."""
        self._connector = connector
        self._open_slots = open_slots
        self._given = given

    def create(self, slot: str) -> AbstractContextManager[ExportedSnapshot]:
        """Raises SLOT_IN_USE if a slot of this name exists, SOURCE_TIMEOUT if open transactions delay its creation for minutes,
        READER_UNFIT if the slot that the subscription names cannot be used."""
        if self._given.slot is None:
            return slots.lasting(self._connector, slot)
        return self._take_up(self._given.slot)

    @contextmanager
    def _take_up(self, slot: str) -> Iterator[ExportedSnapshot]:
        """Begin with an existing slot. It delivers every transaction that ends after its confirmed position, which is before that of a
        temporary slot: reading begins there. All transactions that end later began after the publication was checked."""
        found = slots.why_unfit(self._connector, slot)
        if found is not None:
            raise EngineFault(FaultKind.READER_UNFIT, slot, found)
        with slots.temporary(self._connector, slots.CREATE_TIMEOUT_S, self._open_slots) as snapshot:
            yield snapshot

    def status(self, slot: str) -> ReaderStatus:
        return slots.status(self._connector, self._given.slot_of(slot))

    def check_reader(self, slot: str) -> GuardReading:
        """See SourceSafety.check_reader."""
        return reading_of(
            self._connector, self.status(slot), slots.retained_by(self._connector, tuple(self._open_slots))
        )

    def release(self, slot: str) -> list[str]:
        """Drops the slot that Penstock made. One that the subscription names stays."""
        return slots.drop(self._connector, slot)

    def remove(self, slot: str) -> list[str]:
        """Drops what Penstock made. What the subscription names stays, even if it has such a name."""
        left = slots.drop(self._connector, slot) if slot != self._given.slot else []
        return [f"{what}; its publications stay too" for what in left] or publications.drop(
            self._connector, slot, kept=self._given.publication
        )

    def end_other(self, slot: str, application: str) -> bool:
        return slots.terminate_reader(self._connector, self._given.slot_of(slot), application)
