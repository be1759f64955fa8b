"""The operations of a batch on the tables of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import psycopg

from engine.model.batch import TableChanges
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.partitions import PartitionRows
from engine.model.quarantine import Texts
from engine.model.schema import TableSchema
from engine.postgres.sessions import PostgresConnection
from engine.targets.evolution import Evolution, require_columns
from engine.targets.identifiers import qualified, quoted
from engine.targets.postgres.changes import (
    Place,
    apply_changes,
    delete_behind,
    delete_keys,
    delete_rows,
    insert_but_refused,
    keep_rows,
    read_rows,
    take_changes,
    texts_at,
)
from engine.targets.postgres.errors import cause_of, fault_of_table
from engine.targets.postgres.history import PostgresHistory
from engine.targets.postgres.identifiers import literal
from engine.targets.postgres.metadata import PostgresMetadata
from engine.targets.postgres.owner_tables.ddl import add_columns, follow
from engine.targets.postgres.owner_tables.inspect import (
    foreign_rows,
    holds_rows,
    place_of,
    refuse,
    refuse_unfit,
    takes_rows_of,
)
from engine.targets.postgres.structure import POSTGRES_STRUCTURE, key_statement
from engine.targets.postgres.types import MARK_TYPE, postgres_type
from engine.targets.quarantined_rows import DecodeText, RefusedByTarget, texts_in_form, typed
from engine.targets.rows_written import RowsWritten
from engine.targets.soft_delete import mark_column
from engine.targets.sql_tables import SqlTables
from engine.targets.target_metadata import OwnerTable, TableReservation

TRUNCATE_ABOVE_BYTES = 32 * 1024 * 1024
"""Tables up to this size are cleared by DELETE."""


_NOT_OURS = (psycopg.errors.WrongObjectType, psycopg.errors.InsufficientPrivilege)
"""Detail of the fault if someone replaced our table or took it over."""
_BUILT_UPON = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_depend AS d JOIN pg_catalog.pg_rewrite AS r ON r.oid = d.objid
               WHERE d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
                 AND d.refobjid = pg_catalog.to_regclass(%(place)s) AND r.ev_class <> d.refobjid)
    OR EXISTS (SELECT FROM pg_catalog.pg_constraint AS k WHERE k.contype = 'f'
               AND k.confrelid = pg_catalog.to_regclass(%(place)s) AND k.conrelid <> k.confrelid)
"""


def cleared_by_rows(place: str) -> str:
    """SQL: whether a table (its full quoted name) is small including its partitions, or foreign keys of other tables prevent TRUNCATE."""
    oid = f"{literal(place)}::pg_catalog.regclass"
    tree = f"SELECT relid FROM pg_catalog.pg_partition_tree({oid}) UNION SELECT {oid}"
    return (
        f"((SELECT pg_catalog.sum(pg_catalog.pg_relation_size(relid)) FROM ({tree}) AS p) <= {TRUNCATE_ABOVE_BYTES}"
        " OR EXISTS (SELECT FROM pg_catalog.pg_constraint AS k WHERE k.contype = 'f'"
        f" AND k.confrelid IN ({tree}) AND k.conrelid NOT IN ({tree})))"
    )


def _pouring(copy: TableName, place: str, columns: Sequence[tuple[str, str]]) -> str:
    """SQL that inserts the copy's rows, `c`, into a table (its full quoted name)."""
    read = ", ".join(f"c.{name}::{type_}" for name, type_ in columns)
    into = f"INSERT INTO {place} ({', '.join(name for name, _ in columns)}) OVERRIDING SYSTEM VALUE"
    return f"{into} SELECT {read} FROM {qualified(copy)} AS c"


def _marks(schema: TableSchema) -> list[tuple[str, str]]:
    """Name and type of the column of deletion times, if the table has one."""
    return [(name, MARK_TYPE) for name in mark_column(schema)]


