"""MariaDB as a kind of connection."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.kinds import ConnectionKind, KindSettings, Text
from engine.model.masks import MASK_KEY


class MariaDbSettings(KindSettings):
    """A MariaDB server. Host and files are as seen from the engine's machine."""

    host: Text = Field(description="Name or address, or the path of a Unix socket.")
    port: int = Field(default=3306, ge=1, le=65535)
    database: Text = Field(description="The database whose tables are listed.")
    user: Text
    tls: Literal["disable", "require", "verify-full"] = "disable"
    tls_ca: Text | None = Field(default=None, description="File with trusted certificates.")


MARIADB_CONNECTION = ConnectionKind(
    "mariadb",
    "MariaDB",
    MariaDbSettings,
    {"tls": "Encryption", "tls_ca": "Certificates to trust", MASK_KEY: "Key of hashed columns"},
    frozenset({"password", MASK_KEY}),
    own_schemas=frozenset({"penstock", "information_schema", "mysql", "performance_schema", "sys"}),
)
