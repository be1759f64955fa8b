"""Subscriptions: created, replaced, changed and deleted by their users' requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue, ValidationError

from engine.connectors import CONNECTIONS, DEFAULT_CAPTURE, SOURCES
from engine.kinds import ConnectionKind
from engine.model.subscription import ApplyMode, Visibility
from engine.model.subscription_state import DesiredState, SubscriptionState
from server.connections import repository as connections
from server.connections.nodes import target_among_nodes
from server.db.models.connection import ConnectionRow
from server.db.models.subscription import SubscriptionRow
from server.db.outbox import enqueue
from server.db.session import ReadSession, WriteSession
from server.declarations.captures import read_capture
from server.declarations.policies import POLICIES, ApplyBody
from server.declarations.shown_column import POINTER
from server.declarations.table_body import TableBody
from server.declarations.table_declaration import refuse_existing_bodies, resolve_tables
from server.error_handlers import field_errors
from server.errors import Conflict, FieldError, InvalidRequest
from server.etags import check_if_match, new_stamp
from server.events.service import record_event
from server.lookup.subscriptions import lock_changeable_subscription, lock_subscription, require_subscription
from server.subscriptions import repository
from server.subscriptions.desire import declare_desired, slot_name
from server.subscriptions.schemas import SubscriptionPatch, SubscriptionPut
from server.tables import repository as repository_of_tables
from server.tables import service as tables
from server.tables.shown_column import check_shown_column

Discovered = Sequence[Mapping[str, Any]]


class SubscriptionEndpointFixed(Conflict):
    code = "subscription_endpoint_fixed"
    title = "Source and target cannot be changed"
    default_remedy = "Make a new subscription, or change the settings of the connection."


class ApplyModeUnsupported(InvalidRequest):
    code = "apply_mode_unsupported"
    title = "Batches cannot be applied in this mode"
    default_remedy = "Use the mode 'auto' or 'batch', or a PostgreSQL target."


class CaptureUnsupported(InvalidRequest):
    code = "capture_unsupported"
    title = "The source has no such capture"
    default_remedy = (
        "Leave capture.kind out; GET /api/v1/connection-kinds says which captures a kind of connection has."
    )


class CaptureSettingFixed(Conflict):
    code = "capture_setting_fixed"
    title = "A setting of the capture stays as it is"
    default_remedy = "Leave it as it is, or delete the subscription and create it again, which copies all tables."


class StagingFixed(Conflict):
    code = "staging_fixed"
    title = "Staging tables are chosen when a subscription is created"
    default_remedy = (
        "Leave 'staging' as it is, or delete the subscription and create it again, which copies all tables."
    )


class StagingUnsupported(InvalidRequest):
    code = "staging_unsupported"
    title = "Staging tables are not possible like this"
    default_remedy = (
        "Use the default mode and visibility of 'apply' and a target in an SQL database, or leave out 'staging'."
    )


class VisibilityUnsupported(InvalidRequest):
    code = "visibility_unsupported"
    title = "The target cannot show parts of a batch"
    default_remedy = "Leave visibility out, or use a PostgreSQL target."


def put_subscription(
    session: WriteSession,
    name: str,
    body: SubscriptionPut,
    discovered: Discovered,
    if_match: str | None,
    *,
    keep_tables: bool = False,
) -> tuple[SubscriptionRow, bool]:
    """Create the subscription, or make it match `body`. Returns whether it is new.

    `discovered`: the source's tables if `body` has patterns. `keep_tables`: tables and patterns missing in `body` stay.
    """
    row = lock_subscription(session, name)
    check_if_match(if_match, row)
    source, target = _endpoints(session, body.source, body.target)
    _refuse_mode(source, target, body.apply, staging=body.staging)
    policies = body.policies()
    policies["capture"] = _captured(source, policies["capture"])
    if row is None:
        return _create(session, name, body, source, target, policies, discovered), True
    row = lock_changeable_subscription(session, name)
    _refuse_moving(session, row, body.source, body.target)
    _refuse_restaging(row, body.staging)
    _refuse_fixed(row, policies["capture"])
    changed = _set_tables(session, row, body.tables, discovered, CONNECTIONS[target.kind], keep=keep_tables)
    changed |= _set_policies(row, policies)
    check_shown_column(session, row, POINTER)
    changed |= declare_desired(session, row, body.desired_state)
    if changed:
        _bump_revision(session, row)
        enqueue(session, name, "assign", {})
    return row, False


def patch_subscription(
    session: WriteSession, name: str, body: SubscriptionPatch, discovered: Discovered, if_match: str | None
) -> SubscriptionRow:
    """Change the members of `body`."""
    row = lock_changeable_subscription(session, name)
    check_if_match(if_match, row)
    _refuse_moving(session, row, body.source, body.target)
    _refuse_restaging(row, body.staging)
    merged = {
        policy: _merged_policy(policy, getattr(row, policy), getattr(body, policy))
        for policy in POLICIES
        if policy in body.model_fields_set
    }
    ends = connections.connections_by_id(session, [row.source_id, row.target_id])
    source, target = ends[row.source_id], ends[row.target_id]
    if "capture" in merged:
        merged["capture"] = _captured(source, merged["capture"])
        _refuse_fixed(row, merged["capture"])
    _refuse_mode(source, target, ApplyBody.model_validate(merged.get("apply", {})), staging=row.staging)
    redeclared = _set_policies(row, merged)
    if body.tables is not None:
        redeclared |= _set_tables(session, row, body.tables, discovered, CONNECTIONS[target.kind])
    if redeclared:
        check_shown_column(session, row, POINTER)
    desired = body.desired_state is not None and declare_desired(session, row, body.desired_state)
    if redeclared or desired:
        _bump_revision(session, row)
        if redeclared:
            enqueue(session, name, "assign", {})
        else:
            enqueue(session, name, "desire", {"desired": row.desired_state})
    return row


def remove_subscription(
    session: WriteSession, name: str, if_match: str | None, *, force: bool
) -> SubscriptionRow | None:
    """Begin to delete the subscription. Returns None if it is deleted immediately.

    The engine stops it, drops slot and publications, and reports; then the row is deleted. A subscription that was
    never assigned to an engine leaves nothing on the source. One deleted by force leaves its slot and publications,
    which an event names.
    """
    row = lock_subscription(session, name) or require_subscription(session, name)
    check_if_match(if_match, row)
    repository.delete_undelivered(session, name)
    if row.epoch == 0 or force:
        left = [] if row.epoch == 0 else [f"slot and publications named {row.slot} on the source"]
        erase_subscription(session, row, left)
        return None
    if not row.deleting:
        row.deleting = True
        row.desired_state = DesiredState.STOPPED.value
        row.state = SubscriptionState.STOPPING.value
        row.state_at = session.now()
        row.code = row.reason = row.remedy = None
        _bump_revision(session, row)
        record_event(session, kind="subscription_deleting", subscription=name, detail=f"'{name}' is being deleted.")
    enqueue(session, name, "forget", {})
    return row


def erase_subscription(session: WriteSession, row: SubscriptionRow, left: Sequence[str]) -> None:
    """Delete the row and all that refers to it, and record an event if something is `left` on the source.

    The target's tables always stay.
    """
    session.delete(row)
    session.touch(row.name)
    session.declare(row.name)
    if left:
        record_event(
            session,
            kind="subscription_deleted",
            severity="warning",
            subscription=row.name,
            subject=row.slot,
            detail=f"'{row.name}' was deleted; not removed: {'; '.join(left)}.",
            remedy="Drop what is left by hand: an unused slot holds the source's log for ever.",
        )
    else:
        record_event(session, kind="subscription_deleted", subscription=row.name, detail=f"'{row.name}' was deleted.")


def _create(
    session: WriteSession,
    name: str,
    body: SubscriptionPut,
    source: ConnectionRow,
    target: ConnectionRow,
    policies: Mapping[str, dict[str, Any]],
    discovered: Discovered,
) -> SubscriptionRow:
    now = session.now()
    row = SubscriptionRow(
        name=name,
        source_id=source.id or 0,
        target_id=target.id or 0,
        slot=slot_name(name),
        desired_state=DesiredState.RUNNING.value,
        state=SubscriptionState.CREATED.value,
        state_at=now,
        staging=body.staging,
        stamp=new_stamp(),
        created_at=now,
        updated_at=now,
    )
    _set_policies(row, policies)
    session.add(row)
    session.flush()
    record_event(session, kind="subscription_created", subscription=name, detail=f"'{name}' was created.")
    _set_tables(session, row, body.tables, discovered, CONNECTIONS[target.kind])
    check_shown_column(session, row, POINTER)
    declare_desired(session, row, body.desired_state)
    session.touch(name)
    enqueue(session, name, "assign", {})
    return row


def _endpoints(session: ReadSession, source: str, target: str) -> tuple[ConnectionRow, ConnectionRow]:
    """The connections of these names, each of a kind that is valid as source or as target."""
    rows = connections.find_connection(session, source), connections.find_connection(session, target)
    errors = []
    for row, name, place in zip(rows, (source, target), ("source", "target"), strict=True):
        if row is None:
            errors.append(FieldError(pointer=f"/{place}", detail=f"There is no connection named '{name}'."))
        elif not getattr(CONNECTIONS[row.kind], place):
            fitting = ", ".join(kind.name for kind in CONNECTIONS.values() if getattr(kind, place))
            detail = f"'{name}' is of the kind {row.kind}, which cannot be a {place}; these can: {fitting}."
            errors.append(FieldError(pointer=f"/{place}", detail=detail))
    if not errors and source == target:
        errors.append(
            FieldError(pointer="/target", detail=f"'{target}' is the source already; a copy needs another place.")
        )
    among = None if errors or rows[0] is None else target_among_nodes(target, source, rows[0].settings)
    if among is not None:
        errors.append(FieldError(pointer="/target", detail=among))
    if errors or rows[0] is None or rows[1] is None:
        raise InvalidRequest(
            " ".join(error.detail for error in errors),
            "PUT the connections first; GET /api/v1/connections lists what there is.",
            errors=errors,
        )
    return rows[0], rows[1]


def check_before_discovery(session: ReadSession, body: SubscriptionPut) -> ConnectionRow:
    """Check what can be checked without asking the source; returns the source's connection."""
    source, target = _endpoints(session, body.source, body.target)
    _captured(source, body.policies()["capture"])
    _refuse_mode(source, target, body.apply, staging=body.staging)
    refuse_existing_bodies(body.tables, CONNECTIONS[target.kind])
    return source


