"""A database read by a driver of ODBC captured by queries, as a `model.source.Source`."""

from __future__ import annotations

from engine.model.subscription import ConnectionSpec
from engine.sources.arrow_rows.place import DriverPlace, call_of
from engine.sources.duckdb.database import ReadDatabase
from engine.sources.odbc_queries.declaration import DRIVER
from engine.sources.odbc_queries.terms import ODBC_QUERIES_TERMS
from engine.sources.query_diff.source import QueryDiffSource


def open_source(spec: ConnectionSpec) -> QueryDiffSource:
    """With the settings of the connection."""
    return QueryDiffSource(ReadDatabase(DriverPlace(spec, call_of(spec, DRIVER)), ODBC_QUERIES_TERMS), spec)
