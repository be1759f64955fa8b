"""What a catalog shows: the database, its user, and the relations that the user may read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


class CatalogError(Exception):
    """A catalog query that cannot be answered, with PostgreSQL's SQLSTATE and a message for the author of the query."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message


@dataclass(frozen=True, slots=True)
class ColumnDescription:
    """A column. `type`: the name of its DuckDB type."""

    name: str
    type: str
    nullable: bool = True
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class RelationDescription:
    """A table or a view."""

    schema: str
    name: str
    columns: tuple[ColumnDescription, ...]
    key: tuple[str, ...] = ()
    """Names of the primary key's columns in key order; empty if there is none, or it is unknown."""
    view: bool = False
    definition: str | None = None
    """The query of a view, if known."""
    comment: str | None = None
    rows: int | None = None
    """Estimated number of rows, if known."""
    bytes: int | None = None
    """Size, if known."""

    def __post_init__(self) -> None:
        if missing := set(self.key) - {one.name for one in self.columns}:
            raise ValueError(
                f"the key of {self.schema}.{self.name} has columns that the relation does not have: {sorted(missing)}"
            )


@dataclass(frozen=True)
class Description:
    """Names must be unique: (schema, name) among relations, names among the columns of one."""

    database: str
    user: str
    relations: tuple[RelationDescription, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the session that differ from `settings.DEFAULTS`; names in lower case."""
    schema_comments: Mapping[str, str] = field(default_factory=dict)
    process: int = 0
    """Number of the session's process, for pg_backend_pid."""