def _refuse_mode(source: ConnectionRow, target: ConnectionRow, apply: ApplyBody, *, staging: bool) -> None:
    if staging and not CONNECTIONS[target.kind].stages_changes:
        fitting = ", ".join(kind.name for kind in CONNECTIONS.values() if kind.stages_changes)
        detail = f"'{target.name}' is of the kind {target.kind}, which has no staging tables; these have: {fitting}."
        raise StagingUnsupported.at("/staging", detail)
    if staging and apply.mode in (ApplyMode.GROUPED, ApplyMode.TRANSACTIONAL):
        detail = f"Staging tables are written with whole batches, and not in the mode '{apply.mode}'."
        raise StagingUnsupported.at("/apply/mode", detail)
    if staging and apply.visibility is Visibility.RELAXED:
        raise StagingUnsupported.at(
            "/apply/visibility", "Staging tables are written with batches that are visible at once."
        )
    by_transactions = apply.mode in (ApplyMode.GROUPED, ApplyMode.TRANSACTIONAL)
    if by_transactions and CONNECTIONS[source.kind].nodes_of is not None:
        detail = f"'{source.name}' has several nodes, whose changes are applied as whole batches, not in the mode '{apply.mode}'."
        raise ApplyModeUnsupported.at("/apply/mode", detail, "Use the mode 'auto' or 'batch'.")
    if by_transactions and not CONNECTIONS[target.kind].keeps_transactions:
        fitting = ", ".join(kind.name for kind in CONNECTIONS.values() if kind.keeps_transactions)
        detail = f"'{target.name}' is of the kind {target.kind}, which cannot apply in the mode '{apply.mode}'; these can: {fitting}."
        raise ApplyModeUnsupported.at("/apply/mode", detail)
    if apply.visibility is Visibility.RELAXED and not CONNECTIONS[target.kind].keeps_transactions:
        detail = f"'{target.name}' is of the kind {target.kind}, whose batches become visible at once only."
        raise VisibilityUnsupported.at("/apply/visibility", detail)


