"""What is known of a table from its last comparison with the source: stored when it is reported, and shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy.orm import load_only
from sqlmodel import select

from engine.model.position import Lsn
from engine.model.positions import PositionForm, text_of
from engine.model.table_state import TableStateKind
from engine.model.verification import VerificationMethod
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.session import ReadSession, WriteSession
from server.declarations.policies import VerifyBody
from server.declarations.table_options import skipped_operations
from server.lookup.subscriptions import position_form
from server.tables.schemas import VerificationProblem, VerifiedShare, VerifiedView


class Known(Protocol):
    """The members of a table that say how far it is verified."""

    @property
    def verified_at(self) -> datetime | None: ...
    @property
    def verified_equal(self) -> bool | None: ...
    @property
    def verified_sample(self) -> float: ...
    @property
    def verified_whole_at(self) -> datetime | None: ...
    @property
    def differs(self) -> bool: ...
    @property
    def verified_source_rows(self) -> int | None: ...
    @property
    def reloaded_at(self) -> datetime | None: ...
    @property
    def copied_rows(self) -> int | None: ...
    @property
    def insert_only(self) -> bool: ...
    @property
    def operations(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """What the views of tables need of their subscription. `every`: None without a schedule."""

    form: PositionForm
    every: timedelta | None
    now: datetime


def schedule_of(subscription: SubscriptionRow, now: datetime) -> Schedule:
    return Schedule(position_form(subscription), interval_of(VerifyBody.model_validate(subscription.verify)), now)


def share_of(session: ReadSession, subscription_id: int, every: timedelta, now: datetime) -> VerifiedShare:
    """`verified_share` of a subscription; reads only the columns that it needs."""
    needed: tuple[Any, ...] = (
        TableRow.id,
        TableRow.verified_at,
        TableRow.verified_equal,
        TableRow.verified_sample,
        TableRow.verified_whole_at,
        TableRow.differs,
        TableRow.verified_source_rows,
        TableRow.reloaded_at,
        TableRow.copied_rows,
        TableRow.insert_only,
        TableRow.operations,
    )
    query = select(TableRow).where(
        TableRow.subscription_id == subscription_id, TableRow.state != TableStateKind.REMOVED.value
    )
    rows: Sequence[TableRow] = session.exec(query.options(load_only(*needed))).all()
    return verified_share(rows, every, now)


def interval_of(policy: VerifyBody) -> timedelta | None:
    """The time after which a table is compared again; None without a schedule."""
    return None if policy.every_seconds is None else timedelta(seconds=policy.every_seconds)


def store_result(
    session: WriteSession, verification: str, began: datetime, result: dict[str, Any], position: Lsn | None
) -> None:
    """Store the result of one table, a `VerifiedTable` as a document, in its row. An unknown table is ignored.

    A result that says nothing of the present rows, because they were copied since, is not stored.

    Args:
        began: when the verification was requested.
        position: at which the table was compared.
    """
    row = session.get(TableRow, result["table"])
    if row is None:
        return
    now = session.now()
    row.verify_tried_at = now
    if _is_of_present_rows(row, began, position):
        sample = float(result.get("sample", 1.0))
        # A sample that is equal says nothing of the other rows.
        row.differs = not result["equal"] or (row.differs and sample < 1)
        row.verified_sample = sample
        if sample >= 1:
            row.verified_whole_at = now
        row.verified_at, row.verified_position, row.verified_by = now, position, verification
        row.verified_method = result["method"]
        row.verified_equal = result["equal"]
        row.verified_source_rows, row.verified_target_rows = result["source_rows"], result["target_rows"]
        row.verify_failures, row.verify_retry_at, row.verify_problem = 0, None, None
    session.add(row)


def _is_of_present_rows(row: TableRow, began: datetime, position: Lsn | None) -> bool:
    if row.reloaded_at is None or row.reloaded_at < began:
        return True
    live_since = row.state_position if row.state == TableStateKind.LIVE.value else None
    return position is not None and live_since is not None and position >= live_since


def is_before_copy(row: Known, compared_at: datetime | None) -> bool:
    """Whether its rows were replaced after this comparison."""
    return compared_at is not None and row.reloaded_at is not None and row.reloaded_at >= compared_at


def is_overdue(compared_at: datetime | None, every: timedelta | None, now: datetime) -> bool:
    """Whether this comparison was longer ago than the schedule wants. A time in the future, of a clock that was set back, is not
    believed."""
    if every is None or compared_at is None:
        return False
    return not timedelta(0) <= now - compared_at < every


def verified_view(row: TableRow, schedule: Schedule) -> VerifiedView | None:
    """The last comparison as the REST interface shows it; None if there was none."""
    if row.verified_at is None:
        return None
    return VerifiedView(
        position=text_of(schedule.form, row.verified_position),
        at=row.verified_at,
        method=row.verified_method or VerificationMethod.ROWS,
        equal=bool(row.verified_equal),
        source_rows=row.verified_source_rows or 0,
        target_rows=row.verified_target_rows or 0,
        verification=row.verified_by or "",
        sample=row.verified_sample,
        whole_at=row.verified_whole_at,
        before_copy=is_before_copy(row, row.verified_at),
        overdue=is_overdue(row.verified_at, schedule.every, schedule.now),
    )


def problem_view(row: TableRow, schedule: Schedule) -> VerificationProblem | None:
    """Why the schedule could not compare the table; None if it could, or if there is no schedule."""
    if schedule.every is None or row.verify_problem is None:
        return None
    return VerificationProblem(
        **row.verify_problem, attempts=max(1, row.verify_failures), retry_at=row.verify_retry_at or schedule.now
    )


def verified_share(rows: Iterable[Known], every: timedelta, now: datetime) -> VerifiedShare:
    """How much of these tables was found equal within `every` and not copied since. Each counts with at least one row; those of which not
    all operations are followed do not count. A table is verified by a comparison of all its rows; later ones of samples leave it so,
    unless they find differences."""

    def holds(row: Known, compared_at: datetime | None) -> bool:
        known = compared_at is not None and not row.differs
        return known and not is_before_copy(row, compared_at) and not is_overdue(compared_at, every, now)

    counts = {True: 0, False: 0}
    sizes = {True: 0, False: 0}
    sampled = 0
    times = []
    for row in rows:
        if row.insert_only or skipped_operations(row.operations, insert_only=False):
            continue
        good = holds(row, row.verified_whole_at)
        sampled += not good and holds(row, row.verified_at)
        counts[good] += 1
        sizes[good] += max(1, (row.verified_source_rows or 0) if row.verified_sample >= 1 else 0, row.copied_rows or 0)
        times.append(row.verified_at)
    total = sum(counts.values())
    known = [moment for moment in times if moment is not None]
    return VerifiedShare(
        tables=total,
        verified_tables=counts[True],
        tables_ratio=counts[True] / total if total else None,
        rows_ratio=sizes[True] / sum(sizes.values()) if total else None,
        sampled_tables=sampled,
        sampled_ratio=sampled / total if total else None,
        oldest_at=min(known) if known and len(known) == total else None,
    )
