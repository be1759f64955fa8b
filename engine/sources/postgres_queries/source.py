"""PostgreSQL captured by queries, as a `model.source.Source`."""

from __future__ import annotations

from engine.model.subscription import ConnectionSpec
from engine.sources.postgres.connect import Connector
from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.query_diff.given import given_by
from engine.sources.query_diff.source import QueryDiffSource


def open_source(spec: ConnectionSpec) -> QueryDiffSource:
    """With the settings of `PostgresSource`; its user needs SELECT only."""
    return QueryDiffSource(PostgresDatabase(Connector(spec), given_by(spec).sessions), spec)
