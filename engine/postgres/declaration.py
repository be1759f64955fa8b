"""PostgreSQL as a kind of connection: the settings and secrets of one, and what it can do as a target."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.kinds import ConnectionKind, KindSettings, SqlDialect, Text
from engine.model.masks import MASK_KEY


class PostgresSettings(KindSettings):
    """A PostgreSQL database. Host and files are as seen from the engine's machine."""

    host: Text = Field(description="Name or address, or the folder of a Unix socket.")
    port: int = Field(default=5432, ge=1, le=65535)
    database: Text
    user: Text
    sslmode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] = "prefer"
    sslrootcert: Text | None = Field(default=None, description="File with trusted certificates.")
    query_user: Text | None = Field(
        default=None,
        description="For a target of one subscription: the role that runs its queries, with the secret `query_password`. Without it"
        " Penstock creates a role for each subscription, for which the user needs CREATEROLE.",
    )


POSTGRES_CONNECTION = ConnectionKind(
    "postgres",
    "PostgreSQL",
    PostgresSettings,
    {
        "sslmode": "Encryption",
        "sslrootcert": "Certificates to trust",
        "query_user": "Role of queries",
        "query_password": "Password of the role of queries",
        MASK_KEY: "Key of hashed columns",
    },
    frozenset({"password", "query_password", MASK_KEY}),
    keeps_transactions=True,
    stages_changes=True,
    takes_existing=True,
    has_sequences=True,
    dialect=SqlDialect("postgres", ("public",)),
    own_schemas=frozenset({"penstock", "information_schema", "pg_catalog", "pg_toast"}),
)
