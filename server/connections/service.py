"""Validation of connections, and the effects of their changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue, SecretStr, ValidationError

from engine.connectors import CONNECTIONS
from engine.kinds import ConnectionKind
from server.connections import repository
from server.connections.nodes import refuse_moved_nodes, refuse_unfit_nodes, resolved
from server.connections.schemas import ConnectionPatch, ConnectionPlan, ConnectionPut
from server.db.models.connection import ConnectionRow, SettingValue, nodes_in
from server.db.outbox import enqueue
from server.db.session import ReadSession, WriteSession
from server.error_handlers import field_errors
from server.errors import Conflict, FieldError, InvalidRequest, NotFound
from server.etags import check_if_match, etag_of, new_stamp
from server.events.service import record_event
from server.plans import field_changes, result_of
from server.security.secret_box import SecretBox, SecretsUnreadable


class ConnectionInUse(Conflict):
    code = "connection_in_use"
    title = "The connection is in use"
    default_remedy = "Delete the subscriptions that use it first."


class ConnectionKindFixed(Conflict):
    code = "connection_kind_fixed"
    title = "The kind of a connection cannot be changed"
    default_remedy = "Make a connection of another name."


def require_connection(session: ReadSession, name: str) -> ConnectionRow:
    """The connection of this name.

    Raises:
        NotFound: there is none.
    """
    row = repository.find_connection(session, name)
    if row is None:
        raise NotFound(f"There is no connection named '{name}'.", "GET /api/v1/connections lists them.")
    return row


def put_connection(
    session: WriteSession, box: SecretBox, name: str, body: ConnectionPut, if_match: str | None
) -> tuple[ConnectionRow, bool]:
    """Create or replace the connection; secrets that `body` leaves out stay. Returns whether it is new."""
    row = repository.lock_connection(session, name)
    check_if_match(if_match, row)
    kind = _kind(body.kind)
    settings = _valid_settings(kind, body.settings)
    if row is None:
        return _create(session, box, name, kind, settings, body.secrets), True
    if row.kind != kind.name:
        raise ConnectionKindFixed(f"'{name}' is of the kind {row.kind}, not {kind.name}.")
    _change(session, box, row, settings, body.secrets)
    return row, False


def plan_connection_put(session: ReadSession, box: SecretBox, name: str, body: ConnectionPut) -> ConnectionPlan:
    """What `put_connection` would do. Raises what it raises."""
    row = repository.find_connection(session, name)
    after = _proposed(session, box, name, body)
    before = {} if row is None else _readable_secrets(row, box, body.secrets)
    secrets = sorted(
        name for name in before.keys() | after["secrets"].keys() if before.get(name) != after["secrets"].get(name)
    )
    settings = {} if row is None else row.settings
    names = sorted(settings.keys() | after["settings"].keys())
    fields = field_changes(
        None if row is None else {f"settings.{name}": settings.get(name) for name in names},
        {f"settings.{name}": after["settings"].get(name) for name in names},
    )
    return ConnectionPlan(
        result=result_of(row is None, bool(fields or secrets)),
        fields=fields,
        secrets=secrets,
        etag=None if row is None else etag_of(row),
    )


def patch_connection(
    session: WriteSession, box: SecretBox, name: str, body: ConnectionPatch, if_match: str | None
) -> ConnectionRow:
    """Change the settings and secrets that `body` names."""
    row = _lock_connection(session, name)
    check_if_match(if_match, row)
    merged: dict[str, Any] = {**row.settings, **body.settings}
    settings = _valid_settings(
        CONNECTIONS[row.kind], {key: value for key, value in merged.items() if value is not None}
    )
    _change(session, box, row, settings, body.secrets)
    return row


def remove_connection(session: WriteSession, name: str, if_match: str | None) -> None:
    """Delete a connection that no subscription uses, and that is no node of another connection."""
    row = _lock_connection(session, name)
    check_if_match(if_match, row)
    users = repository.list_subscriptions_using(session, row)
    if users:
        names = ", ".join(f"'{user.name}'" for user in users)
        raise ConnectionInUse(f"The connection '{name}' is used by {names}.")
    wholes = repository.list_connections_with_node(session, row)
    if wholes:
        names = ", ".join(f"'{whole.name}'" for whole in wholes)
        raise ConnectionInUse(
            f"The connection '{name}' is a node of {names}.", "Delete the connections of which it is a node first."
        )
    session.delete(row)
    record_event(session, kind="connection_deleted", detail=f"The connection '{name}' was deleted.", subject=name)


def set_ddl_capture(session: WriteSession, name: str, *, installed: bool) -> None:
    """Record who had the DDL capture installed in the source, or removed."""
    kind, done = ("ddl_capture_installed", "is installed in") if installed else ("ddl_capture_removed", "is not in")
    record_event(
        session, kind=kind, detail=f"The DDL capture {done} the source of the connection '{name}'.", subject=name
    )


def set_change_triggers(session: WriteSession, name: str, *, installed: bool) -> None:
    """Record who had triggers installed in the source, or removed."""
    kind, done = (
        ("change_triggers_installed", "are installed in")
        if installed
        else ("change_triggers_removed", "were removed from")
    )
    detail = f"Triggers that record changes {done} the source of the connection '{name}'."
    record_event(session, kind=kind, detail=detail, subject=name)


def with_subscriptions(session: ReadSession, name: str, detail: str) -> str:
    """The text with the names of subscriptions in place of those of their readers."""
    row = require_connection(session, name)
    for user in repository.list_subscriptions_using(session, row):
        detail = detail.replace(user.slot, f"the subscription '{user.name}'")
    return detail


def connection_with_secrets(session: ReadSession, row: ConnectionRow, box: SecretBox) -> dict[str, Any]:
    """The connection with its secrets in clear, for the engine; that of several nodes with their settings and passwords. Never stored,
    never logged.

    Raises:
        SecretsUnreadable: the key that sealed them is missing.
    """
    secrets = box.open(row.secrets_sealed)
    document = {"name": row.name, "kind": row.kind, "settings": row.settings, "secrets": secrets}
    return resolved(session, box, document)


def proposed_connection(session: ReadSession, box: SecretBox, name: str, body: ConnectionPut) -> dict[str, Any]:
    """Like `connection_with_secrets`, for the result of a PUT of this body.

    Raises:
        ConnectionKindFixed, NodesFixed, InvalidRequest, SecretsUnreadable: the PUT would be refused.
    """
    return resolved(session, box, _proposed(session, box, name, body))


def _proposed(session: ReadSession, box: SecretBox, name: str, body: ConnectionPut) -> dict[str, Any]:
    """What a PUT of this body would store, with the secrets in clear. Raises as `proposed_connection`."""
    kind = _kind(body.kind)
    settings = _valid_settings(kind, body.settings)
    row = repository.find_connection(session, name)
    if row is not None and row.kind != kind.name:
        raise ConnectionKindFixed(f"'{name}' is of the kind {row.kind}, not {kind.name}.")
    refuse_unfit_nodes(kind, settings, lambda node: repository.find_connection(session, node))
    if row is not None:
        refuse_moved_nodes(session, row, settings)
    before = {} if row is None else _readable_secrets(row, box, body.secrets)
    return {
        "name": name,
        "kind": kind.name,
        "settings": settings,
        "secrets": _merged_secrets(kind, before, body.secrets),
    }


def _lock_connection(session: WriteSession, name: str) -> ConnectionRow:
    row = repository.lock_connection(session, name)
    return row if row is not None else require_connection(session, name)


def _create(
    session: WriteSession,
    box: SecretBox,
    name: str,
    kind: ConnectionKind,
    settings: dict[str, SettingValue],
    given: Mapping[str, SecretStr | None],
) -> ConnectionRow:
    secrets = _merged_secrets(kind, {}, given)
    refuse_unfit_nodes(kind, settings, lambda node: repository.lock_connection(session, node))
    now = session.now()
    row = ConnectionRow(
        name=name,
        kind=kind.name,
        settings=settings,
        secret_names=sorted(secrets),
        secrets_sealed=box.seal(secrets) if secrets else None,
        stamp=new_stamp(),
        created_at=now,
        updated_at=now,
    )
    session.add(row)
    session.flush()
    record_event(session, kind="connection_created", detail=f"The connection '{name}' was created.", subject=name)
    return row


def _change(
    session: WriteSession,
    box: SecretBox,
    row: ConnectionRow,
    settings: dict[str, SettingValue],
    given: Mapping[str, SecretStr | None],
) -> None:
    kind = CONNECTIONS[row.kind]
    before = _readable_secrets(row, box, given)
    secrets = _merged_secrets(kind, before, given)
    if settings == row.settings and secrets == before:
        return
    refuse_unfit_nodes(kind, settings, lambda node: repository.lock_connection(session, node))
    refuse_moved_nodes(session, row, settings)
    added = nodes_in(settings).keys() - nodes_in(row.settings).keys()
    row.settings = settings
    if secrets != before or set(secrets) != set(row.secret_names):
        row.secrets_sealed = box.seal(secrets) if secrets else None
        row.secret_names = sorted(secrets)
    row.revision += 1
    row.updated_at = session.now()
    session.add(row)
    for user in repository.list_subscriptions_using(session, row):
        if added:
            _record_added_nodes(session, user.name, row.name, sorted(added))
    for user in repository.list_subscriptions_using(session, row, *repository.list_connections_with_node(session, row)):
        enqueue(session, user.name, "assign", {})
    record_event(
        session, kind="connection_changed", detail=f"The connection '{row.name}' was changed.", subject=row.name
    )


def _record_added_nodes(session: WriteSession, subscription: str, connection: str, nodes: list[str]) -> None:
    record_event(
        session,
        kind="nodes_added",
        severity="warning",
        subscription=subscription,
        subject=connection,
        detail=f"The source '{connection}' of '{subscription}' has more nodes: {', '.join(nodes)}. Rows that they have already are not"
        " on the target.",
        remedy=f"POST /subscriptions/{subscription}/reloads copies all tables, with the rows of the new nodes.",
    )


def _readable_secrets(row: ConnectionRow, box: SecretBox, given: Mapping[str, SecretStr | None]) -> dict[str, str]:
    """The stored secrets; none if no key opens them but the request sets all of them, which repairs the connection."""
    try:
        return box.open(row.secrets_sealed)
    except SecretsUnreadable:
        if set(row.secret_names) <= set(given):
            return {}
        raise


def _kind(name: str) -> ConnectionKind:
    kind = CONNECTIONS.get(name)
    if kind is None:
        raise InvalidRequest.at(
            "/kind", f"'{name}' is not a kind of connection; there are {', '.join(sorted(CONNECTIONS))}."
        )
    return kind


def _valid_settings(kind: ConnectionKind, given: Mapping[str, JsonValue]) -> dict[str, SettingValue]:
    try:
        parsed = kind.settings.model_validate(dict(given))
    except ValidationError as error:
        found = field_errors(error.errors(include_input=False, include_url=False), ("settings",))
        allowed = ", ".join(kind.settings.model_fields)
        raise InvalidRequest(
            f"The settings do not fit the kind {kind.name}.",
            f"Correct the parts named in errors; settings of this kind are: {allowed}.",
            errors=found,
        ) from None
    return parsed.model_dump(exclude_none=True)


def _merged_secrets(
    kind: ConnectionKind, before: Mapping[str, str], given: Mapping[str, SecretStr | None]
) -> dict[str, str]:
    unknown = sorted(set(given) - kind.secrets)
    if unknown:
        takes = ", ".join(sorted(kind.secrets)) or "none"
        raise InvalidRequest(
            f"A connection of the kind {kind.name} takes these secrets: {takes}.",
            errors=[
                FieldError(pointer=f"/secrets/{name}", detail="No secret of this name exists here.") for name in unknown
            ],
        )
    merged = {name: value for name, value in before.items() if name not in given}
    merged.update({name: value.get_secret_value() for name, value in given.items() if value is not None})
    return merged
