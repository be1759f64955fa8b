"""Writes the reports of engines to the control database."""

from __future__ import annotations

from collections.abc import Sequence

from sqlmodel import col, delete, select

from engine.link.message import SubscriptionReport
from engine.link.messages import (
    BatchReport,
    CopyProgress,
    EventReport,
    Forgotten,
    Progress,
    ReloadReport,
    Report,
    RowsSetAside,
    SchemaVersion,
    SubscriptionStateReport,
    TableDropped,
    TableRenamed,
    TablesFound,
    TableStateReport,
    TicketReport,
)
from engine.link.snapshots import SnapshotDeleted, SnapshotReport
from engine.link.verifications import Verification
from engine.model.positions import text_of
from engine.model.subscription_state import SubscriptionState
from engine.model.table_state import TableStateKind
from server.db.models.batch import BatchRow
from server.db.models.reload import ReloadRow
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.models.verification import VerificationRow
from server.db.session import WriteSession
from server.engines import assignments
from server.events.service import record_event
from server.gateway.long_running import UNENDED, WorkState, may_follow
from server.logs import get_logger
from server.lookup.subscriptions import position_form
from server.schema_versions.service import record_structure
from server.snapshots import service as snapshots
from server.subscriptions import reports as subscriptions
from server.tables import appearing, requests
from server.tables import reports as tables
from server.tables.renaming import SourceName, rename_tables
from server.tickets import reports as tickets
from server.verifications import scheduled
from server.verifications import service as verifications

log = get_logger(__name__)

BATCHES_KEPT = 50_000
"""Batches kept per subscription; older ones are deleted a thousand at a time."""


def write_reports(
    session: WriteSession, engine_id: str, sequence: int, reports: Sequence[Report]
) -> list[Report] | None:
    """Write a bundle of reports; returns those that apply, None if the bundle was written before.

    Reports of an epoch that is over, or on subscriptions that are gone, are ignored.

    Raises:
        NotFound: the engine is unknown and has to register.
    """
    engine = assignments.require_engine(session, engine_id)
    engine.seen_at = session.now()
    session.add(engine)
    if sequence <= engine.report_sequence:
        return None
    engine.report_sequence = sequence
    owned = {
        row.name: row for row in session.exec(select(SubscriptionRow).where(SubscriptionRow.engine_id == engine_id))
    }
    counted = []
    renamed: dict[str, dict[str, SourceName]] = {}
    found: list[TablesFound] = []
    for report in reports:
        if isinstance(report, SubscriptionReport):
            row = owned.get(report.subscription)
            if row is None or row.epoch != report.epoch:
                log.info("report_of_past_epoch", subscription=report.subscription, kind=report.kind, epoch=report.epoch)
                continue
            if isinstance(report, TableRenamed):
                renamed.setdefault(report.subscription, {})[report.table] = report.schema_name, report.name
            elif isinstance(report, TablesFound):
                found.append(report)
            else:
                _write_report(session, row, report)
        elif isinstance(report, Forgotten):
            _finish_forget(session, owned, report)
        counted.append(report)
    # All together at the end: two tables may have swapped names.
    for name, names in renamed.items():
        if name in owned:
            rename_tables(session, owned[name], names)
    # After the renames: a renamed table is not a new one.
    for report in found:
        if report.subscription in owned:
            appearing.add_found_tables(session, owned[report.subscription], report.tables)
    return counted


def _finish_forget(session: WriteSession, owned: dict[str, SubscriptionRow], report: Forgotten) -> None:
    row = owned.pop(report.subscription, None)
    if row is not None and row.deleting:
        subscriptions.finish_forget(session, report.subscription, list(report.left))


def _write_report(session: WriteSession, row: SubscriptionRow, report: SubscriptionReport) -> None:
    match report:
        case Progress():
            subscriptions.set_progress(session, row, report)
        case SubscriptionStateReport():
            state = SubscriptionState(report.state)
            subscriptions.set_subscription_state(
                session, row, state, code=report.code, reason=report.reason, remedy=report.remedy
            )
        case TableStateReport():
            if _has_table(session, row, report.table):
                _write_table_state(session, report)
        case TableDropped():
            if _has_table(session, row, report.table):
                tables.set_dropped(session, report.table, report.left, report.remedy)
        case RowsSetAside():
            tables.set_rows_aside(session, row, report.counts, whole=report.whole)
        case CopyProgress():
            if _has_table(session, row, report.table):
                tables.set_copy_progress(session, report)
        case SchemaVersion():
            if _has_table(session, row, report.table):
                _write_structure(session, report)
        case BatchReport():
            _write_batch(session, row, report)
        case EventReport():
            _write_event(session, row, report)
        case Verification():
            _write_verification(session, row, report)
        case ReloadReport():
            _write_reload(session, row, report)
        case SnapshotReport():
            snapshots.write_report(session, row, report)
        case SnapshotDeleted():
            snapshots.write_deletion(session, row, report)
        case TicketReport():
            tickets.write_ticket_report(session, row, report)


def _has_table(session: WriteSession, row: SubscriptionRow, table_id: str) -> bool:
    table = session.get(TableRow, table_id)
    return table is not None and table.subscription_id == row.id


def _write_table_state(session: WriteSession, report: TableStateReport) -> None:
    tables.set_state(
        session,
        report.table,
        TableStateKind(report.state),
        code=report.code,
        reason=report.reason,
        remedy=report.remedy,
        position=report.position,
    )


