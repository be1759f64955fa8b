"""Scans of tables for query processes, on the target's own connections at the same batch boundary.

The engine computes nothing for readers: a scan selects columns and compares them with constants; its rows are written to a pipe.
"""

from __future__ import annotations

import fcntl
import queue
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from engine.model.identity import SubscriptionName, TableName
from engine.model.position import Lsn
from engine.model.target import QueryRefused, TableRead
from engine.platform.pipe_file import PipeSink
from engine.queries.channel import yield_to_replication
from engine.queries.rows import pieces
from engine.targets.duckdb.database import Database
from engine.targets.duckdb.identifiers import folded, folded_name, qualified
from engine.targets.duckdb.metadata import DuckDbMetadata
from engine.targets.duckdb.pushed import condition_sql, scan_column
from engine.targets.duckdb.query_guard import Named
from engine.targets.duckdb.query_process import NOTHING
from engine.targets.identifiers import quoted

MOST_SCANS = 64
"""Most scans of one statement; all may be open at once."""
_ROWS_AT_ONCE = 20_480
"""Rows of a scan's batch: ten of DuckDB's vectors of 2,048 rows. Not measured."""
_COUNTED_AT_ONCE = 1 << 20
"""Rows without values in one batch; they are one byte each, so 1 MiB. Not measured."""
_PIPE_BYTES = 1 << 20
"""Capacity of a scan's pipe in bytes: the most that Linux grants without privileges by default (`fs.pipe-max-size`)."""
_INTERRUPT_AGAIN_SECONDS = 0.05
"""Pause between two interrupts in seconds: one that comes just before a statement has no effect on it, so it is repeated."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A relation that readers of a subscription see; columns as (name, type)."""

    name: TableName
    columns: tuple[tuple[str, str], ...]
    remarks: tuple[tuple[str, str], ...] = ()
    """Comments by column; the relation's own has the empty name. Set only if a statement reads the catalog."""
    key: tuple[str, ...] = ()
    """The columns that identify a row, in key order; empty if there are none. Set only if a statement reads the catalog."""


class Snapshot:
    """The connections of one statement, whose transactions see the same state."""

    def __init__(
        self, database: Database, connections: Sequence[Any], interrupted: Callable[[], bool] = lambda: True
    ) -> None:
        """`interrupted`: whether scans are interrupted at the end, which aborts their transactions; else they end by themselves, once
        their output is not read any more."""
        self._catalog = database.catalog
        self._pace = database.pace
        self._connections = connections
        self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for connection in connections:
            self._free.put(connection)
        self._interrupted = interrupted
        self._scans: list[threading.Thread] = []
        self._over = False
        self.error: Exception | None = None
        """The error of the first scan that failed."""

    def position(self, subscription: SubscriptionName) -> Lsn:
        """Raises QueryRefused(query_unavailable) if nothing is recorded."""
        position = DuckDbMetadata(self._connections[0], self._catalog).position(subscription)
        if position is None:
            raise QueryRefused("query_unavailable", "nothing has been replicated to this target yet")
        return position.end

    def reads(self, relations: Sequence[Shown]) -> list[TableRead]:
        """The tables whose rows these relations show."""
        names = [relation.name for relation in relations]
        return DuckDbMetadata(self._connections[0], self._catalog).reads(names) if names else []

    def shown(self, subscription: SubscriptionName, named: Named) -> list[Shown]:
        """The visible relations that a statement names; all of them if it names an unknown one."""
        connection = self._connections[0]
        metadata = DuckDbMetadata(connection, self._catalog)
        readable = metadata.readable(subscription)
        wanted = [name for name in readable if self.is_named(name, named)]
        known = {folded(name.name) for name in wanted} | named.expressions
        everything = named.catalog or any(name not in known for _, name in named.places)
        wanted = readable if everything else wanted
        remarks = self._remarks() if everything else {}
        keys = _keys(metadata, subscription) if everything else {}
        found = []
        for name in wanted:
            try:
                relation = connection.sql(f"SELECT * FROM {qualified(self._catalog, name)}")
            except duckdb.CatalogException:  # its first copy is not complete
                continue
            types = [str(kind) for kind in relation.types]
            columns = tuple(zip(relation.columns, types, strict=True))
            place = folded_name(name)
            found.append(Shown(name, columns, tuple(remarks.get(place, ())), _key_of(columns, keys.get(place, ()))))
        return found

    def is_named(self, relation: TableName, named: Named) -> bool:
        """Whether a statement names the relation, possibly without a schema."""
        schema, name = folded_name(relation)
        return any((before, name) in named.places for before in ("", schema, folded(self._catalog)))

    def _remarks(self) -> dict[tuple[str, str], list[tuple[str, str]]]:
        sql = (
            "SELECT schema_name, table_name, column_name, comment FROM duckdb_columns() WHERE {of}"
            " UNION ALL SELECT schema_name, table_name, '', comment FROM duckdb_tables() WHERE {of}"
            " UNION ALL SELECT schema_name, view_name, '', comment FROM duckdb_views() WHERE {of}"
        ).format(of="database_name = $1 AND comment IS NOT NULL")
        found: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for schema, relation, column, text in self._connections[0].execute(sql, [self._catalog]).fetchall():
            found.setdefault(folded_name(TableName(schema, relation)), []).append((column, text))
        return found

    def scan(self, relation: Shown, message: Mapping[str, Any], sink: int) -> None:
        """Begin to write rows to the pipe. Returns at once; without a free connection the scan waits for one."""
        thread = threading.Thread(target=self._scan, args=(relation, message, sink), name="query-scan", daemon=True)
        self._scans.append(thread)
        thread.start()

    def end(self) -> None:
        """Stop all scans and wait for their end. Their output is not read any more."""
        self._over = True
        for thread in self._scans:
            while thread.is_alive():
                self._free.put(None)
                for connection in self._connections if self._interrupted() else ():
                    with suppress(duckdb.Error):
                        connection.interrupt()
                thread.join(_INTERRUPT_AGAIN_SECONDS)

    def _scan(self, relation: Shown, message: Mapping[str, Any], sink: int) -> None:
        yield_to_replication()
        fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        with PipeSink(sink) as file:
            connection = self._free.get()
            if connection is None or self._over:
                return
            try:
                self._write(connection, relation, message, file)
            except BrokenPipeError:  # the statement needs no more rows
                pass
            except (
                duckdb.Error,
                OSError,
                pa.ArrowException,
                QueryRefused,
                ValueError,
                TypeError,
                LookupError,
            ) as error:
                self.error = self.error or error
            finally:
                self._free.put(connection)

    def _write(self, connection: Any, relation: Shown, message: Mapping[str, Any], file: Any) -> None:
        place = qualified(self._catalog, relation.name)
        where = message["where"]
        condition = "" if where is None else f" WHERE {condition_sql(where, relation.columns)}"
        numbers = message["columns"]
        if all(number is None for number in numbers):
            count = connection.execute(f"SELECT count(*) FROM {place}{condition}").fetchall()[0][0]
            _write_nothing(file, count)
            return
        terms = [
            f"0::TINYINT AS {NOTHING}"
            if number is None
            else f"{quoted(relation.columns[number][0])} AS {scan_column(number)}"
            for number in numbers
        ]
        reader = connection.sql(f"SELECT {', '.join(terms)} FROM {place}{condition}").to_arrow_reader(_ROWS_AT_ONCE)
        schema = message["schema"] and pa.ipc.read_schema(pa.py_buffer(b64decode(message["schema"])))
        with pa.ipc.new_stream(file, schema or reader.schema) as writer:
            for batch in reader:
                self._pace.give_way()
                if not schema:
                    writer.write_batch(batch)
                    continue
                for piece in pieces(pa.RecordBatch.from_arrays(batch.columns, schema=schema)):
                    writer.write_batch(piece)


