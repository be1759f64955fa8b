"""Reads under one session's snapshot, without a lock that outlasts the read of a table.

A snapshot of MariaDB does not include structures. A read locks its table's structure until the transaction ends, and a change of it that
waits blocks all other statements on the table. So each read ends with a rollback to a savepoint, which frees the lock and keeps the
snapshot. Tables that others changed after the snapshot are refused: by the server, if their storage was replaced, or else because their
definition is younger than the snapshot. Definitions have whole seconds, so a change in the snapshot's own second that leaves the storage
as it is (a column dropped and added again, another table renamed to the name) may be read; the next cycle compares it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.masks import MASK_KEY
from engine.model.quarantine import Texts
from engine.model.schema import TableSchema
from engine.model.source import WHOLE_TABLE, TableSplit
from engine.model.subscription import TableSpec
from engine.records.masked_lines import mask_of
from engine.records.served_snapshot import Request, SnapshotServer, read_served
from engine.sources.mariadb import splits
from engine.sources.mariadb.catalog import MariaDbTable, load_named
from engine.sources.mariadb.connect import (
    ERRORS,
    LONG_READ_TIMEOUT_S,
    Connector,
    MariaDbConnection,
    close_quietly,
    fault_of,
    quoted,
    rows,
    run,
)
from engine.sources.mariadb.key_reads import KeyReads
from engine.sources.mariadb.lines import read_lines
from engine.sources.mariadb_queries.compared import compared_structure
from engine.sources.mariadb_queries.stamps import BEFORE_SNAPSHOT

_KEYS_AT_ONCE = 2_000
"""Rows that one statement looks up. Not measured."""
_CREATED = """
SELECT IFNULL(CAST(create_time AS CHAR), '') FROM information_schema.tables WHERE table_schema = %s AND table_name = %s
"""


def load_there(connection: MariaDbConnection, schema: TableSchema) -> MariaDbTable:
    """The table as it is now. Raises EngineFault: TABLE_MISSING, TABLE_STRUCTURE_CHANGED if it is not as the schema says."""
    columns = [(int(column.attnum), column.on_source) for column in schema.columns]
    return _unchanged(connection, schema.name, columns, str(schema.name))


def _unchanged(
    connection: MariaDbConnection, name: TableName, columns: Collection[tuple[int, str]], subject: str
) -> MariaDbTable:
    found = load_named(connection, [name]).get(name)
    if found is None:
        raise EngineFault(FaultKind.TABLE_MISSING, subject, "the table is gone")
    if not set(columns) <= {(number, column) for column, _, _, number, _ in compared_structure(found).columns}:
        raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, subject, "the table was changed")
    return found


@contextmanager
def exported(connector: Connector) -> Iterator[str]:
    """A snapshot, by the name by which `QueryReads.read_split` reads it, also in other processes, while the block runs."""
    holder = connector.open(read_timeout_s=LONG_READ_TIMEOUT_S)
    try:
        try:
            run(holder, f"SET {BEFORE_SNAPSHOT} = UTC_TIMESTAMP(6)")
            run(holder, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            # Read before: a table that is changed between the two is refused.
            taken = str(rows(holder, "SELECT CAST(SYSDATE() AS CHAR)")[0][0])
            run(holder, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        except ERRORS as error:
            raise fault_of(error, connector.name) from error
        server = SnapshotServer(lambda request: _lines(holder, taken, request), lambda: close_quietly(holder))
        try:
            yield str(server.path)
        finally:
            server.close()
    finally:
        close_quietly(holder)


def _lines(holder: MariaDbConnection, taken: str, request: Request) -> Iterator[bytes]:
    """`taken`: the second in which the snapshot was taken, as the server prints it."""
    try:
        run(holder, "SAVEPOINT penstock_read")
        try:
            yield from read_lines(holder, request.sql)
            # The structure is locked until the rollback: what it is now, it was when the rows were read.
            created = rows(holder, _CREATED, request.schema, request.table)
            if not created or str(created[0][0]) > taken:
                detail = "the table was changed, or replaced, after the snapshot was taken"
                raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, request.subject, detail)
        finally:
            with suppress(*ERRORS):
                run(holder, "ROLLBACK TO SAVEPOINT penstock_read")
    except ERRORS as error:
        raise fault_of(error, request.subject) from error


class QueryReads(KeyReads):
    """`DatabaseReads` of one session for all. `statement_s`: after so many seconds the server ends a read."""

    def __init__(self, connector: Connector, statement_s: float | None = None) -> None:
        super().__init__(connector)
        self._checked: tuple[object, ...] | None = None
        """Snapshot, table and columns of the last read: a later change of the table is found by the read itself."""
        self._limit = "" if statement_s is None else f"SET STATEMENT max_statement_time = {statement_s} FOR "

    def _there(self, connection: MariaDbConnection, schema: TableSchema) -> MariaDbTable:
        return load_there(connection, schema)

    def key_splits(self, schema: TableSchema, spec: TableSpec, keys: Sequence[Texts]) -> list[TableSplit]:
        """The rows with these keys, if literals of their texts are compared as the values; else the whole table."""
        with self._connector.session(str(schema.name)) as connection:
            table = load_there(connection, schema)
        key = splits.key_of(table)
        if [facts.name for facts, _ in key] != [column.on_source for column in schema.key_columns]:
            return self.splits(schema, spec, WHOLE_TABLE)
        names = ", ".join(quoted(facts.name) for facts, _ in key)
        rows = [
            f"({', '.join(splits.key_literals(key, texts))})"
            for texts in keys
            if all(splits.can_be_stored(facts, text) for (facts, _), text in zip(key, texts, strict=True))
        ]
        select = splits.select_lines(table, schema)
        return [
            splits.split_of(schema, f"{select} WHERE ({names}) IN ({', '.join(listed)}){splits.and_kept(schema)}")
            for listed in (rows[at : at + _KEYS_AT_ONCE] for at in range(0, len(rows), _KEYS_AT_ONCE))
        ]

    def read_split(self, split: TableSplit, snapshot: str) -> Iterator[bytes]:
        subject = f"relation {split.relation}"
        mask = mask_of(split, self._connector.secret(MASK_KEY), subject)
        seen = (snapshot, split.relation, split.columns)
        if self._checked != seen:
            self._check(split, subject)
            self._checked = seen
        pieces = read_served(snapshot, replace(split, sql=self._limit + split.sql), subject)
        yield from pieces if mask is None else map(mask, pieces)

    def _check(self, split: TableSplit, subject: str) -> None:
        """The split's table still has the structure with which it was cut."""
        with self._connector.session(subject) as connection:
            _unchanged(connection, split.reads or TableName("", ""), split.columns, subject)