def _refuse_moving(session: ReadSession, row: SubscriptionRow, source: str | None, target: str | None) -> None:
    present = connections.connections_by_id(session, [row.source_id, row.target_id])
    for place, wanted, found in (
        ("source", source, present[row.source_id].name),
        ("target", target, present[row.target_id].name),
    ):
        if wanted is not None and wanted != found:
            raise SubscriptionEndpointFixed(f"The {place} of '{row.name}' is '{found}' and cannot become '{wanted}'.")


def _refuse_restaging(row: SubscriptionRow, wanted: bool | None) -> None:
    if wanted is not None and wanted != row.staging:
        detail = f"'staging' of '{row.name}' is {str(row.staging).lower()}, and tables have staging tables from their first copy on."
        raise StagingFixed(detail, errors=[FieldError(pointer="/staging", detail=detail)])


def _set_tables(
    session: WriteSession,
    row: SubscriptionRow,
    bodies: Sequence[TableBody],
    discovered: Discovered,
    target: ConnectionKind,
    *,
    keep: bool = False,
) -> bool:
    """Make the tables match `bodies`. `keep`: existing tables and patterns that `bodies` leave out stay."""
    kept_out = repository_of_tables.list_kept_out(session, row.id or 0)
    meant = resolve_tables(bodies, discovered, target, row.name, kept_out, staging=row.staging)
    changed = tables.reconcile_tables(session, row, meant, target, keep=keep)
    patterns = [
        body.model_dump(by_alias=True, exclude_defaults=True, mode="json") for body in bodies if body.is_pattern
    ]
    if keep:
        given = {(pattern["schema"], pattern["name"]) for pattern in patterns}
        patterns += [pattern for pattern in row.patterns if (pattern["schema"], pattern["name"]) not in given]
    if patterns != row.patterns:
        row.patterns = patterns
        changed = True
    return changed


