"""What a PATCH of a table would do, found by doing it in a transaction that is rolled back."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from engine.kinds import ConnectionKind
from engine.model.table_state import TableStateKind
from server.db.models.table import TableRow
from server.db.session import WriteSession
from server.declarations.policies import SchemaChangesBody
from server.declarations.table_options import options_of, shown_options
from server.etags import etag_of
from server.lookup.subscriptions import require_subscription
from server.lookup.tables import require_table
from server.plans import FieldChange, PlanResult, field_changes, result_of
from server.tables import service
from server.tables.effects import OptionEffect, effect_of, needs_new_start
from server.tables.schemas import TablePatch


class OptionChange(FieldChange):
    """An option that the PATCH changes, and what follows."""

    effect: OptionEffect = Field(
        description="`at_once`: it takes effect without a copy. `in_place`: the table on the target is changed in place. `new_copy`: the"
        " table is copied again automatically; its old rows stay readable until then. `parks`: the table parks because of the"
        " subscription's `schema_changes` policy, until the change is approved or the table is reloaded; its `remedy` names which."
        " `next_reload`: it takes effect with the table's next reload."
    )


class TablePlan(BaseModel):
    """What a PATCH of this body would do now."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "result": "changed",
                    "fields": [
                        {
                            "field": "columns",
                            "before": {},
                            "after": {"price": {"map_as": "text"}},
                            "effect": "new_copy",
                        }
                    ],
                    "new_start": False,
                    "etag": '"9f86d081-3"',
                }
            ]
        }
    )

    result: PlanResult
    fields: list[OptionChange]
    new_start: bool = Field(
        description="The subscription's run starts again, which interrupts the replication of all of its tables for some seconds."
    )
    etag: str = Field(
        description="The table's current ETag. Send it as If-Match with the PATCH, so that the plan still applies."
    )


def plan_table_patch(
    session: WriteSession, name: str, table_id: str, body: TablePatch, target: ConnectionKind
) -> TablePlan:
    """What `service.patch_table` would do. The session is rolled back; raises what `patch_table` raises."""
    subscription = require_subscription(session, name)
    policy = SchemaChangesBody.model_validate(subscription.schema_changes).policy
    row = require_table(session, name, table_id)
    etag, state = etag_of(row), TableStateKind(row.state)
    options, before = options_of(row), _declared(row)
    try:
        changed = service.patch_table(session, name, table_id, body, target, None)
        wanted, after = options_of(changed), _declared(changed)
    finally:
        session.rollback()
    changes = field_changes(before, after)

    def effect(change: FieldChange) -> OptionEffect:
        return effect_of(change.field, options, wanted, state, policy)

    return TablePlan(
        result=result_of(created=False, changed=bool(changes)),
        fields=[OptionChange(**change.model_dump(), effect=effect(change)) for change in changes],
        new_start=needs_new_start([change.field for change in changes]),
        etag=etag,
    )


def _declared(row: TableRow) -> dict[str, Any]:
    return {"desired_state": row.desired_state, "freshness": row.freshness, **shown_options(options_of(row))}
