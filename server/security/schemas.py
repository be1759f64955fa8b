"""Bodies of the token endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.config import JsonDict

from server.security.principal import Role

MOST_SETTINGS = 100
"""Most settings of a token. Not measured: the endpoint has some seventy parameters."""
_MOST_CHARACTERS = 1000
"""Longest value of a setting: that of a position in a query request."""
SettingName = Annotated[str, StringConstraints(max_length=200, pattern=r"^[A-Za-z_][A-Za-z0-9_.$]*$")]
SettingValue = Annotated[str, StringConstraints(max_length=_MOST_CHARACTERS)]
_EXAMPLE: JsonDict = {"penstock.freshness": "latest", "penstock.timeout_ms": "2000"}


class TokenCreate(BaseModel):
    """A token to create."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"name": "grafana", "role": "viewer", "settings": _EXAMPLE}]}
    )

    name: str = Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    role: Role
    settings: dict[SettingName, SettingValue] = Field(
        default_factory=dict,
        max_length=MOST_SETTINGS,
        description="Run-time parameters with which its sessions at SQL endpoints begin: what SET accepts, as text.",
    )


class TokenPatch(BaseModel):
    """Changes to a token."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"settings": _EXAMPLE}]})

    settings: dict[SettingName, SettingValue | None] = Field(
        default_factory=dict,
        max_length=MOST_SETTINGS,
        description="Run-time parameters with which its sessions at SQL endpoints begin. One that is left out stays as it is; null"
        " removes it, so that sessions begin with the endpoint's default.",
    )


class TokenView(BaseModel):
    """A token without its text."""

    id: str
    name: str
    role: Role
    settings: dict[str, str] = Field(
        description="Run-time parameters with which its sessions at SQL endpoints begin; the endpoint's defaults are left out."
    )
    created_at: datetime


class CallerView(BaseModel):
    """The token of a request."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "grafana", "role": "viewer"}]})

    name: str = Field(description="The token's name; `anybody` if the server requires no token.")
    role: Role


class TokenCreated(TokenView):
    """A new token; `token` is shown only once."""

    token: str
