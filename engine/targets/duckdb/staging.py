"""A connection that finds staged rows under a name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

_STAGED = "__penstock_staged"


class _Rows:
    """What stands behind the name: other rows, of another form, each time. DuckDB asks for the form whenever it plans a statement."""

    def __init__(self) -> None:
        self.rows: Any = pa.table({"nothing": pa.array([], pa.int64())})

    def __arrow_c_schema__(self) -> object:
        return self.rows.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.rows.__arrow_c_stream__(requested_schema)


class StagingConnection:
    """A connection of its own. To give rows a name anew for each statement would cost as much as the statement itself."""

    def __init__(self, connection: Any, committing: threading.Lock | None = None) -> None:
        """`committing`: held while a transaction of this connection is committed."""
        self._connection = connection
        self._committing = committing or threading.Lock()
        self._nothing, self._staged = _Rows().rows, _Rows()
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
        """Let statements on this connection, and only on it, see Arrow rows under the name that this yields."""
        self._staged.rows = rows
        try:
            yield _STAGED
        finally:
            self._staged.rows = self._nothing

    def tables_of(self, query: str) -> set[str]:
        """The tables that a query reads, through views as well, as it names them: quoted where need be. Runs nothing.

        Raises duckdb.Error where the query cannot be read.
        """
        cursor = self._connection.cursor()
        try:
            return set(cursor.get_table_names(query, qualified=True))
        finally:
            cursor.close()

    def interrupt(self) -> None:
        """Stop what runs here; it fails with an interrupt in its own thread. From any thread."""
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()
