"""Bodies of the SQL endpoint's requests."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

from engine.link.queries import RanOn, SqlClientPart
from server.freshness.schemas import LeftOutTable, Receipt, Staleness
from server.queries.schemas import QueryRequest
from server.security.principal import Role


class LoginRequest(BaseModel):
    """Who logs in: a user by the name of a token, or the holder of a token by its SHA-256."""

    model_config = ConfigDict(extra="forbid")

    user: str | None = Field(default=None, max_length=63)
    digest: str | None = Field(default=None, pattern="^[0-9a-f]{64}$", repr=False)

    @model_validator(mode="after")
    def _one_of_both(self) -> LoginRequest:
        if (self.user is None) == (self.digest is None):
            raise ValueError("send either user or digest")
        return self


class Login(BaseModel):
    """A token that may log in."""

    name: str
    role: Role
    scram: str | None = Field(
        repr=False,
        description="SCRAM-SHA-256 verifier. Null: no password is needed, since the server runs without authentication.",
    )
    settings: dict[str, str] = Field(description="Run-time parameters with which the session begins.")


class StatementRequest(QueryRequest):
    """A query whose rows the engine passes to its own SQL endpoint."""

    subscription: str
    client: SqlClientPart | None = None
    describe: bool = Field(default=False, description="Return no rows: the endpoint needs only the columns.")
    pipe: bool = Field(
        default=False, description="The endpoint can read the rows from a pipe of the process that computes them."
    )
    endpoint: str = Field(pattern="^[0-9a-f]{32}$", description="The endpoint that receives the rows.")


class StatementAnswer(BaseModel):
    """A statement that runs; its rows are on their way to the endpoint."""

    request_id: str = Field(description="The id under which the endpoint receives the rows.")
    position: str
    ran_on: RanOn
    receipt: Receipt | None
    stale: Staleness | None
    left_out: list[LeftOutTable]
