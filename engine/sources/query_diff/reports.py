"""The cycles of a subscription as users see them, read from the folder. No query runs on the source."""

from __future__ import annotations

from engine.model.cycles import Cycle, CyclesAhead, CycleTable, FailedCycle, LastCycle
from engine.model.identity import TableName
from engine.model.position import Lsn
from engine.model.positions.windows import end_of, whole_window
from engine.platform.clock import SystemClock
from engine.sources.query_diff.cycle_files import CycleFound, TableFound
from engine.sources.query_diff.cycle_numbers import is_locked
from engine.sources.query_diff.folder import Folder
from engine.sources.query_diff.given import Given

_MOST_COUNTED = 1_000
"""Failed cycles that are counted since the last one that ended; fewer are kept."""


class CyclesOfFolder:
    """`CycleReports`. Methods may be called while cycles run, also in other processes."""

    def __init__(self, given: Given) -> None:
        self._given = given

    def ended(self, upto: int | None, most: int) -> list[Cycle]:
        return [_cycle(found) for found in self._given.folder.files.reports(most, upto)]

    def failed(self, upto: int | None, most: int) -> list[FailedCycle]:
        return [
            FailedCycle(
                each.number, each.at_us, each.ended_us, each.fault, f"{each.subject}: {each.detail}", each.table
            )
            for each in self._given.folder.files.failures(most, upto)
        ]

    def ahead(self) -> CyclesAhead:
        folder = self._given.folder
        # The lock is checked first: a cycle that ends meanwhile is published, or has failed, and is not shown as running for ever.
        busy = is_locked(folder.path / "cycle.lock")
        begun, wanted = folder.numbers.read()
        last = folder.files.last
        return CyclesAhead(
            running=begun if busy and begun > last else None,
            requested=wanted if wanted > begun else None,
            due_us=self._given.due_us(SystemClock().wall_us()),
        )

    def position(self, number: int) -> Lsn:
        return end_of(number)

    def applied(self, position: Lsn) -> int:
        return max(whole_window(position), self._given.folder.files.durable)

    def request(self) -> int:
        return self._given.folder.numbers.request()


def last_cycle(folder: Folder) -> LastCycle | None:
    """The last cycle in figures; None before the first one."""
    for found in folder.files.reports(1):
        seconds, bytes_read = (found.ended_us - found.at_us) / 1e6, sum(table.bytes_read for table in found.tables)
        unread = sum(table.fault is not None for table in found.tables)
        failures = len(folder.files.failures(_MOST_COUNTED, above=found.number))
        return LastCycle(found.number, end_of(found.number), found.at_us, seconds, bytes_read, failures, unread)
    return None


def _cycle(found: CycleFound) -> Cycle:
    return Cycle(
        number=found.number,
        position=end_of(found.number),
        taken_us=found.at_us,
        ended_us=found.ended_us,
        one_snapshot=found.snapshot,
        tables=tuple(_table(table) for table in found.tables),
        source_reads=dict(found.reads),
    )


def _table(found: TableFound) -> CycleTable:
    return CycleTable(
        table=TableName(found.schema, found.name),
        method=found.method,
        filled=found.filled,
        unreadable=found.unreadable,
        since_stamp=found.since_stamp,
        known_before=found.known_before,
        fault=found.fault,
        detail=found.detail,
        rows_read=found.rows_read,
        rows_hashed=found.rows_hashed,
        rows_shared=found.rows_shared,
        bytes_read=found.bytes_read,
        ranges=found.ranges,
        ranges_different=found.ranges_different,
        inserted=found.inserted,
        updated=found.updated,
        deleted=found.deleted,
        seconds=found.seconds,
        snapshots=found.snapshots,
    )
