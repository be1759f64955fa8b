"""Queries as a way to capture MariaDB: their settings in a subscription."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from engine.kinds import Imported, SourceKind
from engine.sources.mariadb.declaration import MARIADB_CONNECTION
from engine.sources.mariadb_queries.terms import MARIADB_QUERIES_TERMS
from engine.sources.query_diff.declaration import LimitsStatements


class MariaDbQueriesCapture(LimitsStatements):
    """How changes are found."""

    words: ClassVar[str] = (
        "Queries read the tables again and again, and compare them with what they had before. Nothing is created on the source, and"
        " SELECT is the only right that is needed; a replica does, too. Each cycle reads every table as a whole, in one snapshot and by"
        " one session, unless its changes are found by stamps. The target shows the states of these snapshots only: rows that were"
        " changed several times in between show their last change. While a table is read, ALTER TABLE and TRUNCATE wait, and other"
        " statements on the table wait with them. After ALTER TABLE a table is copied again. Not possible: tables without a primary key"
        " or a unique key without NULL, partitioned tables, other engines than InnoDB, row filters. Choose triggers where they can be"
        " had."
    )

    table_options: ClassVar[frozenset[str]] = frozenset({"flag_column"})

    kind: Literal["query_diff"] = Field(default="query_diff", description=words)


MARIADB_QUERIES = SourceKind(
    MARIADB_CONNECTION,
    MariaDbQueriesCapture,
    MARIADB_QUERIES_TERMS,
    Imported("engine.sources.mariadb_queries.source:open_source"),
    Imported("engine.sources.mariadb_queries.source:warm"),
    preloaded=("engine.sources.mariadb_queries.source", "engine.sources.query_diff.kernels"),
)
