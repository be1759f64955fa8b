"""The common part of tables in SQL databases: creation, changes of columns, hand-over of copies. Each kind of target implements the
rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from engine.model.batch import TableChanges
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.partitions import PartitionRows
from engine.model.quarantine import Texts
from engine.model.schema import TableSchema
from engine.targets.evolution import Evolution, Structure
from engine.targets.history import HistoryTable
from engine.targets.identifiers import quoted
from engine.targets.metadata_store import Rows
from engine.targets.quarantined_rows import RefusedByTarget
from engine.targets.rows_written import RowsWritten
from engine.targets.soft_delete import MARK, keep_statement
from engine.targets.sql_statements import SqlStatements


class SqlTables(SqlStatements, ABC):
    """A base for operations on the target's tables within the caller's transaction.

    A kind of target implements the ten abstract methods. It overrides others if its tables can reject rows, if it has savepoints, or if
    it writes to users' own tables.
    """

    def __init__(self, structure: Structure, execute: Callable[[str], Rows], prefix: str = "") -> None:
        """`execute`, `prefix`: as in SqlStatements."""
        super().__init__(execute, prefix)
        self._structure = structure

    @abstractmethod
    def exists(self, place: TableName) -> bool:
        """Whether a table or view with this name exists."""

    @abstractmethod
    def apply_changes(
        self, table: TableId, place: TableName, schema: TableSchema, changes: Sequence[TableChanges]
    ) -> RowsWritten:
        """Apply net changes; returns the rows that the database reports as written.

        Raises EngineFault(NET_CHANGE_ANOMALY) if an expected row is missing.
        """

    @abstractmethod
    def read_rows(
        self, table: TableId, place: TableName, schema: TableSchema, keys: Any, columns: Sequence[int]
    ) -> Any:
        """As `model.target.ReadRows`."""

    @abstractmethod
    def rows_with(self, table: TableId, place: TableName, schema: TableSchema, keys: Any) -> list[tuple[Texts, Texts]]:
        """The rows with these keys (pyarrow.Table, columns k0 … km), several where the table has a key more than once: key and values as
        texts."""

    @abstractmethod
    def delete_rows(self, table: TableId, place: TableName, schema: TableSchema, keys: Any) -> int:
        """Delete the rows with these keys, however many there are; returns their number."""

    @abstractmethod
    def trim(self, table: TableId, place: TableName, schema: TableSchema, above: Any) -> int:
        """Like Target.trim_copy."""

    @abstractmethod
    def exchange_partitions(
        self, table: TableId, copy: TableName, target: TableName, schema: TableSchema, rows: PartitionRows, now_us: int
    ) -> None:
        """Replace the table's rows of these partitions by the copy's rows; the copy is dropped. `now_us`: as in `keep_deleted`."""

    @abstractmethod
    def history(self, table: TableId, place: TableName, schema: TableSchema) -> HistoryTable:
        """The history table of a table, at this place. `schema`: of the table."""

    def row_statements(self, table: TableId, place: TableName, schema: TableSchema) -> HistoryTable:
        """Statements on staged rows of a table and, as `t`, the rows of the table at this place."""
        return self.history(table, place, schema)

    @abstractmethod
    def drop_for_good(self, table: TableId, place: TableName) -> None:
        """Drop a table that readers saw, if it exists. Raises EngineFault(TABLE_NOT_DROPPED) if other objects depend on it."""

    @abstractmethod
    def faults_of(self, table: TableId) -> AbstractContextManager[None]:
        """Turns the driver's errors in the block into faults of this table, if it is the cause."""

    def texts_at(self, table: TableId, place: TableName, schema: TableSchema, keys: Any) -> dict[Texts, Texts]:
        """The rows with these keys (pyarrow.Table, columns k0 … km) as texts, by the texts of their keys."""
        return dict(self.rows_with(table, place, schema, keys))

    def apply_except_refused(
        self, table: TableId, place: TableName, schema: TableSchema, changes: TableChanges, most: int
    ) -> RefusedByTarget:
        """Clear, delete and insert; returns the rows that could not be inserted. Other errors raise as in `apply_changes`.

        It stops after more than `most` rejected rows; its changes must then be rolled back. By default nothing is rejected.
        """
        del most
        self.apply_changes(table, place, schema, [changes])
        return []

    def trial(self) -> AbstractContextManager[bool]:
        """A savepoint, rolled back at the end of its block, with faults in the block suppressed. Yields whether the target has
        savepoints; by default it has none."""
        return nullcontext(False)

    def evolve(self, table: TableId, place: TableName, schema: TableSchema, change: Evolution) -> None:
        """Change a table's columns to `schema`."""
        self._structure.check(table, schema)
        for statement in self._structure.evolve(table, self.qualified(place), change):
            self.execute(statement)

    def make_copy(
        self, table: TableId, copy: TableName, target: TableName, schema: TableSchema, *, keyed: bool
    ) -> None:
        """Create an empty table for a copy that will replace `target`. `keyed`: as in Target.begin_copy.

        Raises EngineFault(TABLE_STRUCTURE_CHANGED) if the target cannot have such a table, TABLE_UNFIT if `target` cannot hold its rows.
        """
        del target
        self._structure.check(table, schema)
        self.create_schema(copy.schema)
        for statement in self._structure.create(self.qualified(copy), schema, keyed):
            self.execute(statement)

    def create_history(self, place: TableName, schema: TableSchema) -> None:
        """Create an empty history table. `schema`: of its table."""
        for statement in self._structure.create_history(self.qualified(place), schema):
            self.execute(statement)

    def create_changes(self, place: TableName, schema: TableSchema) -> None:
        """Create an empty CD table. `schema`: of its table."""
        for statement in self._structure.create_changes(self.qualified(place), schema):
            self.execute(statement)

    def check_key(self, table: TableId, place: TableName, schema: TableSchema) -> None:
        """Raise EngineFault(TABLE_KEY_NOT_UNIQUE) if the key does not identify the table's rows. Reads the whole key."""
        if not schema.key:
            return
        place_, listed = self.qualified(place), ", ".join(map(quoted, schema.key))
        missing = " OR ".join(f"{quoted(name)} IS NULL" for name in schema.key)
        sql = (
            f"SELECT (SELECT count(*) FROM {place_} WHERE {missing}),"
            f" (SELECT count(*) FROM (SELECT 1 FROM {place_} GROUP BY {listed} HAVING count(*) > 1) AS d)"
        )
        without, shared = self.execute(sql).fetchall()[0]
        if without or shared:
            kind, rows = ("key", "rows of nodes") if schema.scattered else ("declared key", "rows")
            words = f"the {kind} ({', '.join(schema.key)}) has {shared} values that several {rows} share"
            raise EngineFault(FaultKind.TABLE_KEY_NOT_UNIQUE, table, f"{words}, and is NULL in {without} rows")

    def keep_deleted(
        self, table: TableId, copy: TableName, schema: TableSchema, target: TableName, old: TableSchema, now_us: int
    ) -> None:
        """Add to a copy the deleted rows of the table that it replaces. Rows that the copy lacks were deleted unseen: they are marked with
        the time `now_us`, microseconds since 1970 UTC. `old`: the schema of the table.

        Raises EngineFault(TABLE_COLUMNS_UNFIT) if they do not fit the copy.
        """
        self.execute(keep_statement(table, (self.qualified(copy), schema), (self.qualified(target), old), now_us))

    def remove_deleted(self, copy: TableName, target: TableName, schema: TableSchema) -> None:
        """Remove the table's deleted rows whose keys the copy has."""
        if schema.soft_delete:
            same = " AND ".join(f"t.{quoted(name)} = c.{quoted(name)}" for name in schema.key)
            sql = f"DELETE FROM {self.qualified(target)} AS t USING {self.qualified(copy)} AS c WHERE {same}"
            self.execute(f"{sql} AND t.{MARK} IS NOT NULL")

    def put_in_place(
        self, copy: TableName, target: TableName, schema: TableSchema, *, refuse: int = 0
    ) -> RefusedByTarget:
        """Replace the table that readers see, if it exists, by the copy.

        `refuse`: most rows that the user's own table may reject; they are left out and returned. It stops after one more.
        """
        del schema, refuse
        self.drop(target)
        self.execute(f"ALTER TABLE {self.qualified(copy)} RENAME TO {quoted(target.name)}")
        return []

    def drop(self, place: TableName) -> None:
        """Drop a table if it exists."""
        self.execute(f"DROP TABLE IF EXISTS {self.qualified(place)}")
