"""Queries as a way to capture SQLite: their settings in a subscription."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from engine.kinds import Imported, SourceKind
from engine.sources.query_diff.declaration import QueryDiffCapture
from engine.sources.sqlite.declaration import SQLITE_CONNECTION
from engine.sources.sqlite_queries.terms import SQLITE_QUERIES_TERMS


class SqliteQueriesCapture(QueryDiffCapture):
    """How changes are found."""

    words: ClassVar[str] = (
        "Queries read the tables again and again, and compare them with what they had before. The file is opened for reading only, and"
        " nothing is written to it. Each cycle reads every table as a whole, as it was at one moment, and hashes its rows in Penstock;"
        " of tables with a stamp in `tables` most cycles read the changed rows only. The"
        " target shows the file at these moments only: rows that were changed several times in between show their last change. While a"
        " cycle reads, a write-ahead log keeps what is committed and grows; a file in rollback-journal mode is copied first, and writers"
        " wait for as long as that takes. After ALTER TABLE a table is copied again. Not possible: tables without a primary key or a unique"
        " index over columns that are NOT NULL, virtual tables, row filters. Choose triggers where Penstock may write to the file."
    )

    table_options: ClassVar[frozenset[str]] = frozenset({"flag_column"})
    kind: Literal["query_diff"] = Field(default="query_diff", description=words)
    method: Literal["incremental"] = Field(
        default="incremental",
        title="How changes are found",
        description="`incremental`: all rows are read, and hashed by Penstock.",
    )


SQLITE_QUERIES = SourceKind(
    SQLITE_CONNECTION,
    SqliteQueriesCapture,
    SQLITE_QUERIES_TERMS,
    Imported("engine.sources.sqlite_queries.source:open_source"),
    Imported("engine.sources.query_diff.kernels:warm"),
    preloaded=("engine.sources.sqlite_queries.source", "engine.sources.query_diff.kernels"),
)
