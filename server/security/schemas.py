"""Bodies of the token endpoints."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from server.security.principal import Role


class TokenCreate(BaseModel):
    """A token to create."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"name": "grafana", "role": "viewer"}]})

    name: str = Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    role: Role


class TokenView(BaseModel):
    """A token without its text."""

    id: str
    name: str
    role: Role
    created_at: datetime


class CallerView(BaseModel):
    """The token of a request."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "grafana", "role": "viewer"}]})

    name: str = Field(description="The token's name; `anybody` if the server requires no token.")
    role: Role


class TokenCreated(TokenView):
    """A new token; `token` is shown only once."""

    token: str
