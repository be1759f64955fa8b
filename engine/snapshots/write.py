"""Writes one snapshot: reads the tables of a pinned target, and names the result by its position."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from engine.model.identity import SubscriptionName, TableId, TableName
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.positions import PositionForm, single_mark, text_of
from engine.model.schema import TableSchema
from engine.model.snapshots import SnapshotFormat, SnapshotRefused
from engine.model.target import TARGET_TYPE, QueryLimits, QueryRefused, TableRecord, TargetProgress, TargetReader
from engine.platform.failpoints import Failpoint, hit
from engine.snapshots.files import ParquetFiles, SnapshotFiles
from engine.snapshots.place import MANIFEST, SnapshotPlace

FORMAT_VERSION = 1
"""Version of the manifest's members."""


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A requested snapshot. `limits`: its time limit and cancellation."""

    snapshot: str
    subscription: SubscriptionName
    form: PositionForm
    kind: SnapshotFormat
    limits: QueryLimits
    leave_out: bool = False
    latest: bool = True
    at_least: Lsn | None = None


@dataclass(frozen=True, slots=True)
class WantedTable:
    """A table of the snapshot. `out`: why its rows do not follow the source, as state and reason; None: the target's record decides."""

    table: TableId
    source: TableName
    insert_only: bool = False
    state: str = "not complete"
    out: tuple[str, str | None] | None = None
    skips: bool = False
    """Not all operations that the source reports are followed."""


@dataclass(slots=True)
class _Judged:
    ready: list[tuple[WantedTable, TableRecord]] = field(default_factory=list)
    left_out: list[dict[str, Any]] = field(default_factory=list)


OpenDuckDb = Callable[[Path], SnapshotFiles]


def write_snapshot(
    place: SnapshotPlace,
    reader: TargetReader,
    request: SnapshotRequest,
    wanted: Sequence[WantedTable],
    shown: Callable[[Lsn], Lsn],
    open_duckdb: OpenDuckDb,
    now_us: int,
) -> tuple[str, dict[str, Any]]:
    """Write a snapshot of the pinned batch boundary, and publish it. Returns its name and manifest.

    `shown`: the position up to which this boundary is known to be complete, from the one recorded on the target. `now_us`: microseconds
    since 1970 UTC.

    Raises:
        SnapshotRefused: the position is too early, or a table's rows are not complete.
        QueryRefused: reading failed, a limit was reached, or the snapshot was cancelled.
        OSError: writing failed. Nothing is left of the snapshot in each case.
    """
    deadline = monotonic() + request.limits.timeout_s
    progress = reader.progress(request.subscription)
    if progress is None:
        raise QueryRefused("query_unavailable", "nothing has been replicated to this target yet")
    position = shown(reader.position)
    shown_text = request.form.text(single_mark(position))
    if request.at_least is not None and position < request.at_least:
        detail = f"the target is at {shown_text}, before {text_of(request.form, request.at_least)}"
        raise SnapshotRefused(409, "snapshot_too_old", detail, "Ask again: the target was set back meanwhile.")
    judged = _judged(progress, request, wanted)
    if request.latest:
        place.refuse_taken_link(request.kind)
    folder = place.begin(request.snapshot)
    facts = {"snapshot": request.snapshot, "subscription": str(request.subscription), "position": shown_text}
    is_parquet = request.kind is SnapshotFormat.PARQUET
    files: SnapshotFiles = ParquetFiles(folder, facts) if is_parquet else open_duckdb(folder)
    published = False
    try:
        tables = []
        for table, record in judged.ready:
            tables.append(_write_table(files, reader, request.limits, deadline, table, record))
            hit(Failpoint.SNAPSHOT_TABLE)
        manifest = {
            **_manifest(request, progress, shown_text, now_us),
            "tables": tables,
            "left_out": judged.left_out,
            "exceptions": _exceptions(tables),
        }
        files.close({**facts, "manifest": json.dumps(manifest)})
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        _check(request.limits, deadline)
        hit(Failpoint.SNAPSHOT_WRITTEN)
        name = place.publish(request.snapshot, shown_text)
        published = True
    finally:
        if not published:
            files.give_up()
            place.discard(request.snapshot)
    hit(Failpoint.SNAPSHOT_PUBLISHED)
    if request.latest:
        place.link(request.snapshot, name, request.kind)
    return name, manifest


