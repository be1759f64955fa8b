"""Alert channels: validation and changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue, SecretStr, ValidationError
from sqlmodel import col, func, select

from server.alerts.schemas import SETTINGS, AlertChannelPlan, AlertChannelPut, AlertKind, http_address
from server.db.models.alert import AlertChannelRow
from server.db.session import ReadSession, WriteSession
from server.error_handlers import field_errors
from server.errors import Conflict, InvalidRequest, NotFound
from server.etags import check_if_match, etag_of
from server.events.service import record_event
from server.plans import FieldChange, field_changes, result_of
from server.security.secret_box import SecretBox, SecretsUnreadable

MOST_CHANNELS = 100
"""Each may occupy a thread while its receiver does not answer."""
_KEY_LEAST = 16
_SECRETS: Mapping[AlertKind, str] = {
    AlertKind.WEBHOOK: "signing_key",
    AlertKind.SLACK: "url",
    AlertKind.EMAIL: "password",
}
"""The one secret of each kind."""


class AlertKindFixed(Conflict):
    code = "alert_kind_fixed"
    title = "The kind of an alert channel cannot be changed"
    default_remedy = "Make an alert channel of another name."


class TooManyAlertChannels(Conflict):
    code = "too_many_alert_channels"
    title = "There are too many alert channels"
    default_remedy = "Delete one that is not needed."


def find_channel(session: ReadSession, name: str) -> AlertChannelRow | None:
    return session.exec(select(AlertChannelRow).where(AlertChannelRow.name == name)).first()


def require_channel(session: ReadSession, name: str) -> AlertChannelRow:
    """The alert channel of this name.

    Raises:
        NotFound: there is none.
    """
    row = find_channel(session, name)
    if row is None:
        raise NotFound(f"There is no alert channel named '{name}'.", "GET /api/v1/alert-channels lists them.")
    return row


def lock_channel(session: WriteSession, name: str) -> AlertChannelRow | None:
    """The channel, locked until the end of the transaction."""
    return session.exec(select(AlertChannelRow).where(AlertChannelRow.name == name).with_for_update()).first()


def put_channel(
    session: WriteSession, box: SecretBox, name: str, body: AlertChannelPut, if_match: str | None = None
) -> tuple[AlertChannelRow, bool]:
    """Create or replace the channel; secrets that `body` leaves out stay. Returns whether it is new.

    Raises:
        AlertKindFixed, TooManyAlertChannels, InvalidRequest, SecretsUnreadable, PreconditionFailed.
    """
    row = lock_channel(session, name)
    check_if_match(if_match, row)
    declared, stored = _proposed(session, box, row, name, body)
    created = row is None
    if row is None:
        now = session.now()
        row = AlertChannelRow(
            name=name, kind=body.kind.value, repeat_seconds=body.repeat_seconds, created_at=now, updated_at=now
        )
    before = row.model_dump()
    row.settings = declared.settings
    row.causes = declared.causes
    row.subscriptions = declared.subscriptions
    row.repeat_seconds = body.repeat_seconds
    if declared.secrets != stored or set(row.secret_names) != set(declared.secrets):
        row.secrets_sealed = box.seal(declared.secrets) if declared.secrets else None
        row.secret_names = sorted(declared.secrets)
    if created or row.model_dump() != before:
        row.updated_at = session.now()
        done = "created" if created else "changed"
        detail = f"The alert channel '{name}' was {done}."
        record_event(session, kind=f"alert_channel_{done}", detail=detail, subject=name)
    session.add(row)
    session.flush()
    return row, created


def plan_channel_put(session: ReadSession, box: SecretBox, name: str, body: AlertChannelPut) -> AlertChannelPlan:
    """What `put_channel` would do. Raises what it raises."""
    row = find_channel(session, name)
    declared, stored = _proposed(session, box, row, name, body)
    fields = field_changes(None if row is None else _fields(row, row.settings), _fields(declared, declared.settings))
    if row is not None:
        gone = sorted(row.settings.keys() - declared.settings.keys())
        fields += [FieldChange(field=f"settings.{one}", before=row.settings[one], after=None) for one in gone]
    names = declared.secrets.keys() | stored.keys() | set([] if row is None else row.secret_names)
    secrets = sorted(one for one in names if stored.get(one) != declared.secrets.get(one))
    return AlertChannelPlan(
        result=result_of(row is None, bool(fields or secrets)),
        fields=fields,
        secrets=secrets,
        etag=None if row is None else etag_of(row),
    )


@dataclass(frozen=True, slots=True)
class _Declared:
    """What a PUT declares, in the form in which it is stored."""

    settings: dict[str, Any]
    secrets: dict[str, str]
    causes: list[str]
    subscriptions: list[str]
    repeat_seconds: int


def _proposed(
    session: ReadSession, box: SecretBox, row: AlertChannelRow | None, name: str, body: AlertChannelPut
) -> tuple[_Declared, dict[str, str]]:
    """What the channel would be after a PUT, and its secrets before. Raises what `put_channel` raises."""
    if row is not None and row.kind != body.kind:
        raise AlertKindFixed(f"'{name}' is of the kind {row.kind}, not {body.kind.value}.")
    if row is None and session.exec(select(func.count(col(AlertChannelRow.id)))).one() >= MOST_CHANNELS:
        raise TooManyAlertChannels(f"There are {MOST_CHANNELS} alert channels.")
    settings = _valid_settings(body.kind, body.settings)
    stored = {} if row is None else _readable_secrets(row, box, body.secrets)
    declared = _Declared(
        settings,
        _merged_secrets(body.kind, stored, body.secrets),
        sorted({cause.value for cause in body.causes}),
        sorted(set(body.subscriptions)),
        body.repeat_seconds,
    )
    return declared, stored


def _fields(found: AlertChannelRow | _Declared, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{f"settings.{name}": settings[name] for name in sorted(settings)},
        "causes": found.causes,
        "subscriptions": found.subscriptions,
        "repeat_seconds": found.repeat_seconds,
    }


def remove_channel(session: WriteSession, name: str) -> None:
    """Delete the channel with its notices that are not delivered yet."""
    session.delete(require_channel(session, name))
    detail = f"The alert channel '{name}' was deleted."
    record_event(session, kind="alert_channel_deleted", detail=detail, subject=name)


def _readable_secrets(row: AlertChannelRow, box: SecretBox, given: Mapping[str, SecretStr | None]) -> dict[str, str]:
    """The stored secrets; none if no key opens them but the request sets all of them, which repairs the channel."""
    try:
        return box.open(row.secrets_sealed)
    except SecretsUnreadable:
        if set(row.secret_names) <= set(given):
            return {}
        raise


def _valid_settings(kind: AlertKind, given: Mapping[str, JsonValue]) -> dict[str, Any]:
    try:
        return SETTINGS[kind].model_validate(dict(given)).model_dump(mode="json", exclude_none=True)
    except ValidationError as error:
        allowed = ", ".join(SETTINGS[kind].model_fields) or "none"
        raise InvalidRequest(
            f"The settings do not fit the kind {kind.value}.",
            f"Correct the parts named in errors; settings of this kind are: {allowed}.",
            errors=field_errors(error.errors(include_input=False, include_url=False), ("settings",)),
        ) from None


def _merged_secrets(
    kind: AlertKind, before: Mapping[str, str], given: Mapping[str, SecretStr | None]
) -> dict[str, str]:
    only = _SECRETS[kind]
    unknown = sorted(set(given) - {only})
    if unknown:
        detail = f"An alert channel of the kind {kind.value} has one secret, {only}."
        raise InvalidRequest.at(f"/secrets/{unknown[0]}", detail)
    merged = dict(before)
    if only in given:
        value = given[only]
        merged = {} if value is None else {only: value.get_secret_value()}
    pointer = f"/secrets/{only}"
    if kind is not AlertKind.EMAIL and only not in merged:
        raise InvalidRequest.at(pointer, f"An alert channel of the kind {kind.value} needs the secret {only}.")
    if kind is AlertKind.WEBHOOK and len(merged[only]) < _KEY_LEAST:
        raise InvalidRequest.at(pointer, f"A signing key has at least {_KEY_LEAST} characters.")
    if kind is AlertKind.SLACK:
        try:
            http_address(merged[only])
        except ValueError as error:
            raise InvalidRequest.at(pointer, f"This is no address of a webhook: {error}.") from None
    return merged
