"""Queries as a way to capture DuckDB files: their settings in a subscription."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from engine.duckdb.declaration import DUCKDB_CONNECTION
from engine.kinds import Imported, SourceKind
from engine.sources.duckdb_queries.terms import DUCKDB_QUERIES_TERMS
from engine.sources.query_diff.declaration import QueryDiffCapture


class DuckDbQueriesCapture(QueryDiffCapture):
    """How changes are found."""

    words: ClassVar[str] = (
        "Queries read the tables again and again, and compare them with what they had before. Nothing is written to the file. For each"
        " cycle it is locked against writers while it is copied, and the copy is read: every table as a whole, as it was at one moment."
        " A program that has the file open for writing keeps Penstock out until it closes it. The target shows the file at the moments of"
        " cycles only: rows that were changed several times in between show their last change. Tables need a primary key, a unique"
        " constraint over columns that are NOT NULL, or a key that the subscription declares. After a change of its structure a table is"
        " copied again. Not possible: lists, structs, maps and unions, row filters."
    )

    table_options: ClassVar[frozenset[str]] = frozenset({"key"})
    unstamped: ClassVar[str | None] = (
        "nothing in a DuckDB file shows that a table was made again, with changed rows that have old stamps, and no trigger can set stamps"
    )
    kind: Literal["query_diff"] = Field(default="query_diff", description=words)
    method: Literal["incremental"] = Field(
        default="incremental",
        title="How changes are found",
        description="`incremental`: all rows are read, and hashed by Penstock.",
    )


DUCKDB_QUERIES = SourceKind(
    DUCKDB_CONNECTION,
    DuckDbQueriesCapture,
    DUCKDB_QUERIES_TERMS,
    Imported("engine.sources.duckdb_queries.source:open_source"),
    Imported("engine.sources.query_diff.kernels:warm"),
    preloaded=("engine.sources.duckdb_queries.source", "engine.sources.query_diff.kernels"),
)
