"""MariaDB captured by queries, as a `model.source.Source`."""

from __future__ import annotations

from engine.model.subscription import ConnectionSpec
from engine.sources.mariadb import lines
from engine.sources.mariadb.connect import Connector
from engine.sources.mariadb_queries.compared import Compared
from engine.sources.mariadb_queries.database import MariaDbDatabase
from engine.sources.query_diff import kernels
from engine.sources.query_diff.given import given_by
from engine.sources.query_diff.source import QueryDiffSource


def open_source(spec: ConnectionSpec) -> QueryDiffSource:
    """With the settings of `MariaDbTriggerSource`; its user needs SELECT only."""
    given = given_by(spec)
    compared = Compared(given.tables, given.method.value)
    return QueryDiffSource(MariaDbDatabase(Connector(spec), given.manners.statement_s, compared), spec)


def warm() -> None:
    """Compile or load the kernels of this kind of source."""
    kernels.warm()
    lines.warm()
