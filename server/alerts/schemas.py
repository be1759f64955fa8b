"""Bodies of the endpoints of alert channels."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SecretStr,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from server.naming import Name
from server.plans import SecretsPlan


class AlertCause(StrEnum):
    """Causes of alerts."""

    FRESHNESS_GOAL_MISSED = "freshness_goal_missed"
    SLOT_RISK = "slot_risk"
    FAULT = "fault"
    VERIFICATION_FAILED = "verification_failed"
    FRESHNESS_BUDGET_FAST_BURN = "freshness_budget_fast_burn"
    FRESHNESS_BUDGET_SLOW_BURN = "freshness_budget_slow_burn"
    FRESHNESS_BUDGET_SPENT = "freshness_budget_spent"


class AlertKind(StrEnum):
    """How a channel receives notices."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    EMAIL = "email"


def http_address(address: str) -> str:
    """The address, if it is one of http or https without a user and a password.

    Raises:
        ValueError: it is not.
    """
    if not all(33 <= ord(letter) < 127 for letter in address):
        raise ValueError("the address contains blanks or letters that have to be percent-encoded")
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0:
        raise ValueError("the address begins with http:// or https:// and names a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the address contains no user and no password")
    return address


_Mailbox = Annotated[str, StringConstraints(pattern=r"^[!-?A-~]+@[!-?A-~]+$", max_length=254)]


class WebhookSettings(BaseModel):
    """A webhook. Its secret `signing_key` signs each request."""

    model_config = ConfigDict(extra="forbid")

    url: Annotated[str, Field(max_length=2048), AfterValidator(http_address)]


class SlackSettings(BaseModel):
    """An incoming webhook of Slack. Its address is the secret `url`."""

    model_config = ConfigDict(extra="forbid")


class EmailSettings(BaseModel):
    """A mail server. The secret `password` is for `user`."""

    model_config = ConfigDict(extra="forbid")

    host: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,253}$")]
    port: int = Field(default=587, ge=1, le=65535)
    security: Literal["starttls", "tls", "none"] = Field(
        default="starttls", description="`starttls` and `tls` verify the server's certificate."
    )
    user: Annotated[str, Field(min_length=1, max_length=254)] | None = None
    sender: _Mailbox
    recipients: list[_Mailbox] = Field(min_length=1, max_length=50)

    @model_validator(mode="after")
    def _password_is_encrypted(self) -> Self:
        if self.user is not None and self.security == "none":
            raise ValueError("a user needs the security starttls or tls, because its password is sent")
        return self


SETTINGS: dict[AlertKind, type[BaseModel]] = {
    AlertKind.WEBHOOK: WebhookSettings,
    AlertKind.SLACK: SlackSettings,
    AlertKind.EMAIL: EmailSettings,
}
_SETTINGS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Settings",
    "description": "By kind; unknown names are refused.",
    "anyOf": [kind.model_json_schema() for kind in SETTINGS.values()],
}
_Secret = Annotated[SecretStr, Field(min_length=1, max_length=4096)]
_WEBHOOK: dict[str, Any] = {
    "kind": "webhook",
    "settings": {"url": "https://ops.internal/penstock"},
    "causes": ["fault", "slot_risk"],
    "subscriptions": ["shop"],
    "repeat_seconds": 14400,
}


class AlertChannelPut(BaseModel):
    """A whole alert channel."""

    model_config = ConfigDict(
        extra="forbid",
        hide_input_in_errors=True,
        json_schema_extra={"examples": [{**_WEBHOOK, "secrets": {"signing_key": "at-least-16-characters"}}]},
    )

    kind: AlertKind
    settings: Annotated[dict[str, JsonValue], WithJsonSchema(_SETTINGS_SCHEMA)] = Field(default_factory=dict)
    secrets: dict[str, _Secret | None] = Field(
        default_factory=dict,
        max_length=10,
        description="Write-only: `signing_key` of a webhook, `url` of Slack, `password` of e-mail. A secret that is left out stays as it"
        " is; null removes it.",
    )
    causes: list[AlertCause] = Field(
        default_factory=list, max_length=100, description="Only these causes; empty: all of them."
    )
    subscriptions: list[Name] = Field(
        default_factory=list, max_length=1000, description="Only these subscriptions; empty: all of them."
    )
    repeat_seconds: int = Field(
        default=14_400, ge=60, le=2_592_000, description="While a cause lasts, its notice is repeated after this time."
    )


class AlertChannelView(BaseModel):
    """An alert channel, with the names of the secrets that are set but not their values."""

    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={
            "examples": [
                {
                    "name": "ops",
                    **_WEBHOOK,
                    "secrets_set": ["signing_key"],
                    "delivered_at": "2026-05-04T10:00:00Z",
                    "last_error": None,
                    "created_at": "2026-05-04T10:00:00Z",
                    "updated_at": "2026-05-04T10:00:00Z",
                }
            ]
        },
    )

    name: str
    kind: AlertKind
    settings: dict[str, Any]
    secrets_set: list[str] = Field(validation_alias="secret_names")
    causes: list[AlertCause]
    subscriptions: list[str]
    repeat_seconds: int
    delivered_at: datetime | None = Field(description="The time of the last notice that it accepted.")
    last_error: str | None = Field(description="Why the newest attempt failed; null if it succeeded.")
    created_at: datetime
    updated_at: datetime


class AlertChannelPlan(SecretsPlan):
    """What a PUT of this body would do now."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "result": "changed",
                    "fields": [{"field": "repeat_seconds", "before": 14400, "after": 3600}],
                    "secrets": ["signing_key"],
                    "etag": '"639c8f1d2a400-1777888800000000"',
                }
            ]
        }
    )

    etag: str | None = Field(
        description="The channel's current ETag; null if it does not exist. Send it as If-Match with the PUT, so that the plan still"
        " applies."
    )


class AlertTestView(BaseModel):
    """The result of a test notice."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"delivered": False, "detail": "The answer was 403."}]})

    delivered: bool
    detail: str
