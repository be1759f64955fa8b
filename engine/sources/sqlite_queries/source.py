"""A SQLite file captured by queries, as a `model.source.Source`."""

from __future__ import annotations

from engine.model.subscription import ConnectionSpec
from engine.sources.query_diff.given import given_by
from engine.sources.query_diff.source import QueryDiffSource
from engine.sources.sqlite.connect import Connector
from engine.sources.sqlite_queries.compared import Compared
from engine.sources.sqlite_queries.database import SqliteDatabase


def open_source(spec: ConnectionSpec) -> QueryDiffSource:
    """With the settings of `SqliteSource`; the file is opened for reading only."""
    compared = Compared(given_by(spec).tables)
    return QueryDiffSource(SqliteDatabase(Connector(spec, read_only=True), compared), spec)