class PostgresTables(SqlTables):
    """Implements SqlTables. A user's own table is filled instead of replaced, and may reject rows."""

    def __init__(
        self, connection: PostgresConnection, records: PostgresMetadata, decode: DecodeText, *, in_place: bool = True
    ) -> None:
        """`in_place`: as in the function `apply_changes`. `decode` converts rows to columns if a user's table is filled row by row."""
        super().__init__(POSTGRES_STRUCTURE, lambda statement: connection.execute(statement.encode()))
        self._decode = decode
        self._in_place = in_place
        self._connection = connection
        self._records = records

    def exists(self, place: TableName) -> bool:
        found = self._connection.execute("SELECT pg_catalog.to_regclass(%s) IS NOT NULL", [qualified(place)])
        return bool(found.fetchall()[0][0])

    def apply_changes(
        self, table: TableId, place: TableName, schema: TableSchema, changes: Sequence[TableChanges]
    ) -> RowsWritten:
        where = self._place(table, place, schema)
        return apply_changes(self._connection, where, changes, lambda: self._clear(place), in_place=self._in_place)

    def apply_except_refused(
        self, table: TableId, place: TableName, schema: TableSchema, changes: TableChanges, most: int
    ) -> RefusedByTarget:
        where = self._place(table, place, schema)
        return take_changes(self._connection, where, changes, lambda: self._clear(place), most)

    def read_rows(
        self, table: TableId, place: TableName, schema: TableSchema, keys: Any, columns: Sequence[int]
    ) -> Any:
        return read_rows(self._connection, self._place(table, place, schema), keys, columns)

    def rows_with(self, table: TableId, place: TableName, schema: TableSchema, keys: Any) -> list[tuple[Texts, Texts]]:
        found = texts_at(self._connection, self._place(table, place, schema), keys)
        at = [[column.name for column in schema.columns].index(name) for name in schema.key]
        named = [tuple(texts[i] for i in at) for texts in found]
        in_form = texts_in_form(replace(schema, columns=schema.key_columns), named, self._decode)
        return list(zip(in_form, found, strict=True))

    def delete_rows(self, table: TableId, place: TableName, schema: TableSchema, keys: Any) -> int:
        return delete_keys(self._connection, self._place(table, place, schema), keys)

    def trim(self, table: TableId, place: TableName, schema: TableSchema, above: Any) -> int:
        return delete_behind(self._connection, Place(table, qualified(place), schema), above)

    def evolve(self, table: TableId, place: TableName, schema: TableSchema, change: Evolution) -> None:
        if self._records.existing(place) is not None:
            follow(self._connection, table, place, schema, change)
        else:
            super().evolve(table, place, schema, change)

    @contextmanager
    def trial(self) -> Iterator[bool]:
        with suppress(EngineFault, psycopg.Error), self._connection.transaction(force_rollback=True):
            yield True

    def make_copy(
        self, table: TableId, copy: TableName, target: TableName, schema: TableSchema, *, keyed: bool
    ) -> None:
        if self._records.existing(target) is not None:
            require_columns(table, schema)
            refuse_unfit(self._connection, table, target, schema)
        super().make_copy(table, copy, target, schema, keyed=keyed)

    def put_in_place(
        self, copy: TableName, target: TableName, schema: TableSchema, *, refuse: int = 0
    ) -> RefusedByTarget:
        existing = self._records.existing(target)
        if existing is not None:
            return self._fill(existing, copy, schema, leave_out=refuse)
        if self._is_built_upon(target) and takes_rows_of(self._connection, target, copy, schema):
            self._clear(target)
            columns = [(quoted(column.name), postgres_type(column)) for column in schema.columns]
            self._pour(copy, target, columns + _marks(schema))
            return []
        self._records.next_generation(target)
        super().put_in_place(copy, target, schema)
        key = key_statement(qualified(target), schema)
        if key is not None and not self._has_key(target):
            self.execute(key)
        return []

    def exchange_partitions(
        self, table: TableId, copy: TableName, target: TableName, schema: TableSchema, rows: PartitionRows, now_us: int
    ) -> None:
        place = self._place(table, target, schema)
        if schema.soft_delete:
            keep_rows(self._connection, place, (qualified(copy), schema), rows, now_us)
        delete_rows(self._connection, place, rows)
        self.remove_deleted(copy, target, schema)
        types = [column.type for column in place.columns]
        self._pour(copy, target, list(zip(place.quoted, types, strict=True)) + _marks(schema))

    def history(self, table: TableId, place: TableName, schema: TableSchema) -> PostgresHistory:
        return PostgresHistory(self._connection, table, self.qualified(place), replace(schema, soft_delete=False))

    def drop_for_good(self, table: TableId, place: TableName) -> None:
        try:
            self.drop(place)
        except (psycopg.errors.DependentObjectsStillExist, *_NOT_OURS) as error:
            words = [error.diag.message_primary or "", *(error.diag.message_detail or "").splitlines()]
            raise EngineFault(FaultKind.TABLE_NOT_DROPPED, table, "; ".join(word for word in words if word)) from error

    @contextmanager
    def faults_of(self, table: TableId) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise fault_of_table(error, table, of_owner=self._records.is_of_owner(table)) from error

    def _place(self, table: TableId, place: TableName, schema: TableSchema) -> Place:
        return place_of(self._connection, self._records, table, place, schema)

    def _has_key(self, place: TableName) -> bool:
        sql = (
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_index WHERE indrelid = %s::pg_catalog.regclass AND indisprimary)"
        )
        return bool(self._connection.execute(sql, [qualified(place)]).fetchall()[0][0])

    def _fill(
        self, existing: TableReservation, copy: TableName, schema: TableSchema, *, leave_out: int
    ) -> RefusedByTarget:
        """Replace our rows in the user's table by the copy's rows."""
        target = existing.target
        adopted = existing.schema if existing.schema is not None else schema
        fresh = {column.name for column in schema.columns} - {column.name for column in adopted.columns}
        standing = refuse_unfit(self._connection, existing.table, target, schema, but=fresh)
        missing = [column for column in schema.columns if standing.column(column.name) is None]
        add_columns(self._connection, existing.table, target, missing)
        if existing.existing is OwnerTable.FILLED:
            self._clear(target)
        elif holds_rows(self._connection, target):
            refuse(existing.table, target, [foreign_rows(target)])
        place = self._place(existing.table, target, schema)
        columns = [(place.quoted[i], place.columns[i].type) for i in place.written]
        refused: RefusedByTarget = []
        if leave_out:
            refused = self._pour_by_pages(copy, place, columns, leave_out)
        else:
            self._pour(copy, target, columns)
        self._records.write_existing(existing, OwnerTable.FILLED)
        return refused

    def _pour(self, copy: TableName, target: TableName, columns: Sequence[tuple[str, str]]) -> None:
        """Move the copy's rows to the table, and drop the copy. `columns`: quoted name and type of each."""
        self.execute(_pouring(copy, qualified(target), columns))
        self.drop(copy)

    def _pour_by_pages(
        self, copy: TableName, place: Place, columns: Sequence[tuple[str, str]], most: int
    ) -> RefusedByTarget:
        """The same without rows that the table rejects: pages of the copy are bisected, and a page with such a row is inserted row by
        row."""
        size = f"SELECT pg_catalog.pg_relation_size({literal(qualified(copy))}) / 8192 + 1"
        refused: RefusedByTarget = []
        waiting = [(0, int(self._connection.execute(size.encode()).fetchall()[0][0]))]
        while waiting and len(refused) <= most:
            low, high = waiting.pop()
            pages = f" WHERE c.ctid >= '({low},0)' AND c.ctid < '({high},0)'"
            try:
                with self._connection.transaction():
                    self.execute(_pouring(copy, place.qualified, columns) + pages)
            except psycopg.Error as error:
                if cause_of(error) is None:
                    raise
                if high - low > 1:
                    middle = (low + high) // 2
                    waiting += [(middle, high), (low, middle)]
                    continue
                refused += self._pour_rows(copy, place, pages, most)
        self.drop(copy)
        return refused

    def _pour_rows(self, copy: TableName, place: Place, pages: str, most: int) -> RefusedByTarget:
        read = ", ".join(f"c.{name}::pg_catalog.text" for name in place.quoted)
        sql = f"SELECT {read} FROM {qualified(copy)} AS c{pages}"
        found = self._connection.execute(sql.encode()).fetchall()
        return insert_but_refused(self._connection, place, typed(place.schema, found, self._decode), most)

    def _is_built_upon(self, place: TableName) -> bool:
        """Whether users' views or foreign keys depend on the table."""
        return bool(self._connection.execute(_BUILT_UPON, {"place": qualified(place)}).fetchall()[0][0])

    def _clear(self, place: TableName) -> None:
        """Clear the table. Readers with an older snapshot still see rows after a DELETE, which takes time per row, but not after a
        TRUNCATE."""
        by_rows = f"SELECT {cleared_by_rows(qualified(place))}".encode()
        if self._connection.execute(by_rows).fetchall()[0][0]:
            self.execute(f"DELETE FROM {qualified(place)}")
            return
        self._records.next_generation(place)
        self.execute(f"TRUNCATE {qualified(place)}")
