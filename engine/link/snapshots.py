"""Commands to an engine about snapshots as files, and its reports on them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from engine.link.message import Message, Position, Problem, SubscriptionReport
from engine.model.snapshots import SnapshotFormat


class Snapshot(Message):
    """Write the copy, as it is at one batch boundary, to files. May be sent twice. Answered by `snapshot` reports.

    `tables`: None = all of the subscription. `begun`: an engine reported it as running; one that does not write it reports its end.
    """

    kind: Literal["snapshot"] = "snapshot"
    subscription: str
    snapshot_id: str
    format: SnapshotFormat = SnapshotFormat.PARQUET
    tables: tuple[str, ...] | None = None
    leave_out: bool = False
    """Leave out tables whose rows are not complete; without it they end the snapshot."""
    at_least: Position | None = None
    """Refuse an earlier position."""
    latest: bool = True
    """Let the link `latest-FORMAT` lead to it."""
    limit_s: float = 3600.0
    begun: bool = False


class DeleteSnapshot(Message):
    """Delete a snapshot's files. May be sent twice. Answered by a `snapshot_deleted` report."""

    kind: Literal["delete_snapshot"] = "delete_snapshot"
    subscription: str
    snapshot_id: str


class SnapshotTable(Message):
    """A table in a snapshot. `file`: within the snapshot's folder. `schema_version`: equal for equal structures."""

    table: str
    file: str
    rows: int
    schema_version: str
    set_aside: int = 0


class LeftOutOfSnapshot(Message):
    table: str
    state: str
    reason: str | None = None


class SnapshotReport(SubscriptionReport):
    """Progress or end of a snapshot. `commit_time`: of the last transaction in it, by the source's clock."""

    kind: Literal["snapshot"] = "snapshot"
    snapshot_id: str
    state: Literal["running", "succeeded", "failed", "cancelled"]
    name: str | None = None
    folder: str | None = None
    position: Position | None = None
    commit_time: datetime | None = None
    bytes: int | None = None
    tables: tuple[SnapshotTable, ...] = ()
    left_out: tuple[LeftOutOfSnapshot, ...] = ()
    problem: Problem | None = None


class SnapshotDeleted(SubscriptionReport):
    """A snapshot's files are gone, or could not be deleted because of `problem`."""

    kind: Literal["snapshot_deleted"] = "snapshot_deleted"
    snapshot_id: str
    problem: Problem | None = None
