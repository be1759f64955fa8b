"""PostgreSQL captured by queries, as a `model.source.Source`."""

from __future__ import annotations

from dataclasses import replace

from engine.model.subscription import ConnectionSpec
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.splits import ReadRules
from engine.sources.postgres_queries.compared import Compared
from engine.sources.postgres_queries.database import PostgresDatabase
from engine.sources.query_diff.given import given_by
from engine.sources.query_diff.source import QueryDiffSource


def open_source(spec: ConnectionSpec) -> QueryDiffSource:
    """With the settings of `PostgresSource`; its user needs SELECT only."""
    given = given_by(spec)
    rules = ReadRules(sessions=given.sessions)
    if given.manners.statement_s is not None:
        rules = replace(rules, timeout_ms=given.manners.statement_s * 1000)
    compared = Compared(given.tables, given.method.value, in_steps=given.manners.snapshot_s is not None)
    return QueryDiffSource(PostgresDatabase(Connector(spec), compared, rules), spec)
