"""The cycles of a subscription whose source is only queried, and the request for the next one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from engine.connectors import open_source
from engine.control.supervisor import SubscriptionSupervisor
from engine.link.cycles import BegunCycleBody, CyclePart, Cycles, CyclesBody, CycleTablePart, FailedCyclePart
from engine.model.cycles import Cycle, CycleReports, CyclesAhead, CycleState, CycleTable, FailedCycle
from engine.model.fault import EngineFault, FaultKind
from engine.model.position import ZERO


def listed_cycles(pipeline: SubscriptionSupervisor, command: Cycles) -> CyclesBody:
    """The newest cycles, those that have not ended included. Queries no database.

    Raises EngineFault(NOT_WITH_THIS_CAPTURE) if the source has no cycles.
    """
    run = pipeline.run
    with closing(open_source(pipeline.spec.source)) as source:
        reports = source.cycles
        ahead = reports.ahead()
        # What is on the target is read last: a cycle that was shown as applied is never shown as captured afterwards.
        ended = reports.ended(command.upto, command.most)
        applied = reports.applied(ZERO if run is None else run.applied.visible)
        newest = reports.ended(applied, 1)
        found = {number: _waiting(reports, number, state) for number, state in _unended(ahead)}
        found |= {cycle.number: _part(cycle, applied) for cycle in ended}
        failed = [
            _failed(reports, each) for each in reports.failed(command.upto, command.most) if each.number not in found
        ]
    listed = [number for number in sorted(found, reverse=True) if command.upto is None or number <= command.upto]
    return CyclesBody(
        cycles=tuple(found[number] for number in listed[: command.most]),
        failed=tuple(failed),
        as_of_us=newest[0].taken_us if newest else None,
        due_us=ahead.due_us if run is not None else None,
    )


def begun_cycle(pipeline: SubscriptionSupervisor) -> BegunCycleBody:
    """Request the next cycle.

    Raises EngineFault: TARGET_UNAVAILABLE while no run is under way, NOT_WITH_THIS_CAPTURE if the source has no cycles.
    """
    run = pipeline.run
    with closing(open_source(pipeline.spec.source)) as source:
        reports = source.cycles
        reports.ahead()  # What has no cycles is refused as such, also while it does not run.
        if run is None or run.ended:
            raise EngineFault(FaultKind.TARGET_UNAVAILABLE, str(pipeline.spec.name), "the subscription does not run")
        number = reports.request()
        return BegunCycleBody(number=number, position=reports.position(number))


def _unended(ahead: CyclesAhead) -> Iterator[tuple[int, CycleState]]:
    if ahead.running is not None:
        yield ahead.running, CycleState.RUNNING
    if ahead.requested is not None:
        yield ahead.requested, CycleState.REQUESTED


def _waiting(reports: CycleReports, number: int, state: CycleState) -> CyclePart:
    return CyclePart(number=number, position=reports.position(number), state=state)


def _failed(reports: CycleReports, cycle: FailedCycle) -> FailedCyclePart:
    return FailedCyclePart(
        number=cycle.number,
        position=reports.position(cycle.number),
        began_us=cycle.began_us,
        ended_us=cycle.ended_us,
        fault=cycle.fault,
        detail=cycle.detail,
        table=cycle.table,
    )


def _part(cycle: Cycle, applied: int) -> CyclePart:
    return CyclePart(
        number=cycle.number,
        position=cycle.position,
        state=CycleState.APPLIED if cycle.number <= applied else CycleState.CAPTURED,
        taken_us=cycle.taken_us,
        ended_us=cycle.ended_us,
        one_snapshot=cycle.one_snapshot,
        tables=tuple(_table(table) for table in cycle.tables),
        source_reads=cycle.source_reads,
    )


def _table(table: CycleTable) -> CycleTablePart:
    return CycleTablePart(
        schema=table.table.schema,
        name=table.table.name,
        method=table.method,
        filled=table.filled,
        unreadable=table.unreadable,
        since_stamp=table.since_stamp,
        known_before=table.known_before,
        fault=table.fault,
        detail=table.detail,
        rows_read=table.rows_read,
        rows_hashed=table.rows_hashed,
        rows_shared=table.rows_shared,
        bytes_read=table.bytes_read,
        ranges=table.ranges,
        ranges_different=table.ranges_different,
        inserted=table.inserted,
        updated=table.updated,
        deleted=table.deleted,
        seconds=table.seconds,
        snapshots=table.snapshots,
    )