def _keys(metadata: DuckDbMetadata, subscription: SubscriptionName) -> dict[tuple[str, str], tuple[str, ...]]:
    """The keys of the subscription's tables, as recorded, by their folded names: DuckDB's tables declare none. Without tables that are no
    longer replicated, since their owner may write to them."""
    return {
        folded_name(one.target): one.schema.key
        for one in metadata.reservations(subscription)
        if one.schema is not None and not one.removed
    }


def _key_of(columns: Sequence[tuple[str, str]], recorded: Sequence[str]) -> tuple[str, ...]:
    """The names of a key's columns as the relation has them; empty if it lacks one."""
    names = {folded(name): name for name, _ in columns}
    key = [names[folded(name)] for name in recorded if folded(name) in names]
    return tuple(key) if len(key) == len(recorded) else ()


def _write_nothing(file: Any, count: int) -> None:
    """This many rows without values."""
    schema = pa.schema([(NOTHING, pa.int8())])
    zeros = pa.array(bytes(min(_COUNTED_AT_ONCE, count)), pa.int8())
    with pa.ipc.new_stream(file, schema) as writer:
        for begin in range(0, count, _COUNTED_AT_ONCE):
            writer.write_batch(pa.RecordBatch.from_arrays([zeros.slice(0, count - begin)], schema=schema))


@contextmanager
def snapshot(database: Database, scans: int) -> Iterator[Snapshot]:
    """Begin transactions for this many concurrent scans, between two commits."""
    if scans > MOST_SCANS:
        raise QueryRefused("query_too_large", f"the statement reads {scans} tables; the limit is {MOST_SCANS}")
    with ExitStack() as stack:
        connections = [stack.enter_context(database.reader()) for _ in range(max(scans, 1))]
        begin_together(database, connections)
        found = Snapshot(database, connections)
        try:
            yield found
        finally:
            found.end()


def begin_together(database: Database, connections: Sequence[Any]) -> None:
    """Begin read transactions that see the same state, between two commits.

    Raises QueryRefused(query_unavailable) if nothing was replicated yet.
    """
    try:
        with database.committing:
            for connection in connections:
                connection.execute("SET SESSION arrow_lossless_conversion = true")
                connection.execute("BEGIN TRANSACTION READ ONLY")
                # DuckDB takes its snapshot at the first access to the file, not at BEGIN.
                DuckDbMetadata(connection, database.catalog).begin_snapshot()
    except duckdb.CatalogException:
        raise QueryRefused("query_unavailable", "nothing has been replicated to this target yet") from None
