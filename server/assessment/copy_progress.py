"""Progress of copies: of one table, and of all current copies of a subscription. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from engine.model.table_state import TableStateKind
from server.assessment.schemas import Copied, CopyTotals
from server.db.models.table import TableRow
from server.wording import format_count, format_share

_OLD_S = 60.0
"""A rate that was reported longer ago says nothing about the time left."""
COPIED = frozenset({TableStateKind.REGISTERED, TableStateKind.COPYING, TableStateKind.RELOADING})
"""States of a table that is being copied, or waits for it."""


def copy_progress(row: TableRow, now: datetime, *, going: bool) -> Copied:
    """Of one table. `going`: its subscription applies changes; else there is no pace, and nothing tells how long it takes."""
    live = going and TableStateKind(row.state) in COPIED
    age = None if row.copied_at is None else max(0.0, (now - row.copied_at).total_seconds())
    fresh = live and age is not None and age <= _OLD_S
    eta = row.copied_eta_seconds if TableStateKind(row.state) not in COPIED else None
    if fresh and age is not None and row.copied_eta_seconds is not None:
        eta = round(max(0.0, row.copied_eta_seconds - age), 1)
    return Copied(
        rows=row.copied_rows,
        bytes=row.copied_bytes,
        percent=row.copied_percent,
        eta_seconds=eta,
        total_rows=row.copied_total_rows,
        total_bytes=row.copied_total_bytes,
        rows_per_second=row.copied_rows_per_second if fresh else None,
        bytes_per_second=row.copied_bytes_per_second if fresh else None,
    )


def copy_totals(rows: Sequence[TableRow], now: datetime, *, going: bool) -> CopyTotals | None:
    """Of all tables that wait for a copy or are being copied, and of those whose copy has ended since the first of them waits; None where
    none does. So the share never runs back because a table is done."""
    waiting = [row for row in rows if TableStateKind(row.state) in COPIED]
    if not waiting:
        return None
    since = min(row.copy_asked_at or row.state_at for row in waiting)
    done = [
        row
        for row in rows
        if TableStateKind(row.state) not in COPIED and row.copied_at is not None and row.copied_at >= since
    ]
    parts = [copy_progress(row, now, going=going) for row in (*waiting, *done)]
    sizes = [part.total_bytes for part in parts if part.total_bytes is not None]
    counts = [part.total_rows for part in parts if part.total_rows is not None]
    size = sum(part.bytes or 0 for part in parts)
    total = sum(sizes) if len(sizes) == len(parts) else None
    pace = sum(part.bytes_per_second or 0.0 for part in parts)
    rows_pace = sum(part.rows_per_second or 0.0 for part in parts)
    return CopyTotals(
        tables=len(parts),
        tables_copied=len(done),
        rows=sum(part.rows or 0 for part in parts),
        bytes=size,
        total_rows=sum(counts) if len(counts) == len(parts) else None,
        total_bytes=total,
        percent=round(min(99.9, 100 * size / total), 1) if total else None,
        rows_per_second=round(rows_pace, 1) if rows_pace else None,
        bytes_per_second=round(pace, 1) if pace else None,
        eta_seconds=round((total - size) / pace, 1) if total is not None and pace else None,
    )


def describe_copies(found: CopyTotals) -> str:
    """The progress in a few words for users; empty if nothing is known yet."""
    said = []
    if found.percent is not None:
        said.append(format_share(found.percent / 100))
    if found.total_rows is not None:
        said.append(f"{found.rows:,} of about {format_count(found.total_rows, 'row')}")
    elif found.rows:
        said.append(format_count(found.rows, "row"))
    if found.rows_per_second is not None:
        said.append(f"{found.rows_per_second:,.0f} rows/s")
    return ", ".join(said)
