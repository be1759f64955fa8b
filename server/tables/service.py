"""The tables of a subscription: added, changed, paused and removed by users, also while it runs."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from engine.kinds import ConnectionKind
from engine.model.identity import TableName
from engine.model.soft_delete import DeleteMode
from engine.model.table_options import TableOptions
from engine.model.table_state import Refused, TableEventKind, TableStateKind, next_state
from server.assessment.schemas import Copied, TableHealth
from server.db.models.subscription import SubscriptionRow
from server.db.models.table import TableRow
from server.db.outbox import enqueue
from server.db.session import ReadSession, WriteSession
from server.declarations.policies import SchemaChangesBody, TableFreshnessBody, table_freshness
from server.declarations.table_body import shared_from
from server.declarations.table_declaration import (
    Declaration,
    OccupiedPlaces,
    check_targets,
    places_of,
    refuse_existing,
    refuse_unstaged,
)
from server.declarations.table_options import (
    TableOptionsBody,
    declared_options,
    options_of,
    shown_options,
    stored_options,
)
from server.error_handlers import field_errors
from server.errors import Conflict, InvalidRequest
from server.etags import check_if_match, new_stamp
from server.lookup.subscriptions import lock_changeable_subscription
from server.lookup.tables import lock_present_table
from server.schema_versions import service as versions
from server.tables import repository, requests, verified
from server.tables.effects import OptionEffect, effect_of
from server.tables.schemas import (
    OnRemoval,
    SharedView,
    TableDesiredState,
    TablePatch,
    TableTarget,
    TableView,
    TargetTable,
)
from server.tables.shown_column import check_shown_column


class TableExists(Conflict):
    code = "table_exists"
    title = "The subscription already has this table"
    default_remedy = "PATCH the table to change it, or DELETE it first and add it again."


class TableTargetFixed(Conflict):
    code = "table_target_fixed"
    title = "The name on the target cannot be changed"
    default_remedy = (
        "Declare the table by its name with its current target, or remove it and add it again with the new one."
    )


class TransitionRefused(Conflict):
    code = "transition_refused"
    title = "Not allowed in this state"
    default_remedy = "Wait until it is in another state; GET shows it."


class TargetTableOfOwner(Conflict):
    code = "target_table_of_owner"
    title = "Penstock did not create the table on the target"
    default_remedy = "Remove the table with target_table=keep, and drop it on the target yourself."


def table_view(
    subscription: str, row: TableRow, health: TableHealth, copied: Copied, schedule: verified.Schedule
) -> TableView:
    view = TableView(
        id=row.id,
        schema_name=row.schema_name,
        name=row.name,
        target=TableTarget(schema_name=row.target_schema, name=row.target_name),
        state=TableStateKind(row.state),
        state_since=row.state_at,
        code=row.code,
        reason=row.reason,
        remedy=row.remedy,
        health=health,
        desired_state=TableDesiredState(row.desired_state),
        copied=copied,
        shared_into=SharedView.model_validate(row.shared_into) if row.shared_into is not None else None,
        rows_set_aside=row.rows_set_aside,
        verified=verified.verified_view(row, schedule),
        verification_problem=verified.problem_view(row, schedule),
        target_table=TargetTable(row.target_table) if row.target_table is not None else None,
        from_pattern=row.from_pattern,
        freshness=table_freshness(row.freshness),
        created_at=row.created_at,
        **shown_options(options_of(row)),
    )
    view.name_actions({"subscription": subscription})
    return view


def add_table(session: WriteSession, name: str, table: Declaration, target: ConnectionKind) -> TableRow:
    """Add one table to a subscription; its copy begins when the engine receives the command.

    Raises:
        TableExists: the subscription has it.
        InvalidRequest: it conflicts with another table on the target, or the target does not support `into_existing`.
    """
    refuse_existing([(table.pointer, table.options.into_existing)], target)
    subscription = lock_changeable_subscription(session, name)
    table = replace(table, staging=subscription.staging)
    refuse_unstaged([table])
    present = repository.list_present(session, subscription.id or 0)
    for row in present:
        if (row.schema_name, row.name) == table.source:
            raise TableExists(f"'{row.full_name}' is already in '{name}', with the id {row.id}.")
    check_targets([table], target, _occupied_places(session, subscription, present, target))
    row = _insert(session, subscription, table)
    enqueue(session, name, "table", {"table": row.id, "removed": False})
    return row


def add_by_pattern(
    session: WriteSession, subscription: SubscriptionRow, tables: Sequence[Declaration], target: ConnectionKind
) -> dict[tuple[str, str], InvalidRequest]:
    """Add tables that appeared on the source and that a pattern includes; existing ones are ignored.

    Returns those that conflict with other tables on the target, by source name, with the reason.
    """
    present = repository.list_present(session, subscription.id or 0)
    taken = _occupied_places(session, subscription, present, target)
    known = {(row.schema_name, row.name) for row in present}
    wanted = [replace(table, staging=subscription.staging) for table in tables if table.source not in known]
    refused = {}
    for table in wanted:
        try:
            refuse_unstaged([table])
            check_targets([table], target, taken)
        except InvalidRequest as why:
            refused[table.source] = why
            continue
        row = _insert(session, subscription, table, "appeared on the source and was added by a pattern")
        who = ".".join(table.source)
        taken = OccupiedPlaces(
            {**taken.places, **_target_places(row, who, target)},
            [*taken.shown, *([(who, table.shared)] if table.shared is not None else [])],
        )
    if len(wanted) > len(refused):
        enqueue(session, subscription.name, "assign", {})
    return refused


def _occupied_places(
    session: ReadSession, subscription: SubscriptionRow, present: Sequence[TableRow], target: ConnectionKind
) -> OccupiedPlaces:
    """The names on the target used by these tables, and by tables of other subscriptions with the same target."""
    rows = [
        (row, f"{row.full_name} of the subscription {name}")
        for row, name in repository.list_others_on_target(session, subscription)
    ]
    rows += [(row, row.full_name) for row in present]
    shared = [(who, shared_from(row.shared_into)) for row, who in rows]
    return OccupiedPlaces(
        {place: whose for row, who in rows for place, whose in _target_places(row, who, target).items()},
        [(who, into) for who, into in shared if into is not None],
    )


def _placed(row: TableRow, options: TableOptions, pointer: str = "") -> Declaration:
    """A table of the subscription with other options, for a check of its names on the target."""
    own = row.schema_name, row.name, row.target_schema, row.target_name
    return Declaration(*own, options, row.from_pattern, pointer, shared_from(row.shared_into), staging=row.staging)


def _target_places(row: TableRow, who: str, target: ConnectionKind) -> dict[tuple[str, str], str]:
    places = places_of(TableName(row.target_schema, row.target_name), who, history=row.history, staging=row.staging)
    return {(target.fold(place.schema), target.fold(place.name)): whose for place, whose in places}


def reconcile_tables(
    session: WriteSession,
    subscription: SubscriptionRow,
    tables: Sequence[Declaration],
    target: ConnectionKind,
    *,
    keep: bool = False,
) -> bool:
    """Make the subscription's tables those of `tables`: add, change, remove. Returns whether anything changed.

    `keep`: remove none.

    Raises:
        TableTargetFixed: an existing table would get another name on the target.
        InvalidRequest: a new one would get the target name of one that was renamed on the source.
    """
    wanted = {table.source: table for table in tables}
    present = {(row.schema_name, row.name): row for row in repository.list_present(session, subscription.id or 0)}
    staying = [row for source, row in present.items() if keep or source in wanted]
    check_targets(
        [
            *(table for source, table in wanted.items() if source not in present),
            *(
                _placed(row, wanted[source].options, wanted[source].pointer)
                for source, row in present.items()
                if source in wanted and wanted[source].options.history and not row.history
            ),
        ],
        target,
        _occupied_places(session, subscription, staying, target),
    )
    changed = False
    for source, row in present.items():
        if source not in wanted and not keep:
            _remove(session, subscription, row)
            changed = True
    # Free the target names of removed tables before others use them.
    session.flush()
    for source, table in wanted.items():
        found = present.get(source)
        if found is None:
            _insert(session, subscription, table)
            changed = True
        else:
            changed |= _redeclare(session, subscription, found, table)
    return changed


def patch_table(
    session: WriteSession, name: str, table_id: str, body: TablePatch, target: ConnectionKind, if_match: str | None
) -> TableRow:
    """Change the members of `body`.

    Raises:
        TransitionRefused: the desired state cannot be reached from the current one.
        IntoExistingUnsupported: the target does not support it.
        OwnTableUnfit: the capture needs a column that would be hidden.
    """
    refuse_existing([("", bool(body.into_existing))], target)
    subscription = lock_changeable_subscription(session, name)
    row = lock_present_table(session, subscription, table_id)
    check_if_match(if_match, row)
    options = _merged_options(row, body)
    if row.shared_into is not None and body.into_existing:
        detail = "A table with shared_into cannot use into_existing."
        raise InvalidRequest.at("/into_existing", detail, "Remove it and add it again without shared_into.")
    if row.shared_into is not None and options.deletes is DeleteMode.MARK:
        detail = "A table with shared_into cannot mark deletes."
        raise InvalidRequest.at("/deletes", detail, "Remove it and add it again without shared_into.")
    refuse_unstaged([_placed(row, options)])
    if options.history and not row.history:
        present = repository.list_present(session, subscription.id or 0)
        check_targets([_placed(row, options)], target, _occupied_places(session, subscription, present, target))
    changed = _apply_options(session, subscription, row, options)
    if changed:
        check_shown_column(session, subscription)
    if "freshness" in body.model_fields_set:
        changed |= _apply_goal(session, name, row, _merged_goal(row, body.freshness))
    if body.desired_state is not None and body.desired_state.value != row.desired_state:
        _check_transition(row, body.desired_state)
        row.desired_state = body.desired_state.value
        requests.record_desired_state(session, name, row)
        changed = True
    if changed:
        _bump_revision(session, row)
        enqueue(session, name, "table", {"table": row.id, "removed": False})
        session.touch(name)
    return row


def remove_table(session: WriteSession, name: str, table_id: str, if_match: str | None, on_target: OnRemoval) -> None:
    """Remove the table from the subscription. Its table on the target stays, or is dropped by the engine.

    Raises:
        TargetTableOfOwner: it would be dropped, but Penstock did not create it (`into_existing`).
        OwnTableUnfit: the capture needs it.
    """
    subscription = lock_changeable_subscription(session, name)
    row = lock_present_table(session, subscription, table_id)
    check_if_match(if_match, row)
    if on_target is OnRemoval.DROP and row.into_existing:
        detail = f"'{row.target_schema}.{row.target_name}' existed before the replication (into_existing); Penstock does not drop it."
        raise TargetTableOfOwner(detail)
    row.kept_out = True
    _remove(session, subscription, row, on_target)
    check_shown_column(session, subscription)
    enqueue(session, name, "table", {"table": row.id, "removed": True})


def _insert(
    session: WriteSession, subscription: SubscriptionRow, table: Declaration, what: str = "was added"
) -> TableRow:
    now = session.now()
    if not table.from_pattern:
        repository.let_in(session, subscription.id or 0, table.schema, table.name)
    row = TableRow(
        id="t" + secrets.token_hex(6),
        subscription_id=subscription.id or 0,
        schema_name=table.schema,
        name=table.name,
        target_schema=table.target_schema,
        target_name=table.target_name,
        shared_into=table.shared.document() if table.shared is not None else None,
        from_pattern=table.from_pattern,
        freshness=None if table.freshness is None else dict(table.freshness),
        desired_state=TableDesiredState.RUNNING.value,
        state=TableStateKind.REGISTERED.value,
        state_at=now,
        stamp=new_stamp(),
        created_at=now,
        staging=subscription.staging,
        **stored_options(table.options),
    )
    session.add(row)
    session.flush()
    versions.record_state(session, row.id, TableStateKind.REGISTERED)
    requests.record_table_event(
        session, subscription.name, row, "table_added", what, table_state=TableStateKind.REGISTERED
    )
    return row


def _remove(
    session: WriteSession, subscription: SubscriptionRow, row: TableRow, on_target: OnRemoval = OnRemoval.KEEP
) -> None:
    dropped = on_target is OnRemoval.DROP
    row.target_table = (TargetTable.TO_BE_DROPPED if dropped else TargetTable.KEPT).value
    row.state = TableStateKind.REMOVED.value
    row.state_at = session.now()
    row.code = row.reason = row.remedy = None
    _bump_revision(session, row)
    versions.record_state(session, row.id, TableStateKind.REMOVED)
    what = _REMOVED[on_target] + _still_shown(row, on_target)
    requests.record_table_event(
        session, subscription.name, row, "table_removed", what, table_state=TableStateKind.REMOVED
    )


def _still_shown(row: TableRow, on_target: OnRemoval) -> str:
    into = shared_from(row.shared_into)
    if into is None or on_target is OnRemoval.DROP:
        return ""
    return f", and the shared table '{into.relation}' still shows them as '{into.source_value}'"


_REMOVED = {
    OnRemoval.KEEP: "was removed; its rows stay on the target",
    OnRemoval.DROP: "was removed; its table on the target is dropped as soon as the subscription runs",
}


def _bump_revision(session: WriteSession, row: TableRow) -> None:
    row.revision += 1
    session.add(row)


def _redeclare(session: WriteSession, subscription: SubscriptionRow, row: TableRow, table: Declaration) -> bool:
    # Keep the identity that was found when a pattern added the table: it determines how its changes are replicated.
    keep = table.from_pattern and row.from_pattern
    # Keep its name on the target too if it was renamed on the source since.
    name = row.target_name if keep else table.target_name
    if (row.target_schema, row.target_name) != (table.target_schema, name):
        raise TableTargetFixed(f"'{row.full_name}' is '{row.target_schema}.{row.target_name}' on the target.")
    shown = table.shared
    standing = shared_from(row.shared_into)
    if keep and shown is not None and standing is not None:
        shown = replace(shown, relation=TableName(shown.relation.schema, standing.relation.name))
    if shown != standing:
        raise TableTargetFixed(f"The shared table of '{row.full_name}' cannot be changed.")
    options = replace(table.options, insert_only=row.insert_only) if keep else table.options
    changed = _apply_options(session, subscription, row, options)
    changed |= _apply_goal(session, subscription.name, row, table.freshness)
    if row.from_pattern != table.from_pattern:
        row.from_pattern = table.from_pattern
        changed = True
    if changed:
        _bump_revision(session, row)
    return changed


def _apply_options(session: WriteSession, subscription: SubscriptionRow, row: TableRow, options: TableOptions) -> bool:
    before = options_of(row)
    changed = {name: value for name, value in stored_options(options).items() if getattr(row, name) != value}
    for name, value in changed.items():
        setattr(row, name, value)
    if changed:
        policy = SchemaChangesBody.model_validate(subscription.schema_changes).policy
        names = ["columns" if name == "map_as" else name for name in changed]
        effects = {name: effect_of(name, before, options, TableStateKind(row.state), policy) for name in names}
        requests.record_settings_change(session, subscription.name, row, effects)
    return bool(changed)


def _apply_goal(session: WriteSession, subscription: str, row: TableRow, freshness: Mapping[str, Any] | None) -> bool:
    if row.freshness == freshness:
        return False
    row.freshness = None if freshness is None else dict(freshness)
    requests.record_settings_change(session, subscription, row, {"freshness": OptionEffect.AT_ONCE})
    return True


def _merged_goal(row: TableRow, given: TableFreshnessBody | None) -> dict[str, Any] | None:
    if given is None:
        return None
    present = {**(row.freshness or {}), **given.model_dump(mode="json", exclude_unset=True)}
    return TableFreshnessBody.model_validate(present).given()


def _merged_options(row: TableRow, body: TablePatch) -> TableOptions:
    present = declared_options(options_of(row))
    given = body.model_dump(exclude_unset=True, exclude={"desired_state", "freshness"}, mode="json")
    if given.get("columns") is not None:
        given["columns"] = {**present["columns"], **given["columns"]}
        given["columns"] = {name: options for name, options in given["columns"].items() if options is not None}
    merged = {name: value for name, value in {**present, **given}.items() if value is not None}
    try:
        valid = TableOptionsBody.model_validate(merged)
    except ValidationError as error:
        found = field_errors(error.errors(include_input=False, include_url=False))
        raise InvalidRequest("The changed table would not be valid.", errors=found) from None
    return valid.options


def _check_transition(row: TableRow, desired: TableDesiredState) -> None:
    state = TableStateKind(row.state)
    if desired is TableDesiredState.PAUSED and state is not TableStateKind.PAUSED:
        outcome = next_state(state, TableEventKind.PAUSE)
        if isinstance(outcome, Refused):
            raise TransitionRefused(f"'{row.full_name}' cannot be paused now: {outcome.reason}.")
    if desired is TableDesiredState.RUNNING and state is TableStateKind.PARKED:
        raise TransitionRefused(
            f"'{row.full_name}' is parked: {row.reason or 'see its events'}", row.remedy or "Reload it."
        )
