"""The replication slot of a log reader, as the engine controls it."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager

from engine.model.source import (
    ExportedSnapshot,
    GuardReading,
    ReaderStatus,
)
from engine.sources.postgres_log import (
    publications,
    slots,
)
from engine.sources.postgres_log.connect import Connector


class PostgresReaderControl:
    """`ReaderControl`: the reader's name is that of its replication slot."""

    def __init__(self, connector: Connector, open_slots: Collection[str]) -> None:
        """`open_slots`: names of the copies' temporary slots, whose retained WAL `check_reader` reports."""
        self._connector = connector
        self._open_slots = open_slots

    def create(self, slot: str) -> AbstractContextManager[ExportedSnapshot]:
        """Raises SLOT_IN_USE if a slot of this name exists, SOURCE_TIMEOUT if open transactions delay its creation for minutes."""
        return slots.lasting(self._connector, slot)

    def status(self, slot: str) -> ReaderStatus:
        return slots.status(self._connector, slot)

    def check_reader(self, slot: str) -> GuardReading:
        """See SourceSafety.check_reader."""
        holder = slots.oldest_open(self._connector)
        return GuardReading(
            reader=slots.status(self._connector, slot),
            oldest_open=holder[0] if holder else None,
            oldest_open_s=holder[1] if holder else 0.0,
            oldest_open_statement=holder[2] if holder else "",
            copy_retained_bytes=slots.retained_by(self._connector, tuple(self._open_slots)),
        )

    def release(self, slot: str) -> list[str]:
        return slots.drop(self._connector, slot)

    def remove(self, slot: str) -> list[str]:
        left = slots.drop(self._connector, slot)
        return [f"{what}; its publications stay too" for what in left] or publications.drop(self._connector, slot)

    def end_other(self, slot: str, application: str) -> bool:
        return slots.terminate_reader(self._connector, slot, application)
