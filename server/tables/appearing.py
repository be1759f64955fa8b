"""Adds tables that appeared on the source of a running subscription, if its patterns include them."""

from __future__ import annotations

from collections.abc import Iterable

from engine.connectors import CONNECTIONS
from engine.link.messages import FoundTable
from server.connections import repository as connections
from server.db.models.subscription import SubscriptionRow
from server.db.session import WriteSession
from server.declarations.table_body import TableBody
from server.declarations.table_declaration import Declaration, declare_by_pattern
from server.errors import InvalidRequest
from server.events.service import record_event
from server.tables import repository, service


def add_found_tables(session: WriteSession, subscription: SubscriptionRow, found: Iterable[FoundTable]) -> None:
    """Declare the tables that a pattern includes and the subscription lacks. Safe to repeat.

    Tables that a user removed stay out. A table that conflicts with another on the target is left out; an event reports it.
    """
    if subscription.deleting:
        return
    target = CONNECTIONS[connections.connections_by_id(session, [subscription.target_id])[subscription.target_id].kind]
    patterns = [TableBody.model_validate(pattern) for pattern in subscription.patterns]
    kept_out = repository.list_kept_out(session, subscription.id or 0)
    wanted, refusals = [], {}
    for each in found:
        if (each.schema_name, each.name) in kept_out:
            continue
        try:
            table = _declare_by_pattern(patterns, each, subscription.name)
        except InvalidRequest as why:
            refusals[each.schema_name, each.name] = why
            continue
        if table is not None:
            wanted.append(table)
    refusals |= service.add_by_pattern(session, subscription, wanted, target)
    for source, refused in refusals.items():
        name = ".".join(source)
        record_event(
            session,
            kind="table_not_taken_in",
            severity="warning",
            subscription=subscription.name,
            subject=name,
            detail=f"The table '{name}' appeared on the source and conflicts with another table on the target: {refused.detail}",
            remedy="Declare it by its name with another target, or leave it out with the pattern's 'exclude'.",
        )


def _declare_by_pattern(patterns: Iterable[TableBody], table: FoundTable, subscription: str) -> Declaration | None:
    """The table as declared by the first pattern that includes it."""
    pattern = next((each for each in patterns if each.takes(table.schema_name, table.name)), None)
    if pattern is None:
        return None
    return declare_by_pattern(pattern, table.name, has_identity=table.identity, subscription=subscription)
