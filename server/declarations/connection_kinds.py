"""The catalog of connection kinds: the settings and secrets of each, and what it can serve as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Text = Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=r"^[^\x00]*$")]
Size = Annotated[str, StringConstraints(max_length=32, pattern=r"^[0-9]+(\.[0-9]+)? ?([KMGT]i?B|%)$")]


class KindSettings(BaseModel):
    """Base of the settings of one kind; unknown names are refused."""

    model_config = ConfigDict(extra="forbid")


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


class DuckDbSettings(KindSettings):
    """A DuckDB file on the engine's machine."""

    path: Text = Field(
        description="The file; created if missing. Only the engine may open it. A relative path is relative to the engine's data folder"
        " (`PENSTOCK_HOME`); a check of the connection as a target shows the absolute path."
    )
    memory_limit: Size | None = Field(
        default=None,
        description="Memory limit of DuckDB, such as `2GiB`; by default the engine's `PENSTOCK_DUCKDB_MEMORY_MB`.",
    )
    threads: int | None = Field(default=None, ge=1, le=1024)
    spill_limit: Size | None = Field(default=None, description="Disk space for intermediate results, such as `10GiB`.")
    checkpoint_threshold: Size | None = Field(
        default=None, description="Size of the write-ahead file that starts a checkpoint."
    )


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of connection."""

    name: str
    title: str
    settings: type[KindSettings]
    labels: Mapping[str, str]
    """What forms call those settings and secrets whose names do not say it."""
    secrets: frozenset[str]
    target: bool
    captures: tuple[str, ...] = ()
    """How its changes can be read as a source; the first one is usual."""
    embedded: bool = False
    """The engine opens the database itself, and makes it where it is missing; other programs query it through Penstock."""
    keeps_transactions: bool = False
    """As a target it supports the apply modes `grouped` and `transactional`."""
    has_sequences: bool = False
    """As a target its columns can have sequences."""
    takes_existing: bool = False
    """As a target it supports `into_existing`."""
    ignores_case: bool = False
    """Table names that differ only in the case of ASCII letters are the same name."""
    own_schemas: frozenset[str] = frozenset()
    """Schemas reserved for Penstock or the database: no table is replicated into them."""

    @property
    def source(self) -> bool:
        return bool(self.captures)

    def fold(self, name: str) -> str:
        """The folded form of a name; equal for names that the database does not distinguish."""
        return name.translate(_LOWER) if self.ignores_case else name


_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "postgres",
            "PostgreSQL",
            PostgresSettings,
            {
                "sslmode": "Encryption",
                "sslrootcert": "Certificates to trust",
                "query_user": "Role of queries",
                "query_password": "Password of the role of queries",
            },
            frozenset({"password", "query_password"}),
            target=True,
            captures=("postgres_log",),
            keeps_transactions=True,
            takes_existing=True,
            has_sequences=True,
            own_schemas=frozenset({"penstock", "information_schema", "pg_catalog", "pg_toast"}),
        ),
        Kind(
            "duckdb",
            "DuckDB",
            DuckDbSettings,
            {
                "path": "File",
                "memory_limit": "Memory at most",
                "threads": "Threads at most",
                "spill_limit": "Disk space for intermediate results",
                "checkpoint_threshold": "Checkpoint from",
            },
            frozenset(),
            target=True,
            embedded=True,
            ignores_case=True,
            own_schemas=frozenset({"penstock", "information_schema", "pg_catalog"}),
        ),
    )
}