def _judged(progress: TargetProgress, request: SnapshotRequest, wanted: Sequence[WantedTable]) -> _Judged:
    """Divide the tables into those that are complete in this transaction and those to be left out. Raises SnapshotRefused."""
    judged = _Judged()
    for table in wanted:
        record = progress.tables.get(table.table)
        complete = record is not None and record.ready and record.parked is None and record.schema.columns
        if record is not None and complete and table.out is None:
            judged.ready.append((table, record))
            continue
        state, reason = table.out or (table.state, None)
        if not request.leave_out:
            because = f": {reason}" if reason else ""
            detail = f"table {table.source} is {state}{because}"
            remedy = 'Wait until the table is live, or do what its remedy says; or send "on_unavailable": "leave_out".'
            raise SnapshotRefused(409, "table_not_live", detail, remedy)
        named = {"id": table.table, "schema": table.source.schema, "name": table.source.name}
        judged.left_out.append({**named, "state": state, "reason": reason})
    if not judged.ready:
        raise SnapshotRefused(
            409, "table_not_live", "no table is live", "Wait until a table of the subscription is live; then ask again."
        )
    return judged


def _write_table(
    files: SnapshotFiles,
    reader: TargetReader,
    limits: QueryLimits,
    deadline: float,
    table: WantedTable,
    record: TableRecord,
) -> dict[str, Any]:
    left = _check(limits, deadline)
    with reader.rows(record, replace(limits, timeout_s=left)) as answer:
        columns = [
            {
                "name": column.name,
                "type": (column.metadata or {}).get(TARGET_TYPE, b"").decode(),
                "arrow_type": str(column.type),
            }
            for column in answer.schema
        ]
        file, rows = files.write(record.target, answer)
    return {
        "id": table.table,
        "schema": table.source.schema,
        "name": table.source.name,
        "target": {"schema": record.target.schema, "name": record.target.name},
        "file": file,
        "rows": rows,
        "schema_version": schema_version(record.schema),
        "key": list(record.schema.key),
        "insert_only": table.insert_only,
        "operations_skipped": table.skips,
        "rows_set_aside": record.set_aside,
        "columns": columns,
    }


def _check(limits: QueryLimits, deadline: float) -> float:
    """Seconds left. Raises QueryRefused at the time limit and after a cancellation."""
    if limits.cancellation.cancelled:
        raise QueryRefused("query_cancelled", "the snapshot was cancelled")
    left = deadline - monotonic()
    if left <= 0:
        raise QueryRefused("query_timeout", f"the snapshot did not end within {limits.timeout_s:g} s")
    return left


def _manifest(request: SnapshotRequest, progress: TargetProgress, position: str, now_us: int) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "id": request.snapshot,
        "subscription": str(request.subscription),
        "format": request.kind.value,
        "position": position,
        "commit_time": commit_time(progress.last),
        "created_at": _moment(now_us),
        "source": {"system_id": progress.system_id},
    }


def _exceptions(tables: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Declared ways in which tables do not fully follow their source, as in receipts."""
    found = []
    for table in tables:
        named = {"schema": table["schema"], "name": table["name"]}
        if table["insert_only"]:
            found.append({**named, "kind": "insert_only", "rows": None})
        if table["operations_skipped"]:
            found.append({**named, "kind": "operations", "rows": None})
        if table["rows_set_aside"]:
            found.append({**named, "kind": "rows_set_aside", "rows": table["rows_set_aside"]})
    return found


def commit_time(last: LastCommit | None) -> str | None:
    """Commit time of the last transaction, RFC 3339 in UTC; None if it is not known."""
    return _moment(last.time_us) if last is not None and last.known else None


def schema_version(schema: TableSchema) -> str:
    """Equal for equal structures: number, name, type and type override of each column, the key, and whether deleted rows are kept."""
    columns = [[c.attnum, c.name, c.type.name, c.type.modifier, c.map_as] for c in schema.columns]
    text = json.dumps([columns, list(schema.key), schema.soft_delete])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _moment(us: int) -> str:
    seconds, rest = divmod(us, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest).isoformat().replace("+00:00", "Z")
