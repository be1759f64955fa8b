"""A connection on which staged rows are visible under a name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.platform.relation_of_rows import RelationOfRows

_STAGED = "__penstock_staged"


class StagingConnection:
    """A separate connection."""

    def __init__(self, connection: Any, committing: threading.Lock | None = None) -> None:
        """`committing`: lock held while a transaction of this connection is committed."""
        self._connection = connection
        self._committing = committing or threading.Lock()
        self._staged = RelationOfRows()
        connection.register(_STAGED, self._staged)

    def execute(self, sql: str, parameters: object = None) -> Any:
        return self._connection.execute(sql, parameters)

    def commit(self) -> None:
        with self._committing:
            self._connection.execute("COMMIT")

    def read(self, sql: str) -> Any:
        """A query's rows as a pyarrow.Table."""
        return self._connection.sql(sql).to_arrow_table()

    @contextmanager
    def staged(self, rows: Any) -> Iterator[str]:
        """Make Arrow rows visible to statements on this connection only, under the name that this yields."""
        self._staged.rows = rows
        try:
            yield _STAGED
        finally:
            self._staged.clear()

    def tables_of(self, query: str) -> set[str]:
        """The tables that a query reads, also through views, as it names them (quoted if necessary). Executes nothing.

        Raises duckdb.Error if the query cannot be parsed.
        """
        cursor = self._connection.cursor()
        try:
            return set(cursor.get_table_names(query, qualified=True))
        finally:
            cursor.close()

    def interrupt(self) -> None:
        """Interrupt the running statement, which fails in its own thread. Callable from any thread."""
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()
