"""The metadata tables in a DuckDB file. They have no keys: a row is replaced by deleting it and inserting the new one."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from engine.model.identity import SubscriptionName, TableId
from engine.model.position import Lsn
from engine.targets.duckdb.identifiers import folded
from engine.targets.identifiers import quoted
from engine.targets.metadata_store import COLUMNS, Dialect, MetadataStore, progress_row
from engine.targets.target_metadata import OWN_SCHEMA, CopyRecord, Position

DUCKDB = Dialect(
    container="file",
    first_layout=2,
    placeholder="?",
    now="epoch_us(now())",
    member_of=lambda column: f"list_contains(CAST(? AS VARCHAR[]), {column})",
    folded=folded,
    folded_column=lambda column: f"translate({column}, '{ascii_uppercase}', '{ascii_lowercase}')",
    added_text="text DEFAULT ''",
    tables={table: f"({columns})" for table, columns in COLUMNS.items()},
)


class DuckDbMetadata(MetadataStore):
    """The metadata store on one connection."""

    dialect = DUCKDB

    def __init__(self, connection: Any, catalog: str, *, crowded: bool = False) -> None:
        """`crowded`: another transaction stays open, so that DuckDB keeps a chain of every version of an updated row, which each read
        of the row follows. Rows that every batch changes are then deleted and inserted instead of updated."""
        super().__init__(connection, f"{quoted(catalog)}.{quoted(OWN_SCHEMA)}")
        self._crowded = crowded

    def begin_snapshot(self) -> None:
        """Read from the file, which begins the transaction's snapshot. Raises duckdb.CatalogException if it has no metadata."""
        self._select("layout", "version")

    def write_position(self, subscription: SubscriptionName, position: Position) -> None:
        row = progress_row(subscription, position)
        if self._crowded or self._update("progress", row, subscription=subscription).fetchall()[0][0] != 1:
            super().write_position(subscription, position)

    def add_position(self, subscription: SubscriptionName, position: Position) -> None:
        """Add a row to the subscription's older ones, which a transaction with an old snapshot cannot replace.

        The next `write_position` leaves only one row.
        """
        self._insert("progress", progress_row(subscription, position))

    def write_applied(self, subscription: SubscriptionName, tables: Sequence[TableId], end: Lsn) -> None:
        which = "subscription = $1 AND list_contains(CAST($2 AS VARCHAR[]), table_id) AND applied <> $3"
        values = [subscription, list(tables), str(end)]
        if not self._crowded:
            self._execute(f"UPDATE {self._own}.tables SET applied = $3 WHERE {which}", values)
            return
        rows = f"SELECT * REPLACE ($3 AS applied) FROM {self._own}.tables WHERE {which}"
        self._execute(f"INSERT INTO {self._own}.tables {rows}", values)
        self._execute(f"DELETE FROM {self._own}.tables WHERE {which}", values)

    def amend_copy(self, copy: CopyRecord) -> None:
        """Replaces the row, as with `crowded`: many batches may change it."""
        subscription = self.copying(copy.table)
        if subscription is not None:
            self.delete_copy(copy.table)
            self.write_copy(subscription, copy)

    def _found(self) -> tuple[bool, bool]:
        sql = (
            "SELECT table_name FROM duckdb_tables() WHERE lower(schema_name) = ? AND database_name = current_database()"
        )
        names = {row[0] for row in self._execute(sql, [OWN_SCHEMA]).fetchall()}
        return bool(names), "layout" in names
