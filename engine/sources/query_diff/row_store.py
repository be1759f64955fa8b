"""Keys and hashes of every row as the last cycle found it: about 40 bytes a row, in a DuckDB file of the subscription.

Used by one process at a time, which holds the lock of the folder. What a cycle changes is one transaction, with the cycle's number.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.compute as pc

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName

_LAYOUT = """
CREATE TABLE IF NOT EXISTS state (id VARCHAR NOT NULL, last BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS followed (
    relation BIGINT PRIMARY KEY, schema VARCHAR NOT NULL, name VARCHAR NOT NULL, row_filter VARCHAR, record BLOB NOT NULL,
    keys VARCHAR NOT NULL, method VARCHAR NOT NULL);
"""
_CHANGED = """
SELECT CASE WHEN s.key IS NULL THEN 73 ELSE 85 END::UTINYINT AS op, p.*
FROM piece AS p LEFT JOIN {rows} AS s ON s.key = p.key WHERE s.key IS NULL OR s.low <> p.low OR s.high <> p.high
"""
"""73, 85: the letters I and U."""
UPDATE = ord("U")
_MEMORY = "1GB"
"""Memory of comparisons; what does not fit is written to files in its folder. Not measured."""


@dataclass(frozen=True, slots=True)
class Known:
    """A table as the last cycle found it: see TableFound. `keys`: names of the key columns."""

    name: TableName
    row_filter: str | None
    record: bytes
    keys: tuple[str, ...]
    method: str


class RowStore:
    """The open store."""

    def __init__(self, path: Path) -> None:
        try:
            self._connection: Any = duckdb.connect(
                str(path),
                config={"memory_limit": _MEMORY, "temp_directory": f"{path}.tmp", "preserve_insertion_order": "false"},
            )
            self._connection.execute(_LAYOUT).fetchall()
            if not self._connection.execute("SELECT count(*) FROM state").fetchall()[0][0]:
                self._connection.execute("INSERT INTO state VALUES (?, 0)", [uuid.uuid4().hex]).fetchall()
            self.id, self.last = self._connection.execute("SELECT id, last FROM state").fetchall()[0]
        except duckdb.Error as error:
            raise EngineFault(
                FaultKind.LOG_GAP, path.parent.name, f"{path.name} cannot be read: {type(error).__name__}"
            ) from error

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def transaction(self, number: int) -> Iterator[None]:
        """What the block changes is durable, with this number as the last cycle, or nothing of it is."""
        self._connection.begin()
        try:
            yield
            self._connection.execute("UPDATE state SET last = ?", [number]).fetchall()
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise
        self.last = number

    def known(self, relation: int) -> Known | None:
        rows = self._connection.execute(
            "SELECT schema, name, row_filter, record, keys, method FROM followed WHERE relation = ?", [relation]
        ).fetchall()
        if not rows:
            return None
        schema, name, row_filter, record, keys, method = rows[0]
        return Known(TableName(schema, name), row_filter, bytes(record), tuple(keys.split("\0")), method)

    def forget(self, relation: int) -> None:
        self._connection.execute(f"DROP TABLE IF EXISTS rows_{relation}").fetchall()
        self._connection.execute("DELETE FROM followed WHERE relation = ?", [relation]).fetchall()

    def followed(self) -> dict[int, TableName]:
        rows = self._connection.execute("SELECT relation, schema, name FROM followed").fetchall()
        return {int(relation): TableName(schema, name) for relation, schema, name in rows}

    def follow(self, relation: int, known: Known) -> None:
        self._connection.execute(
            f"CREATE TABLE IF NOT EXISTS rows_{relation} (key BLOB, low BIGINT, high BIGINT)"
        ).fetchall()
        self._connection.execute(
            "INSERT OR REPLACE INTO followed VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                relation,
                known.name.schema,
                known.name.name,
                known.row_filter,
                known.record,
                "\0".join(known.keys),
                known.method,
            ],
        ).fetchall()

    def comparison(self, relation: int) -> RowComparison:
        """Of a followed table."""
        return RowComparison(self._connection, f"rows_{relation}")


class RowComparison:
    """Compares the rows of one table, given in pieces, with the store, and then makes the store like them.

    Pieces are tables as of `row_digest.keyed_lines`; keys are unique. `inserted`, `updated`, `deleted`: rows so far.
    """

    def __init__(self, connection: Any, rows: str) -> None:
        self._connection = connection
        self._rows = rows
        self.inserted = self.updated = self.deleted = self.read = 0
        self._stored = int(connection.execute(f"SELECT count(*) FROM {rows}").fetchall()[0][0])
        connection.execute("CREATE OR REPLACE TEMP TABLE seen (key BLOB)").fetchall()
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE changed (key BLOB, low BIGINT, high BIGINT, op UTINYINT)"
        ).fetchall()

    def fill(self, piece: Any) -> None:
        """Take over rows without a comparison, for a store without rows."""
        self.read += piece.num_rows
        with self._given(piece=piece):
            self._connection.execute(f"INSERT INTO {self._rows} SELECT key, low, high FROM piece").fetchall()

    def changes(self, piece: Any) -> Any:
        """Rows that were inserted or updated, as a pyarrow.Table with `op`, the operation's letter, and the piece's columns."""
        self.read += piece.num_rows
        with self._given(piece=piece):
            found = self._connection.sql(_CHANGED.format(rows=self._rows)).to_arrow_table()
            self._connection.execute("INSERT INTO seen SELECT key FROM piece").fetchall()
        if found.num_rows:
            with self._given(found=found):
                self._connection.execute("INSERT INTO changed SELECT key, low, high, op FROM found").fetchall()
            updated = int(pc.sum(pc.equal(found.column("op"), UPDATE)).as_py())
            self.inserted += found.num_rows - updated
            self.updated += updated
        return found

    def changed_of(self, piece: Any) -> Any:
        """The rows of the piece that `changes` found before, with `op`."""
        with self._given(piece=piece):
            return self._connection.sql(
                "SELECT c.op, p.line FROM piece AS p JOIN changed AS c USING (key)"
            ).to_arrow_table()

    def changed_keys(self) -> list[bytes]:
        """The keys that `changes` found."""
        return [key for (key,) in self._connection.execute("SELECT key FROM changed").fetchall()]

    def finish(self) -> Any:
        """The rows that are gone, as a pyarrow.Table with `line`, the key's fields as a line of COPY text; the store is like the rows that
        were given now."""
        self.deleted = self._stored - (self.read - self.inserted)
        if self.deleted < 0:
            raise EngineFault(FaultKind.TABLE_NO_IDENTITY, self._rows, "several rows of the table have the same key")
        gone = self._connection.sql(
            f"SELECT key FROM {self._rows} ANTI JOIN seen USING (key)"
            if self.deleted
            else "SELECT key FROM seen LIMIT 0"
        ).to_arrow_table()
        with self._given(gone=gone):
            if self.updated or self.deleted:
                self._connection.execute(
                    f"DELETE FROM {self._rows} WHERE key IN (SELECT key FROM changed UNION ALL SELECT key FROM gone)"
                ).fetchall()
            self._connection.execute(f"INSERT INTO {self._rows} SELECT key, low, high FROM changed").fetchall()
            return self._connection.sql("SELECT key || chr(10)::BLOB AS line FROM gone").to_arrow_table()

    @contextmanager
    def _given(self, **tables: Any) -> Iterator[None]:
        """Tables of pyarrow are visible under these names in the block."""
        for name, table in tables.items():
            self._connection.register(name, table)
        try:
            yield
        finally:
            for name in tables:
                self._connection.unregister(name)
