"""A user's query: exactly one read, on a connection and a batch boundary of its own, bounded in time, rows and bytes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import duckdb
import pyarrow as pa

from engine.apply.duckdb.database import roll_back
from engine.apply.duckdb.errors import is_broken, is_out_of_memory
from engine.apply.duckdb.query_guard import refusal
from engine.apply.duckdb.records import DuckDbRecords
from engine.apply.query_rows import limited
from engine.model.identity import SubscriptionName
from engine.model.target import QueryAnswer, QueryLimits, QueryRefused

_ROWS_AT_ONCE = 512
_INTERRUPT_AGAIN_SECONDS = 0.05
MAX_SQL_CHARACTERS = 100_000
MAX_NESTING = 200
SEARCH_PATH = "main,public"
"""Where unqualified names are looked for; `public` because users come from PostgreSQL."""


class Deadline:
    """Interrupts what runs on a connection when its time is over, and goes on until the block is left.

    Once would not do: an interrupt that arrives between two statements is lost.
    """

    def __init__(self, connection: Any, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="query-deadline", daemon=True)
        self.passed = False

    def __enter__(self) -> Deadline:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        left = max(self._seconds, 0.0)
        while not self._done.wait(left):
            self.passed = True
            left = _INTERRUPT_AGAIN_SECONDS
            try:
                self._connection.interrupt()
            except duckdb.Error:  # closed
                return


@contextmanager
def run_query(
    connection: Any, catalog: str, sql: str, limits: QueryLimits, subscription: SubscriptionName
) -> Iterator[QueryAnswer]:
    """Run `sql` and say at which position it saw the target. The connection is used for this query only.

    Raises:
        QueryRefused: `query_not_a_read`, `query_invalid`, `query_timeout`, `query_too_large`, `query_unavailable`.
        duckdb.FatalException: the instance is broken.
    """
    _bounded(sql)
    with Deadline(connection, limits.timeout_s) as deadline:

        def refused(error: Exception) -> Exception:
            return _refused(error, deadline.passed, limits.timeout_s)

        try:
            statement = _single_read(connection, sql)
            _set_search_path(connection)
            connection.execute("BEGIN TRANSACTION READ ONLY")
            position = DuckDbRecords(connection, catalog).position(subscription)
            if position is None:
                raise QueryRefused("query_unavailable", "nothing has been replicated to this target yet")
            schema, batches = _read(connection, statement, limits.max_rows, refused)
            yield limited(schema, position.end, batches, limits)
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            raise refused(error) from error
        finally:
            roll_back(connection)


def _bounded(sql: str) -> None:
    """Refuse text that would take DuckDB's parser long, or down: it recurses, and some hundred kilobytes of nested
    subqueries overflow its stack and end the process."""
    if len(sql) > MAX_SQL_CHARACTERS:
        raise QueryRefused("query_too_large", f"the statement is longer than {MAX_SQL_CHARACTERS} characters")
    depth = deepest = 0
    for character in sql:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
    if deepest > MAX_NESTING:
        raise QueryRefused("query_too_large", f"the statement nests deeper than {MAX_NESTING} levels")


def _single_read(connection: Any, sql: str) -> Any:
    """The one statement, parsed; refused unless it is a SELECT that touches nothing but rows."""
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise QueryRefused("query_not_a_read", f"{len(statements)} statements; exactly one read is allowed")
    statement = statements[0]
    if statement.type != duckdb.StatementType.SELECT:
        raise QueryRefused("query_not_a_read", f"a statement of type {statement.type.name}; only SELECT is allowed")
    text = connection.execute("SELECT json_serialize_sql(?)", [statement.query]).fetchall()[0][0]
    try:
        tree = json.loads(text)
    except RecursionError as error:
        raise QueryRefused("query_too_large", "the statement nests too deeply to be examined") from error
    if tree.get("error") or len(tree.get("statements", [])) != 1:
        raise QueryRefused("query_not_a_read", tree.get("error_message") or "exactly one read is allowed")
    reason = refusal(tree)
    if reason is not None:
        raise QueryRefused("query_not_a_read", reason)
    return statement


def _set_search_path(connection: Any) -> None:
    try:
        connection.execute(f"SET search_path = '{SEARCH_PATH}'")
    except duckdb.CatalogException:  # the target has no schema `public`
        return


def _read(
    connection: Any, statement: Any, max_rows: int | None, refused: Callable[[Exception], Exception]
) -> tuple[Any, Iterator[Any]]:
    """The rows as pyarrow.RecordBatch with their schema: at most one more than `max_rows`."""
    relation = connection.sql(statement)
    if relation is None:
        raise QueryRefused("query_not_a_read", "the statement returns no rows")
    names = list(relation.columns)
    rows = relation if max_rows is None else relation.limit(max_rows + 1)
    reader = rows.to_arrow_reader(_ROWS_AT_ONCE)
    schema = pa.schema([field.with_name(name) for field, name in zip(reader.schema, names, strict=True)])

    def batches() -> Iterator[Any]:
        try:
            for batch in reader:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            raise refused(error) from error

    return schema, batches()


def _refused(error: Exception, timed_out: bool, timeout_s: float) -> Exception:
    if is_broken(error):
        return error
    if timed_out:
        return QueryRefused("query_timeout", f"the query did not end within {timeout_s:g} s")
    if is_out_of_memory(error):
        return QueryRefused("query_too_large", "the query needs more memory than the target's memory_limit")
    if isinstance(error, duckdb.InterruptException):
        return QueryRefused("query_unavailable", "the target was being closed or needed its memory; ask again")
    return QueryRefused("query_invalid", str(error))
