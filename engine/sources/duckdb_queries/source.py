"""A DuckDB file captured by queries, as a `model.source.Source`."""

from __future__ import annotations

from engine.model.subscription import ConnectionSpec
from engine.sources.duckdb.database import ReadDatabase
from engine.sources.duckdb_queries.place import DuckDbFile
from engine.sources.duckdb_queries.terms import DUCKDB_QUERIES_TERMS
from engine.sources.query_diff.source import QueryDiffSource


def open_source(spec: ConnectionSpec) -> QueryDiffSource:
    """With the settings of the connection; the file is opened for reading only."""
    return QueryDiffSource(ReadDatabase(DuckDbFile(spec), DUCKDB_QUERIES_TERMS), spec)
