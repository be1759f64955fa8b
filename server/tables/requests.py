"""Records users' requests about a table as events, with the table's state at that time; later reports show when they took effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from engine.model.table_state import TableStateKind
from server.db.models.table import TableRow
from server.db.session import WriteSession
from server.events.service import record_event
from server.tables.effects import COPIES, OptionEffect
from server.tables.schemas import TableDesiredState

_NAMED = 3


def record_table_event(
    session: WriteSession,
    subscription: str,
    row: TableRow,
    kind: str,
    what: str,
    *,
    remedy: str | None = None,
    table_state: TableStateKind | None = None,
) -> None:
    """Record an event about the table of `row`; `what` continues the sentence "The table 'public.orders'"."""
    record_event(
        session,
        kind=kind,
        subscription=subscription,
        subject=row.full_name,
        detail=f"The table '{row.full_name}' {what}.",
        remedy=remedy,
        table_state=table_state,
    )
    session.touch(subscription)


def record_desired_state(session: WriteSession, subscription: str, row: TableRow) -> None:
    """Record that a pause or resumption of the table was requested."""
    paused = row.desired_state == TableDesiredState.PAUSED
    kind = "table_pause_asked" if paused else "table_resume_asked"
    record_table_event(session, subscription, row, kind, f"was requested to be {row.desired_state}; it is {row.state}")


def record_settings_change(
    session: WriteSession, subscription: str, row: TableRow, changed: Mapping[str, OptionEffect]
) -> None:
    """Record that these settings of the table were changed. The remedy says if some take effect only with a reload."""
    copied = [name for name, effect in changed.items() if effect in COPIES]
    what = f"has new settings: {', '.join(changed)}"
    if copied:
        what += "; from its next copy on" + (f": {', '.join(copied)}" if len(copied) < len(changed) else "")
    waits = OptionEffect.NEXT_RELOAD in changed.values()
    remedy = "POST /subscriptions/{name}/tables/{table_id}/reloads applies them." if waits else None
    record_table_event(session, subscription, row, "table_settings_changed", what, remedy=remedy)


def record_reload_request(
    session: WriteSession, subscription: str, row: TableRow, asked: list[str] | Literal["changed"] | None
) -> None:
    """Record that a reload of the table was requested; `asked`: the partitions, None: the whole table."""
    parts = "" if asked is None else f" by partition ({_partitions(asked)})"
    record_table_event(
        session, subscription, row, "table_reload_asked", f"was requested to be reloaded{parts}; it is {row.state}"
    )


def _partitions(asked: list[str] | Literal["changed"]) -> str:
    if asked == "changed":
        return "those that differ"
    more = len(asked) - _NAMED
    return ", ".join(asked[:_NAMED]) + (f" and {more} more" if more > 0 else "")
