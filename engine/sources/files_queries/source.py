"""A folder of files captured by queries, as a `model.source.Source`."""

from __future__ import annotations

from engine.model.subscription import ConnectionSpec
from engine.sources.duckdb.database import ReadDatabase
from engine.sources.files_queries.place import FilesFolder
from engine.sources.files_queries.terms import FILES_QUERIES_TERMS
from engine.sources.query_diff.source import QueryDiffSource


def open_source(spec: ConnectionSpec) -> QueryDiffSource:
    """With the settings of the connection; files are opened for reading only."""
    return QueryDiffSource(ReadDatabase(FilesFolder(spec), FILES_QUERIES_TERMS), spec)
