"""Builds the assignment of a subscription to an engine, at delivery. Secrets are in it: never stored, never logged."""

from __future__ import annotations

from typing import Any

from engine.model.identity import TableName
from engine.model.subscription import TableSpec
from server.connections import repository as connections
from server.connections.service import connection_with_secrets
from server.db.models.table import TableRow
from server.db.session import ReadSession
from server.declarations.captures import read_capture
from server.declarations.policies import ApplyBody, BatchBody, CopiesBody, QueuePolicy, SchemaChangesBody
from server.declarations.table_body import shared_from
from server.declarations.table_options import options_of, table_spec
from server.errors import NotFound
from server.lookup.subscriptions import require_subscription
from server.security.secret_box import SecretBox
from server.tables import repository as tables


def build_assignment(session: ReadSession, box: SecretBox, name: str) -> dict[str, Any]:
    """The whole subscription, in the shape of the command `assign` without its kind.

    Raises:
        NotFound: there is no such subscription.
        SecretsUnreadable: a connection's secrets cannot be opened.
    """
    row = require_subscription(session, name)
    ends = connections.connections_by_id(session, [row.source_id, row.target_id])
    queue = QueuePolicy.model_validate(row.queue)
    return {
        "name": row.name,
        "epoch": row.epoch,
        "source": connection_with_secrets(session, ends[row.source_id], box),
        "target": connection_with_secrets(session, ends[row.target_id], box),
        "tables": [_spec(table) for table in tables.list_present(session, row.id or 0)],
        "dropped": tables.list_to_be_dropped(session, row.id or 0),
        "patterns": [
            {"schema": one["schema"], "name": one["name"], "exclude": one.get("exclude") or []} for one in row.patterns
        ],
        "slot": row.slot,
        "desired": row.desired_state,
        "queue_mode": queue.mode.value,
        "queue_budget_bytes": queue.budget_bytes,
        **read_capture(row.capture).assigned(),
        "batch": BatchBody.model_validate(row.batch).model_dump(),
        "apply": ApplyBody.model_validate(row.apply).model_dump(mode="json"),
        "schema_changes": SchemaChangesBody.model_validate(row.schema_changes).policy.value,
        "copies": CopiesBody.model_validate(row.copies).model_dump(),
    }


def build_table(session: ReadSession, table_id: str) -> TableSpec:
    """One table, as the command `table` has it.

    Raises:
        NotFound: there is no such table.
    """
    row = session.get(TableRow, table_id)
    if row is None:
        raise NotFound(f"There is no table with the id '{table_id}'.")
    return _spec(row)


def _spec(row: TableRow) -> TableSpec:
    return table_spec(
        row.id,
        TableName(row.schema_name, row.name),
        TableName(row.target_schema, row.target_name),
        options_of(row),
        paused=row.desired_state == "paused",
        shared=shared_from(row.shared_into),
        staging=row.staging,
    )
