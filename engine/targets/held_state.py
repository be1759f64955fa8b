"""What a held snapshot shows, from the target's metadata in its transaction."""

from __future__ import annotations

from engine.model.identity import SubscriptionName
from engine.model.target import HeldState, HeldTable, QueryRefused
from engine.targets.metadata_store import MetadataStore


def held_state(records: MetadataStore, subscription: SubscriptionName) -> HeldState:
    """Raises QueryRefused(query_unavailable) if nothing is recorded."""
    position = records.position(subscription) if records.exist() else None
    if position is None:
        raise QueryRefused("query_unavailable", "nothing has been replicated to this target yet")
    last = position.last
    tables = tuple(
        HeldTable(one.table, one.target, one.ready and one.parked is None)
        for one in records.reservations(subscription)
        if not one.removed and one.schema is not None
    )
    return HeldState(position.end, last.time_us if last is not None and last.known else None, tables)
