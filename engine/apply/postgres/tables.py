"""What a batch does to the tables of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg

from engine.apply.evolution import Evolution, require_columns
from engine.apply.postgres.changes import Place, apply_changes, check_key
from engine.apply.postgres.errors import fault_of_table
from engine.apply.postgres.identifiers import qualified, quoted
from engine.apply.postgres.records import PostgresRecords
from engine.apply.postgres.structure import evolve_statements, key_statement
from engine.model.batch import TableChanges
from engine.model.identity import TableId, TableName
from engine.model.schema import TableSchema
from engine.postgres.sessions import PostgresConnection

TRUNCATE_ABOVE_BYTES = 32 * 1024 * 1024
"""Tables up to this size are cleared row by row."""


class PostgresTables:
    """Implements Tables inside the transaction of the caller."""

    def __init__(self, connection: PostgresConnection, records: PostgresRecords, *, in_place: bool = True) -> None:
        """`in_place`: as in `apply_changes`."""
        self._in_place = in_place
        self._connection = connection
        self._records = records

    def same(self, one: TableName, other: TableName) -> bool:
        return one == other

    def evolve(self, table: TableId, place: TableName, schema: TableSchema, change: Evolution) -> None:
        require_columns(table, schema)
        for statement in evolve_statements(qualified(place), change):
            self._execute(statement)

    def change(self, table: TableId, place: TableName, schema: TableSchema, changes: Sequence[TableChanges]) -> None:
        where = Place(table, qualified(place), schema)
        apply_changes(self._connection, where, changes, lambda: self._clear(place), in_place=self._in_place)

    def check_key(self, table: TableId, place: TableName, schema: TableSchema) -> None:
        check_key(self._connection, Place(table, qualified(place), schema))

    def put_in_place(self, copy: TableName, target: TableName, schema: TableSchema) -> None:
        self._records.next_generation(target)
        self.drop(target)
        self._execute(f"ALTER TABLE {qualified(copy)} RENAME TO {quoted(target.name)}")
        key = key_statement(qualified(target), schema)
        if key is not None:
            self._execute(key)

    def drop(self, place: TableName) -> None:
        self._execute(f"DROP TABLE IF EXISTS {qualified(place)}")

    @contextmanager
    def faults_of(self, table: TableId) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise fault_of_table(error, table) from error

    def _clear(self, place: TableName) -> None:
        """Readers with an older snapshot see through a DELETE, which costs time by the row; a TRUNCATE leaves them nothing."""
        size = self._connection.execute("SELECT pg_relation_size(%s::regclass)", [qualified(place)]).fetchall()[0][0]
        if size <= TRUNCATE_ABOVE_BYTES:
            self._execute(f"DELETE FROM {qualified(place)}")
            return
        self._records.next_generation(place)
        self._execute(f"TRUNCATE {qualified(place)}")

    def _execute(self, statement: str) -> None:
        self._connection.execute(statement.encode())
