"""Takes snapshots as files on command, and reports on them. Their threads have a lower priority than replication."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Literal

import structlog

from engine.connectors import OPEN_SNAPSHOT_FILE, terms_of
from engine.control.problem import problem_of
from engine.control.supervisor import SubscriptionSupervisor
from engine.copy.rate_limit import at_lower_priority
from engine.link.client import ServerLink
from engine.link.message import Problem
from engine.link.snapshots import (
    DeleteSnapshot,
    LeftOutOfSnapshot,
    Snapshot,
    SnapshotDeleted,
    SnapshotReport,
    SnapshotTable,
)
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import SubscriptionName
from engine.model.position import Lsn
from engine.model.snapshots import SnapshotRefused
from engine.model.subscription import TableSpec
from engine.model.table_state import TableStateKind
from engine.model.target import Cancellation, QueryLimits, QueryRefused
from engine.platform.clock import SystemClock
from engine.platform.settings import EngineSettings
from engine.snapshots.place import SnapshotPlace, refused_for
from engine.snapshots.write import SnapshotRequest, WantedTable, write_snapshot
from engine.tables.registry import TableEntry
from engine.tables.state import ReadStatus, read_status

AT_ONCE = 2
"""Snapshots that are written at once; others wait. Each takes up to one processor. Not measured."""
_ENDS = {
    "query_timeout": (504, "snapshot_timeout", "Ask for fewer tables, or for more time (limit_seconds)."),
    "query_too_large": (422, "snapshot_too_large", "Raise the memory that `detail` names, or leave the table out."),
}
"""Status, code and remedy for how reading a table may end."""

log = structlog.get_logger(__name__)


class SnapshotDesk:
    """Writes and deletes snapshots of the engine's subscriptions. Any thread may call its methods, which return at once."""

    def __init__(self, settings: EngineSettings, find: Callable[[str], SubscriptionSupervisor | None]) -> None:
        self._root = settings.snapshots_folder
        self._find = find
        self._clock = SystemClock()
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="snapshot")
        self._files = ThreadPoolExecutor(1, thread_name_prefix="snapshot-files")
        """Deletes files, so that no snapshot waits for that."""
        self._lock = threading.Lock()
        self._writing: dict[str, Cancellation] = {}
        """Of snapshots that are written or wait for a thread, by id."""
        self._link: ServerLink | None = None
        self._closed = False

    def connect(self, link: ServerLink) -> None:
        """Set the link that sends the reports. Call it once, before the first command."""
        self._link = link

    def take(self, command: Snapshot) -> None:
        """Begin a snapshot. Ignored if it is being written, or if the subscription does not run here: the server repeats it then."""
        pipeline = self._find(command.subscription)
        if pipeline is None:
            return
        with self._lock:
            if command.snapshot_id in self._writing:
                return
            cancellation = self._writing[command.snapshot_id] = Cancellation()
        self._submit(self._pool, partial(self._take, pipeline, command, cancellation))

    def delete(self, command: DeleteSnapshot) -> None:
        """Delete a snapshot's files, and report that they are gone."""
        pipeline = self._find(command.subscription)
        if pipeline is not None:
            self._submit(self._files, partial(self._delete, int(pipeline.spec.epoch), command))

    def cancel(self, snapshot: str) -> None:
        """Cancel a snapshot; no effect on those that are not being written."""
        with self._lock:
            cancellation = self._writing.get(snapshot)
        if cancellation is not None:
            cancellation.cancel()

    def clean(self, subscription: str) -> None:
        """Delete what earlier engines left unfinished."""

        def clean() -> None:
            with self._lock:
                kept = set(self._writing)
            try:
                self._place(subscription).clean(kept)
            except OSError as error:
                log.warning("snapshots_not_cleaned", subscription=subscription, error=type(error).__name__)

        self._submit(self._files, clean)

    def close(self) -> None:
        """Cancel all snapshots and start no more. Does not wait for their end."""
        with self._lock:
            self._closed = True
            cancellations = list(self._writing.values())
        for cancellation in cancellations:
            cancellation.cancel()
        for pool in (self._pool, self._files):
            pool.shutdown(wait=False, cancel_futures=True)

    @staticmethod
    def _submit(pool: ThreadPoolExecutor, work: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # closed: the next engine does it
            pool.submit(work)

    def _place(self, subscription: str) -> SnapshotPlace:
        return SnapshotPlace(self._root, subscription)

    def _take(self, pipeline: SubscriptionSupervisor, command: Snapshot, cancellation: Cancellation) -> None:
        try:
            found = partial(self._report, pipeline, command)
            problem = None
            try:
                name, manifest = self._made(pipeline, command, cancellation)
                found("succeeded", name, manifest)
                return
            except QueryRefused as refused:
                if refused.code == "query_cancelled" and not self._closed:
                    found("cancelled")
                    return
                problem = _problem(_interrupted()) if self._closed else _problem_of_read(refused)
            except SnapshotRefused as refused:
                problem = _problem(refused)
            except EngineFault as fault:
                problem = problem_of(fault)
            except OSError as error:
                problem = _problem(refused_for(error, self._place(command.subscription).folder))
            except Exception as error:  # A snapshot without an end would be shown as running forever.
                log.exception("snapshot_failed", error=type(error).__name__)
                problem = problem_of(EngineFault(FaultKind.INTERNAL, "snapshot", type(error).__name__))
            found("failed", problem=problem)
        finally:
            with self._lock:
                del self._writing[command.snapshot_id]

    def _made(
        self, pipeline: SubscriptionSupervisor, command: Snapshot, cancellation: Cancellation
    ) -> tuple[str, dict[str, Any]]:
        place = self._place(command.subscription)
        if command.begun:
            return _made_before(place, command.snapshot_id)
        self._report(pipeline, command, "running")
        target = pipeline.target
        if target is None:
            detail = "the subscription is stopped or has not started; its target is closed"
            raise SnapshotRefused(503, "snapshot_unavailable", detail, "Start the subscription, then ask again.")
        request = SnapshotRequest(
            command.snapshot_id,
            SubscriptionName(command.subscription),
            terms_of(pipeline.spec.source).form,
            command.format,
            QueryLimits(command.limit_s, cancellation=cancellation),
            command.leave_out,
            command.latest,
            command.at_least,
        )
        run = pipeline.run
        before = run.applied if run is not None else None

        def shown(recorded: Lsn) -> Lsn:
            # Positions without changes are written to the target with a delay, so its rows are those of the visible position.
            return before.visible if before is not None and recorded == before.written else recorded

        def write() -> tuple[str, dict[str, Any]]:
            with target.pin(request.subscription) as reader:
                # Judged after the boundary is chosen: a table that is parked or paused before it is known as such.
                wanted = _wanted(pipeline, command.tables)
                now_us = self._clock.wall_us()
                return write_snapshot(place, reader, request, wanted, shown, OPEN_SNAPSHOT_FILE, now_us)

        return at_lower_priority(write)

    def _delete(self, epoch: int, command: DeleteSnapshot) -> None:
        place, problem = self._place(command.subscription), None
        try:
            place.delete(command.snapshot_id)
        except OSError as error:
            problem = _problem(refused_for(error, place.folder))
        report = SnapshotDeleted(
            subscription=command.subscription, epoch=epoch, snapshot_id=command.snapshot_id, problem=problem
        )
        self._out.report(report)

    @property
    def _out(self) -> ServerLink:
        if self._link is None:
            raise EngineFault(FaultKind.INTERNAL, "snapshots", "not connected to a server")
        return self._link

    def _report(
        self,
        pipeline: SubscriptionSupervisor,
        command: Snapshot,
        state: Literal["running", "succeeded", "failed", "cancelled"],
        name: str | None = None,
        manifest: dict[str, Any] | None = None,
        problem: Problem | None = None,
    ) -> None:
        folder = None if name is None else self._place(command.subscription).folder / name
        found = manifest or {}
        time, position = found.get("commit_time"), found.get("position")
        self._out.report(
            SnapshotReport(
                subscription=command.subscription,
                epoch=int(pipeline.spec.epoch),
                snapshot_id=command.snapshot_id,
                state=state,
                name=name,
                folder=None if folder is None else str(folder),
                position=None if position is None else _parsed(pipeline, position),
                commit_time=None if time is None else datetime.fromisoformat(time),
                bytes=None if folder is None else sum(file.stat().st_size for file in folder.iterdir()),
                tables=tuple(_table_part(table) for table in found.get("tables", ())),
                left_out=tuple(
                    LeftOutOfSnapshot(table=table["id"], state=table["state"], reason=table["reason"])
                    for table in found.get("left_out", ())
                ),
                problem=problem,
            )
        )


def _parsed(pipeline: SubscriptionSupervisor, position: str) -> Lsn:
    return terms_of(pipeline.spec.source).form.parse(position)[0].position


def _made_before(place: SnapshotPlace, snapshot: str) -> tuple[str, dict[str, Any]]:
    """A snapshot that an earlier engine began: published and not reported, or lost with that engine."""
    found = place.find(snapshot)
    if found is None:
        place.discard(snapshot)
        raise _interrupted()
    return found


def _interrupted() -> SnapshotRefused:
    detail = "the engine ended while it wrote the snapshot; nothing of it is left"
    return SnapshotRefused(503, "snapshot_interrupted", detail, "Ask again.")


def _wanted(pipeline: SubscriptionSupervisor, tables: Sequence[str] | None) -> list[WantedTable]:
    """The requested tables in the order of their names. Those that were removed meanwhile are refused by their ids."""
    specs: dict[str, TableSpec] = {str(spec.table): spec for spec in pipeline.spec.tables}
    gone = sorted(set(tables or ()) - specs.keys())
    if gone:
        detail = f"table {gone[0]} was removed from the subscription"
        raise SnapshotRefused(409, "table_not_live", detail, "Ask again without it.")
    chosen = specs.values() if tables is None else [specs[table] for table in tables]
    found = [_wanted_table(spec, pipeline.book.get(spec.table)) for spec in chosen]
    return sorted(found, key=lambda table: (table.source.schema, table.source.name))


def _wanted_table(spec: TableSpec, entry: TableEntry | None) -> WantedTable:
    state = "not complete" if entry is None else entry.shown.value
    out: tuple[str, str | None] | None = None
    if spec.paused:
        out = (TableStateKind.PAUSED.value, None)
    elif entry is not None and read_status(entry.state) is ReadStatus.OUT:
        out = (state, entry.reason.reason if entry.reason is not None else None)
    return WantedTable(spec.table, spec.source, spec.insert_only, state, out, bool(spec.skipped))


def _table_part(table: dict[str, Any]) -> SnapshotTable:
    return SnapshotTable(
        table=table["id"],
        file=table["file"],
        rows=table["rows"],
        schema_version=table["schema_version"],
        set_aside=table["rows_set_aside"],
    )


def _problem_of_read(refused: QueryRefused) -> Problem:
    status, code, remedy = _ENDS.get(refused.code, (503, "snapshot_unavailable", "Ask again."))
    return Problem(status=status, code=code, detail=refused.detail, remedy=remedy)


def _problem(refused: SnapshotRefused) -> Problem:
    return Problem(status=refused.status, code=refused.code, detail=refused.detail, remedy=refused.remedy)
