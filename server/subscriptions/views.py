"""The views of subscriptions in the REST interface."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from engine.model.patterns import ANY
from engine.model.positions import text_of
from engine.model.subscription_state import DesiredState, SubscriptionState
from server.assessment.assess import Assessment, ConnectedFor
from server.connections import repository as connections
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.session import ReadSession
from server.declarations.freshness_goals import freshness_policy
from server.declarations.policies import POLICIES, table_freshness
from server.declarations.table_body import TableBody, TargetName, shared_body
from server.declarations.table_options import declared_options, options_of
from server.lookup.subscriptions import consistency_of, position_form
from server.subscriptions.schemas import Lag, Positions, SubscriptionView
from server.tables import repository as tables
from server.tables.verified import interval_of, verified_share


def subscription_views(
    session: ReadSession, rows: Sequence[SubscriptionRow], now: datetime, connected_s: ConnectedFor
) -> list[SubscriptionView]:
    """The subscriptions of `rows`, in a fixed number of queries."""
    ids = [row.id or 0 for row in rows]
    by_id = connections.connections_by_id(session, [place for row in rows for place in (row.source_id, row.target_id)])
    names = {connection_id: row.name for connection_id, row in by_id.items()}
    found = tables.list_present_of_many(session, ids)
    return [
        _view(row, names, found[row.id or 0], Assessment(row, found[row.id or 0], now, connected_s(row.engine_id)), now)
        for row in rows
    ]


def _view(
    row: SubscriptionRow, names: dict[int, str], found: Sequence[TableRow], assessment: Assessment, now: datetime
) -> SubscriptionView:
    form = position_form(row)
    policies: dict[str, Any] = {name: kind.validate_python(getattr(row, name)) for name, kind in POLICIES.items()}
    policies["freshness"] = freshness_policy(row)
    every = interval_of(policies["verify"])
    named = [declared_body(table) for table in found if not table.from_pattern]
    return SubscriptionView(
        name=row.name,
        source=names[row.source_id],
        target=names[row.target_id],
        tables=named + [TableBody.model_validate(pattern) for pattern in row.patterns],
        desired_state=DesiredState(row.desired_state),
        **policies,
        staging=row.staging,
        state=SubscriptionState(row.state),
        state_since=row.state_at,
        code=row.code,
        reason=row.reason,
        remedy=row.remedy,
        health=assessment.health,
        last_fault=assessment.last_fault,
        verified=None if every is None else verified_share(found, every, now),
        copying=assessment.copying,
        deleting=row.deleting,
        positions=Positions(
            source=text_of(form, row.source_position),
            captured=text_of(form, row.captured_position),
            applied=text_of(form, row.applied_position),
            as_of=row.progress_at,
        ),
        lag=Lag(
            bytes=row.lag_bytes if assessment.inputs.live else None,
            seconds=assessment.inputs.lag_seconds,
            tables=assessment.inputs.live,
        ),
        consistency=consistency_of(row),
        retained_bytes=row.retained_bytes,
        table_states=dict(sorted(Counter(table.state for table in found).items())),
        slot=row.slot,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def declared_body(row: TableRow) -> TableBody:
    """The table in the form of a user's declaration."""
    elsewhere = (row.target_schema, row.target_name) != (row.schema_name, row.name)
    return TableBody(
        schema_name=row.schema_name,
        name=row.name,
        target=TargetName(schema_name=row.target_schema, name=row.target_name) if elsewhere else None,
        shared_into=shared_body(row.shared_into),
        exact=ANY in row.name,
        freshness=table_freshness(row.freshness),
        **declared_options(options_of(row)),
    )