def _set_policies(row: SubscriptionRow, policies: Mapping[str, dict[str, Any]]) -> bool:
    changed = False
    for policy, value in policies.items():
        if getattr(row, policy) != value:
            setattr(row, policy, value)
            changed = True
    return changed


def _merged_policy(policy: str, present: Mapping[str, Any], given: Mapping[str, JsonValue] | None) -> dict[str, Any]:
    if given is None:
        return {}
    return _valid_policy(policy, _merged(present, given))


def _valid_policy(policy: str, given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        valid: dict[str, Any] = POLICIES[policy].validate_python(given).model_dump(exclude_unset=True, mode="json")
    except ValidationError as error:
        found = field_errors(error.errors(include_input=False, include_url=False), (policy,))
        raise InvalidRequest(f"'{policy}' would not be valid.", errors=found) from None
    return valid


def _captured(source: ConnectionRow, given: dict[str, Any]) -> dict[str, Any]:
    """The capture as it is stored: with its kind, where that is not the usual one of all sources."""
    captures = CONNECTIONS[source.kind].captures
    kind = given.get("kind", captures[0])
    if kind not in captures:
        detail = f"'{source.name}' is of the kind {source.kind}, which has no capture '{kind}'; it has: {', '.join(captures)}."
        raise CaptureUnsupported.at("/capture/kind", detail)
    try:
        SOURCES[source.kind, kind].capture.model_validate({**given, "kind": kind})
    except ValidationError as error:
        found = field_errors(error.errors(include_input=False, include_url=False), ("capture",))
        raise InvalidRequest(f"'capture' is not valid for a source of the kind {source.kind}.", errors=found) from None
    return given if kind == given.get("kind", DEFAULT_CAPTURE) else _valid_policy("capture", {**given, "kind": kind})


def _refuse_fixed(row: SubscriptionRow, given: Mapping[str, Any]) -> None:
    """Raises CaptureSettingFixed if a setting changes by which an engine may have read the log already."""
    present, wanted = read_capture(row.capture), read_capture(given)
    if row.epoch == 0 or present.kind != wanted.kind:
        return
    for name in sorted(wanted.fixed):
        before, after = getattr(present, name), getattr(wanted, name)
        if before != after:
            detail = f"'{name}' of '{row.name}' is {before!r} and cannot become {after!r}: its log was read by it."
            raise CaptureSettingFixed(detail, errors=[FieldError(pointer=f"/capture/{name}", detail=detail)])


def _merged(present: Mapping[str, Any], given: Mapping[str, JsonValue]) -> dict[str, Any]:
    """`present` with the members of `given` merged in recursively; null removes a member."""
    merged = {name: value for name, value in present.items() if name not in given}
    for name, value in given.items():
        before = present.get(name)
        if isinstance(value, Mapping):
            merged[name] = _merged(before if isinstance(before, Mapping) else {}, value)
        elif value is not None:
            merged[name] = value
    return merged


def _bump_revision(session: WriteSession, row: SubscriptionRow) -> None:
    row.revision += 1
    row.updated_at = session.now()
    session.add(row)
    session.touch(row.name)
