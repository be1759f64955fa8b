"""Writes and reads the schema history of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from sqlmodel import col, select

from engine.model.position import Lsn
from engine.model.positions import PositionForm, text_of
from engine.model.table_state import TableStateKind
from server.db.models.schema_version import SchemaVersionRow
from server.db.session import WriteSession
from server.schema_versions.schemas import Learnt, VersionColumn, VersionView


def record_structure(
    session: WriteSession,
    table_id: str,
    position: Lsn,
    columns: Sequence[Mapping[str, Any]],
    key: Sequence[str],
    *,
    changes: Sequence[str] = (),
    learnt: str = "log",
    certain: bool = True,
) -> None:
    """Record that the table has this structure at `position`. A repeated report is recorded once.

    `columns`: `name`, `type`, `attnum`, `nullable`, `mapped` of each. `changes`, `learnt`, `certain`: as in the
    engine's report.
    """
    newest = session.exec(
        select(SchemaVersionRow)
        .where(SchemaVersionRow.table_id == table_id, SchemaVersionRow.change == "structure")
        .order_by(col(SchemaVersionRow.id).desc())
        .limit(1)
    ).first()
    wanted = SchemaVersionRow(
        table_id=table_id,
        change="structure",
        position=position,
        columns=[dict(column) for column in columns],
        key=list(key),
        changes=list(changes),
        learnt=learnt,
        certain=certain,
        at=session.now(),
    )
    told = _report_identity if learnt != "target" else _structure_identity
    if newest is None or told(newest) != told(wanted):
        session.add(wanted)


def _structure_identity(row: SchemaVersionRow) -> tuple[object, ...]:
    """The identity of a structure, whatever its origin."""
    columns = [(column.get("name"), column.get("type"), column.get("attnum")) for column in row.columns or ()]
    return columns, row.key


def _report_identity(row: SchemaVersionRow) -> tuple[object, ...]:
    """The identity of a report of a structure."""
    return row.position, row.columns, row.key, row.changes or []


def record_state(
    session: WriteSession,
    table_id: str,
    state: TableStateKind,
    *,
    position: Lsn | None = None,
    code: str | None = None,
    reason: str | None = None,
) -> None:
    """Record that the table is in this state, from `position` on if the state has one."""
    session.add(
        SchemaVersionRow(
            table_id=table_id,
            change="state",
            position=position,
            state=state.value,
            code=code,
            reason=reason,
            at=session.now(),
        )
    )


def version_view(row: SchemaVersionRow, form: PositionForm) -> VersionView:
    return VersionView(
        change="state" if row.change == "state" else "structure",
        position=text_of(form, row.position),
        at=row.at,
        columns=None if row.columns is None else [VersionColumn.model_validate(column) for column in row.columns],
        key=row.key,
        changes=row.changes,
        learnt=cast("Learnt | None", row.learnt),
        certain=row.certain,
        state=None if row.state is None else TableStateKind(row.state),
        code=row.code,
        reason=row.reason,
    )
