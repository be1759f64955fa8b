"""Cycles: which subscriptions have them, and the views of the engine's answers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from engine.kinds import Consistency
from engine.link.cycles import BegunCycleBody, CyclePart, CyclesBody, CycleTablePart, FailedCyclePart
from engine.model.cycles import CycleState
from engine.model.positions import PositionForm, single_mark
from server.cycles.schemas import CyclePage, CycleRequestedView, CycleTableView, CycleView
from server.db.session import ReadSession
from server.errors import InvalidRequest, NotFound
from server.lookup.subscriptions import consistency_of, position_form, require_subscription
from server.paging import PageRequest
from server.verifications.service import require_running

_BY_CYCLES = frozenset({Consistency.SNAPSHOTS, Consistency.RANGES})


class CyclesUnsupported(InvalidRequest):
    code = "cycles_unsupported"
    title = "The subscription has no cycles"
    default_remedy = "Nothing is needed: with this capture changes arrive as they are made. Those with capture.kind query_diff have cycles."


def require_cycles(session: ReadSession, name: str) -> PositionForm:
    """The form of positions of a subscription that has cycles.

    Raises:
        NotFound: there is no such subscription.
        CyclesUnsupported: its changes are not found by cycles.
    """
    row = require_subscription(session, name)
    if consistency_of(row) not in _BY_CYCLES:
        raise CyclesUnsupported(f"The subscription '{name}' finds changes by another capture than queries.")
    return position_form(row)


def require_running_cycles(session: ReadSession, name: str) -> PositionForm:
    """As `require_cycles`. Raises SubscriptionNotRunning too."""
    form = require_cycles(session, name)
    require_running(require_subscription(session, name))
    return form


def cycle_page(answer: Mapping[str, Any], form: PositionForm, paging: PageRequest) -> CyclePage:
    """The page of the engine's answer, which was asked for one cycle more than the page has."""
    body = CyclesBody.model_validate(answer)
    listed = _views(body, form)[: paging.limit + 1]
    page = paging.page(listed, lambda view: view, lambda view: [view.number])
    return CyclePage(
        items=page.items,
        next_page_token=page.next_page_token,
        as_of=_moment(body.as_of_us),
        next_at=_moment(body.due_us),
    )


def require_cycle(answer: Mapping[str, Any], form: PositionForm, number: int) -> CycleView:
    """The cycle of this number. Raises NotFound."""
    for view in _views(CyclesBody.model_validate(answer), form):
        if view.number == number:
            return view
    detail = f"Nothing is known of cycle {number}: it has not been requested, or it is not one of the last 200."
    raise NotFound(detail, "Choose one from the list of cycles.")


def requested_view(answer: Mapping[str, Any], form: PositionForm) -> CycleRequestedView:
    body = BegunCycleBody.model_validate(answer)
    return CycleRequestedView(number=body.number, position=form.text(single_mark(body.position)))


def _views(body: CyclesBody, form: PositionForm) -> list[CycleView]:
    """All cycles of an answer, the highest number first."""
    views = [*(_view(part, form) for part in body.cycles), *(_failed_view(part, form) for part in body.failed)]
    return sorted(views, key=lambda view: view.number, reverse=True)


def _failed_view(failed: FailedCyclePart, form: PositionForm) -> CycleView:
    part = CyclePart(
        number=failed.number,
        position=failed.position,
        state=CycleState.FAILED,
        taken_us=failed.began_us,
        ended_us=failed.ended_us,
    )
    fault = {"fault": failed.fault, "fault_detail": failed.detail, "fault_table": failed.table}
    return _view(part, form).model_copy(update=fault)


def _view(part: CyclePart, form: PositionForm) -> CycleView:
    tables, took_us = part.tables, None
    if part.taken_us is not None and part.ended_us is not None:
        took_us = part.ended_us - part.taken_us
    return CycleView(
        number=part.number,
        position=form.text(single_mark(part.position)),
        state=part.state,
        taken_at=_moment(part.taken_us),
        ended_at=_moment(part.ended_us),
        seconds=None if took_us is None else round(took_us / 1e6, 3),
        one_snapshot=part.one_snapshot,
        rows_read=sum(table.rows_read for table in tables),
        rows_hashed=sum(table.rows_hashed for table in tables),
        rows_shared=sum(table.rows_shared for table in tables),
        bytes_read=sum(table.bytes_read for table in tables),
        inserted=sum(table.inserted for table in tables),
        updated=sum(table.updated for table in tables),
        deleted=sum(table.deleted for table in tables),
        fault=None,
        fault_detail=None,
        fault_table=None,
        source_reads=dict(part.source_reads),
        tables=[_table_view(table) for table in tables],
    )


def _table_view(part: CycleTablePart) -> CycleTableView:
    return CycleTableView(
        schema_name=part.schema_name,
        name=part.name,
        method=part.method,
        first=part.filled,
        copied_again=part.unreadable,
        since_stamp=part.since_stamp,
        known_before=part.known_before,
        fault=part.fault,
        fault_detail=part.detail or None,
        rows_read=part.rows_read,
        rows_hashed=part.rows_hashed,
        rows_shared=part.rows_shared,
        bytes_read=part.bytes_read,
        ranges=part.ranges,
        ranges_different=part.ranges_different,
        inserted=part.inserted,
        updated=part.updated,
        deleted=part.deleted,
        seconds=part.seconds,
        snapshots=part.snapshots,
    )


def _moment(us: int | None) -> datetime | None:
    return None if us is None else datetime.fromtimestamp(us / 1e6, tz=UTC)
