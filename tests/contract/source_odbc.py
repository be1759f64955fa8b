"""PostgreSQL read by its driver of ODBC as the source under contract, only queried."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from engine.model.source import Source
from engine.model.subscription import FOLDER, CaptureSpec, ConnectionSpec
from engine.sources.odbc_queries.source import open_source
from tests.contract.source_material import Can
from tests.contract.source_postgres import PostgresOrigin, QueriesOrigin, postgres
from tests.fixtures.odbc import POSTGRES_DRIVER, needs_driver, postgres_options


class OdbcPostgresOrigin(QueriesOrigin):
    """Origin over one database."""

    CAN = frozenset({Can.SELECT_COLUMNS, Can.WRITE_AT_ONCE, Can.SNAPSHOT_ALONE, Can.BEGIN_ANYWHERE})

    def _source(self, spec: ConnectionSpec) -> Source:
        settings: dict[str, Any] = {"driver": POSTGRES_DRIVER, "options": postgres_options(self._database)}
        capture = CaptureSpec("query_diff", {"every_seconds": 3600, FOLDER: str(self._folder / self.slot)})
        return open_source(ConnectionSpec(spec.name, "odbc", settings, {}, capture))


def odbc(version: int) -> Callable[[Callable[[str], Any], ExitStack, bool], PostgresOrigin]:
    """A factory, as `postgres`. Skips where the driver is not installed."""
    make = postgres(version, OdbcPostgresOrigin)

    def checked(fixture: Callable[[str], Any], stack: ExitStack, own: bool) -> PostgresOrigin:
        needs_driver(POSTGRES_DRIVER)
        return make(fixture, stack, own)

    return checked