def _write_structure(session: WriteSession, report: SchemaVersion) -> None:
    record_structure(
        session,
        report.table,
        report.position,
        [column.model_dump(mode="json") for column in report.columns],
        report.key,
        changes=report.changes,
        learnt=report.learnt,
        certain=report.certain,
    )


def _write_batch(session: WriteSession, row: SubscriptionRow, report: BatchReport) -> None:
    known = select(BatchRow.id).where(
        BatchRow.subscription_id == row.id, BatchRow.epoch == report.epoch, BatchRow.number == report.batch
    )
    if session.exec(known).first() is not None:
        return
    session.add(
        BatchRow(
            subscription_id=row.id or 0,
            epoch=report.epoch,
            number=report.batch,
            after=report.after,
            end=report.end,
            transactions=report.transactions,
            rows=report.rows,
            net_rows=report.net_rows,
            bytes=report.bytes,
            path=report.path,
            mode=report.mode.value,
            demanded=report.demanded,
            seconds=report.seconds,
            tables=report.tables,
            tuning=report.tuning,
            ledger=None if report.ledger is None else report.ledger.model_dump(mode="json"),
            committed_at=report.committed_at,
        )
    )
    if report.batch % 1000 == 0:
        _delete_old_batches(session, row)


def _delete_old_batches(session: WriteSession, row: SubscriptionRow) -> None:
    ids = select(BatchRow.id).where(BatchRow.subscription_id == row.id).order_by(col(BatchRow.id).desc())
    oldest = session.exec(ids.offset(BATCHES_KEPT).limit(1)).first()
    if oldest is not None:
        session.exec(delete(BatchRow).where(col(BatchRow.subscription_id) == row.id, col(BatchRow.id) <= oldest))


def _write_event(session: WriteSession, subscription: SubscriptionRow, report: EventReport) -> None:
    table = session.get(TableRow, report.subject) if _has_table(session, subscription, report.subject) else None
    record_event(
        session,
        kind=report.code,
        severity=report.severity,
        subscription=report.subscription,
        subject=report.subject if table is None else table.full_name,
        detail=report.detail,
        remedy=report.remedy,
    )


def _write_verification(session: WriteSession, subscription: SubscriptionRow, report: Verification) -> None:
    row = session.get(VerificationRow, report.verification_id)
    if row is None or row.subscription_id != subscription.id or not may_follow(row.state, report.state):
        return
    row.state = report.state
    row.position = report.position or row.position
    row.total = report.total if report.total is not None else row.total
    if report.tables:
        verifications.store_results(session, row, report.tables)
    row.problem = report.problem.model_dump() if report.problem else None
    if report.state not in UNENDED:
        row.ended_at = session.now()
        row.left_out = verifications.uncompared_tables(session, row)
        if row.scheduled:
            since_request = (session.now() - row.created_at).total_seconds()
            scheduled.end_attempt(session, row, since_request if report.seconds is None else report.seconds)
        _record_differences(session, subscription, report)
    session.add(row)
    session.touch(subscription.name)


def _record_differences(session: WriteSession, subscription: SubscriptionRow, report: Verification) -> None:
    different = [table.table for table in report.tables if not table.equal]
    aside = sum(table.set_aside for table in report.tables)
    if report.state == "succeeded" and different:
        position = text_of(position_form(subscription), report.position)
        record_event(
            session,
            kind="verification_differs",
            severity="error",
            subscription=subscription.name,
            subject=report.verification_id,
            detail=f"{len(different)} of {len(report.tables)} tables differ from their source at {position}"
            + (f"; {aside} of their rows are in quarantine." if aside else "."),
            remedy="Look at the verification's differing keys; a verification with repair, or a reload of these tables, brings"
            " them back in step.",
        )


def _write_reload(session: WriteSession, subscription: SubscriptionRow, report: ReloadReport) -> None:
    row = session.get(ReloadRow, report.request_id)
    if row is None or row.subscription_id != subscription.id:
        return
    # The new rows were visible before the engine received the cancel, so the reload succeeded.
    too_late = row.state == WorkState.CANCELLED and report.state == WorkState.SUCCEEDED.value
    if not too_late and not may_follow(row.state, report.state):
        return
    row.state = report.state
    least = {name: getattr(row, name) or 0 for name in ("rows", "bytes", "percent")} if report.goes_on else {}
    for name in ("rows", "bytes", "percent", "eta_seconds", "total_rows", "total_bytes", "rows_per_second", "position"):
        value = getattr(report, name)
        if value is not None:
            setattr(row, name, max(value, least[name]) if name in least else value)
    if report.partitions is not None:
        row.partitions = [part.model_dump(mode="json") for part in report.partitions]
    row.problem = report.problem.model_dump() if report.problem else None
    if report.state not in UNENDED:
        row.ended_at = session.now()
        row.eta_seconds = row.rows_per_second = None
        _record_partition_reload(session, subscription.name, row)
    session.add(row)
    session.touch(subscription.name)


def _record_partition_reload(session: WriteSession, subscription: str, row: ReloadRow) -> None:
    """Record the end of a partition reload: the table stays live meanwhile, so no change of its state shows it. An earlier comparison
    says nothing of its rows any more."""
    table = None if row.asked is None or row.table_id is None else session.get(TableRow, row.table_id)
    if table is not None and row.state == WorkState.SUCCEEDED:
        parts = len(row.partitions or ())
        table.reloaded_at = session.now()
        session.add(table)
        requests.record_table_event(
            session, subscription, table, "table_partitions_reloaded", f"has {parts} of its partitions reloaded"
        )
