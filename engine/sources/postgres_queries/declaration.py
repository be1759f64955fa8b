"""Queries as a way to capture PostgreSQL: their settings in a subscription."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from engine.kinds import Imported, SourceKind, SourceQueries
from engine.postgres.declaration import POSTGRES_CONNECTION
from engine.sources.postgres_queries.terms import POSTGRES_QUERIES_TERMS
from engine.sources.query_diff.declaration import LimitsStatements


class PostgresQueriesCapture(LimitsStatements):
    """How changes are found."""

    words: ClassVar[str] = (
        "Queries read the tables again and again, and compare them with what they had before. Nothing is created on the source, and"
        " SELECT is the only right that is needed, except by the method outer_join. Each cycle reads every table in one snapshot, which"
        " costs the source a scan of it. The target shows the states of these snapshots only: rows that were changed several times in"
        " between show their last change. Views, and tables without a primary key or a unique index over columns that are NOT NULL,"
        " need a key in `tables`. Not possible: partitioned tables, origin none, tickets, DDL capture. Choose the log or triggers where"
        " they can be had."
    )

    table_options: ClassVar[frozenset[str]] = frozenset({"flag_column", "key", "stamps_below"})

    kind: Literal["query_diff"] = Field(default="query_diff", description=words)


POSTGRES_QUERIES = SourceKind(
    POSTGRES_CONNECTION,
    PostgresQueriesCapture,
    POSTGRES_QUERIES_TERMS,
    Imported("engine.sources.postgres_queries.source:open_source"),
    Imported("engine.sources.query_diff.kernels:warm"),
    preloaded=("engine.sources.postgres_queries.source", "engine.sources.query_diff.kernels"),
    queries=SourceQueries(
        Imported("engine.sources.postgres.queries:rows_of"), Imported("engine.sources.postgres.queries:run_query")
    ),
)
