"""What a PUT of a subscription would do, found by doing it in a transaction that is rolled back."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from server.db.session import WriteSession
from server.etags import etag_of
from server.lookup.subscriptions import lock_subscription, require_subscription
from server.naming import QualifiedName
from server.plans import FieldChange, PlanResult, field_changes, result_of
from server.subscriptions import service
from server.subscriptions.schemas import SubscriptionPut
from server.subscriptions.service import Discovered
from server.subscriptions.views import declared_body, subscription_views
from server.tables import repository as tables

_FIELDS = set(SubscriptionPut.model_fields) - {"tables", "target_schemas"}


class TableAction(StrEnum):
    """What happens to a table."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    KEPT = "kept"


class PlannedTable(QualifiedName):
    """A table that the PUT changes, or that its body leaves out."""

    action: TableAction = Field(
        description="`removed`: it is removed from the subscription, and its rows stay on the target. `kept`: the body leaves it out,"
        " and it stays because of `keep_tables`."
    )


class SubscriptionPlan(BaseModel):
    """What a PUT of this body would do now."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "result": "changed",
                    "fields": [{"field": "desired_state", "before": "running", "after": "paused"}],
                    "tables": [{"schema": "public", "name": "events", "action": "removed"}],
                    "etag": '"9f86d081-3"',
                }
            ]
        }
    )

    result: PlanResult
    fields: list[FieldChange]
    tables: list[PlannedTable] = Field(
        description="Tables that change or that the body leaves out; others are not listed."
    )
    etag: str | None = Field(
        description="The subscription's current ETag; null if it does not exist. Send it as If-Match with the PUT, so that the plan"
        " still applies."
    )


def plan_subscription_put(
    session: WriteSession, name: str, body: SubscriptionPut, discovered: Discovered, *, keep_tables: bool
) -> SubscriptionPlan:
    """What `service.put_subscription` would do. The session is rolled back; raises what `put_subscription` raises."""
    row = lock_subscription(session, name)
    etag = None if row is None else etag_of(row)
    before, stood = (None, {}) if row is None else _declared_state(session, name)
    try:
        service.put_subscription(session, name, body, discovered, None, keep_tables=keep_tables)
        session.flush()
        after, standing = _declared_state(session, name)
    finally:
        session.rollback()
    named = {(table.schema_name, table.name) for table in body.tables if not table.is_pattern}
    patterns = [table for table in body.tables if table.is_pattern]
    actions: dict[tuple[str, str], TableAction] = {}
    for source in sorted(stood.keys() | standing.keys()):
        if source not in standing:
            actions[source] = TableAction.REMOVED
        elif source not in stood:
            actions[source] = TableAction.ADDED
        elif stood[source] != standing[source]:
            actions[source] = TableAction.CHANGED
        elif source not in named and not any(pattern.takes(*source) for pattern in patterns):
            actions[source] = TableAction.KEPT
    fields = field_changes(before, after)
    changed = bool(fields) or any(action is not TableAction.KEPT for action in actions.values())
    return SubscriptionPlan(
        result=result_of(row is None, changed),
        fields=fields,
        tables=[PlannedTable(schema_name=s, name=n, action=action) for (s, n), action in actions.items()],
        etag=etag,
    )


def _declared_state(session: WriteSession, name: str) -> tuple[dict[str, Any], dict[tuple[str, str], Any]]:
    """The declared fields except the tables, and the declaration of each table."""
    row = require_subscription(session, name)
    view = subscription_views(session, [row], session.now(), lambda _: None)[0].model_dump(mode="json", include=_FIELDS)
    found = {
        (table.schema_name, table.name): declared_body(table) for table in tables.list_present(session, row.id or 0)
    }
    return view, found
