"""Keys and hashes of every row as the last cycle found it: about 40 bytes a row, in a DuckDB file of the subscription.

Used by one process at a time, which holds the lock of the folder. What a cycle changes is one transaction, with the cycle's number.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.platform.relation_of_rows import RelationOfRows
from engine.sources.query_diff.moments import Moment
from engine.sources.query_diff.stamps import Stamp

_LAYOUT = """
CREATE TABLE IF NOT EXISTS state (id VARCHAR NOT NULL, last BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS followed (
    relation BIGINT PRIMARY KEY, schema VARCHAR NOT NULL, name VARCHAR NOT NULL, row_filter VARCHAR, record BLOB NOT NULL,
    keys VARCHAR NOT NULL, method VARCHAR NOT NULL);
ALTER TABLE followed ADD COLUMN IF NOT EXISTS hashes VARCHAR DEFAULT '';
ALTER TABLE state ADD COLUMN IF NOT EXISTS moment VARCHAR DEFAULT '';
CREATE TABLE IF NOT EXISTS unread (relation BIGINT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS stamps (relation BIGINT NOT NULL, name VARCHAR NOT NULL, value VARCHAR);
CREATE TABLE IF NOT EXISTS copies (relation BIGINT PRIMARY KEY, mark VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS ranges (
    relation BIGINT NOT NULL, place INTEGER NOT NULL, part INTEGER NOT NULL, first VARCHAR, rows BIGINT NOT NULL, low BIGINT NOT NULL,
    high BIGINT NOT NULL);
"""
_ROW = "(key BLOB, low BIGINT, high BIGINT, part INTEGER)"
_CHANGED = """
SELECT CASE WHEN s.key IS NULL THEN 73 ELSE 85 END::UTINYINT AS op, p.*, o.line AS old
FROM piece AS p LEFT JOIN {rows} AS s ON s.key = p.key LEFT JOIN {olds} AS o ON o.key = s.key
WHERE s.key IS NULL OR s.low <> p.low OR s.high <> p.high
"""
"""73, 85: the letters I and U."""
_GONE = "SELECT g.key || chr(10)::BLOB AS line, o.line AS old FROM {gone} AS g LEFT JOIN {olds} AS o ON o.key = g.key"
_OLDS = "SELECT p.key, p.line FROM piece AS p JOIN {rows} AS s ON s.key = p.key AND s.low = p.low AND s.high = p.high"
"""Rows of a copy that are those which the store knows, by their hashes."""
_KEYS = r"""
SELECT count(*), count(DISTINCT key), count(*) FILTER (regexp_matches(decode(key), '(^|\t)\\N(\t|$)')) FROM {rows}
"""
"""Rows, their keys, and rows whose key has a field that is NULL in COPY text."""
UPDATE = ord("U")
_GIVEN = ("piece", "found", "listed", "copied")
"""Names of tables of pyarrow in statements."""
_ROWS_AT_ONCE = 100_000
"""Deleted rows that are in memory at once. Not measured."""
_MEMORY = "1GB"
"""Memory of comparisons; what does not fit is written to files in its folder. Not measured."""


@dataclass(frozen=True, slots=True)
class Known:
    """A table as the last cycle found it: see TableFound. `keys`: names of the key columns; `hashes`: see ComparedTable, if the database
    hashed its rows."""

    name: TableName
    row_filter: str | None
    record: bytes
    keys: tuple[str, ...]
    method: str
    hashes: str = ""


@dataclass(frozen=True, slots=True)
class StoredRange:
    """Rows from the key `first` (texts of its fields; None: from the first row) up to the first key of the next range. `part`: its number
    in the store; `low`, `high`: exclusive or of its rows' hashes."""

    part: int
    first: tuple[str, ...] | None
    rows: int
    low: int
    high: int


class _Connection:
    """A connection, for statements that read tables of pyarrow."""

    def __init__(self, path: Path) -> None:
        config = {"memory_limit": _MEMORY, "temp_directory": f"{path}.tmp", "preserve_insertion_order": "false"}
        self._connection: Any = duckdb.connect(str(path), config=config)
        self._given = {name: RelationOfRows() for name in _GIVEN}
        for name, relation in self._given.items():
            self._connection.register(name, relation)
        self.begin, self.commit, self.rollback = (
            self._connection.begin,
            self._connection.commit,
            self._connection.rollback,
        )
        self.execute, self.sql, self.close = self._connection.execute, self._connection.sql, self._connection.close

    @contextmanager
    def given(self, **tables: Any) -> Iterator[None]:
        """Tables of pyarrow are visible under these names, of `_GIVEN`, in the block."""
        for name, table in tables.items():
            self._given[name].rows = table
        try:
            yield
        finally:
            for name in tables:
                self._given[name].clear()


class RowStore:
    """The open store."""

    def __init__(self, path: Path) -> None:
        try:
            self._connection = _Connection(path)
            run(self._connection, _LAYOUT)
            if not run(self._connection, "SELECT count(*) FROM state")[0][0]:
                run(self._connection, "INSERT INTO state (id, last) VALUES (?, 0)", [uuid.uuid4().hex])
            self.id, self.last, moment = run(self._connection, "SELECT id, last, moment FROM state")[0]
            self.moment = Moment.of(moment)
        except duckdb.Error as error:
            # DuckDB has no class of its own for this error.
            if "lock" in str(error):
                detail = f"another program has {path.name} open"
                raise EngineFault(FaultKind.SOURCE_TIMEOUT, path.parent.name, detail) from error
            detail = f"{path.name} cannot be read: {type(error).__name__}"
            raise EngineFault(FaultKind.LOG_GAP, path.parent.name, detail) from error

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def transaction(self, number: int) -> Iterator[None]:
        """What the block changes is durable, with this number as the last cycle, or nothing of it is.

        Raises EngineFault(QUEUE_DISK_FULL) if the store cannot be written.
        """
        try:
            self._connection.begin()
            yield
            run(self._connection, "UPDATE state SET last = ?", [number])
            self._connection.commit()
        except duckdb.Error as error:
            self._roll_back()
            kind = FaultKind.QUEUE_DISK_FULL if isinstance(error, duckdb.IOException) else FaultKind.INTERNAL
            raise EngineFault(kind, "rows.duckdb", f"{type(error).__name__} while rows were compared") from error
        except BaseException:
            self._roll_back()
            raise
        self.last = number

    def _roll_back(self) -> None:
        with suppress(duckdb.Error):  # What was not committed is gone when the store is closed.
            self._connection.rollback()

    def set_moment(self, moment: Moment) -> None:
        """`moment`: after which no snapshot of the cycle was taken. Later cycles have later ones."""
        run(self._connection, "UPDATE state SET moment = ?", [moment.text])

    def known(self, relation: int) -> Known | None:
        rows = run(
            self._connection,
            "SELECT schema, name, row_filter, record, keys, method, hashes FROM followed WHERE relation = ?",
            [relation],
        )
        if not rows:
            return None
        schema, name, row_filter, record, keys, method, hashes = rows[0]
        return Known(TableName(schema, name), row_filter, bytes(record), tuple(keys.split("\0")), method, hashes)

    def forget(self, relation: int) -> None:
        run(self._connection, f"DROP TABLE IF EXISTS rows_{relation}")
        for name in ("ranges", "stamps", "copies", "followed", "unread"):
            run(self._connection, f"DELETE FROM {name} WHERE relation = ?", [relation])

    def is_unread(self, relation: int) -> bool:
        """Whether the last cycle could not read the table; what is known of it is older."""
        return bool(run(self._connection, "SELECT count(*) FROM unread WHERE relation = ?", [relation])[0][0])

    def set_unread(self, relation: int, *, unread: bool) -> None:
        run(self._connection, "DELETE FROM unread WHERE relation = ?", [relation])
        if unread:
            run(self._connection, "INSERT INTO unread VALUES (?)", [relation])

    def followed(self) -> dict[int, TableName]:
        rows = run(self._connection, "SELECT relation, schema, name FROM followed")
        return {int(relation): TableName(schema, name) for relation, schema, name in rows}

    def follow(self, relation: int, known: Known) -> None:
        run(self._connection, f"CREATE TABLE IF NOT EXISTS rows_{relation} {_ROW}")
        run(
            self._connection,
            "INSERT OR REPLACE INTO followed VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                relation,
                known.name.schema,
                known.name.name,
                known.row_filter,
                known.record,
                "\0".join(known.keys),
                known.method,
                known.hashes,
            ],
        )

    @contextmanager
    def filling(self, relation: int, known: Known) -> Iterator[RowComparison]:
        """To be filled with all rows of a table, which replace what was known of it at the end of the block; an exception changes
        nothing."""
        fresh = f"fresh_{relation}"
        run(self._connection, f"CREATE OR REPLACE TABLE {fresh} {_ROW}")
        try:
            yield RowComparison(self._connection, fresh, None)
        except BaseException:
            run(self._connection, f"DROP TABLE {fresh}")
            raise
        self.forget(relation)
        run(self._connection, f"ALTER TABLE {fresh} RENAME TO rows_{relation}")
        self.follow(relation, known)

    def ranges(self, relation: int) -> list[StoredRange]:
        """The ranges of a table that is compared by them, in key order."""
        rows = run(
            self._connection,
            "SELECT part, first, rows, low, high FROM ranges WHERE relation = ? ORDER BY place",
            [relation],
        )
        return [
            StoredRange(part, None if first is None else tuple(json.loads(first)), *rest) for part, first, *rest in rows
        ]

    def set_ranges(self, relation: int, ranges: Sequence[StoredRange]) -> None:
        run(self._connection, "DELETE FROM ranges WHERE relation = ?", [relation])
        columns = {
            "relation": pa.array([relation] * len(ranges), pa.int64()),
            "place": pa.array(range(len(ranges)), pa.int32()),
            "part": pa.array([each.part for each in ranges], pa.int32()),
            "first": pa.array([None if each.first is None else json.dumps(each.first) for each in ranges], pa.string()),
            **{
                name: pa.array([getattr(each, name) for each in ranges], pa.int64()) for name in ("rows", "low", "high")
            },
        }
        with self._connection.given(found=pa.table(columns)):
            run(self._connection, "INSERT INTO ranges SELECT * FROM found")

    def stamp(self, relation: int, column: str) -> Stamp | None:
        """The stamp from which the next cycle has to read; None if that is not known."""
        rows = run(self._connection, "SELECT value FROM stamps WHERE relation = ? AND name = ?", [relation, column])
        return Stamp(column, rows[0][0]) if rows and rows[0][0] is not None else None

    def set_stamps(self, relation: int, values: Mapping[str, str | None]) -> None:
        """By column, or by the name of a stamp below a view; others are forgotten."""
        run(self._connection, "DELETE FROM stamps WHERE relation = ?", [relation])
        for name, value in values.items():
            run(self._connection, "INSERT INTO stamps VALUES (?, ?, ?)", [relation, name, value])

    def copy_mark(self, relation: int) -> str | None:
        """The mark of the copy on the source that has the same rows as the store; None if there is none."""
        rows = run(self._connection, "SELECT mark FROM copies WHERE relation = ?", [relation])
        return str(rows[0][0]) if rows else None

    def set_copy_mark(self, relation: int, mark: str | None) -> None:
        run(self._connection, "DELETE FROM copies WHERE relation = ?", [relation])
        if mark is not None:
            run(self._connection, "INSERT INTO copies VALUES (?, ?)", [relation, mark])

    def copied(self) -> list[int]:
        """The tables that have a copy on the source."""
        return [relation for (relation,) in run(self._connection, "SELECT relation FROM copies")]

    def comparison(self, relation: int, parts: Sequence[int] | None = None) -> RowComparison:
        """Of a followed table. `parts`: only of the rows in these ranges."""
        return RowComparison(self._connection, f"rows_{relation}", parts)


class RowComparison:
    """Compares the rows of one table, given in pieces, with the store, and then makes the store like them.

    Pieces are tables with the columns `key`, `low`, `high` as of `row_digest.keyed_lines`, and maybe others; keys are unique. `part` is the
    range of a row, where there are ranges. `inserted`, `updated`, `deleted`: rows so far.
    """

    def __init__(self, connection: _Connection, rows: str, parts: Sequence[int] | None) -> None:
        self._connection = connection
        self._rows = rows
        self._stored_rows = rows
        self._by_parts = parts is not None
        if parts is not None:
            run(connection, "CREATE OR REPLACE TEMP TABLE parts (part INTEGER)")
            with connection.given(listed=pa.table([pa.array(parts, pa.int32())], ["part"])):
                run(connection, "INSERT INTO parts SELECT part FROM listed")
            self._stored_rows = f"(SELECT * FROM {rows} SEMI JOIN parts USING (part))"
        self.inserted = self.updated = self.deleted = self.read = 0
        self._has_filled = False
        self._stored = int(run(connection, f"SELECT count(*) FROM {self._stored_rows}")[0][0])
        run(connection, f"CREATE OR REPLACE TEMP TABLE seen {_ROW}")
        run(connection, "CREATE OR REPLACE TEMP TABLE changed (key BLOB, low BIGINT, high BIGINT, op UTINYINT)")
        run(connection, "CREATE OR REPLACE TEMP TABLE gone (key BLOB)")
        run(connection, "CREATE OR REPLACE TEMP TABLE olds (key BLOB, line BLOB)")
        self._olds, self._copied = (
            "olds",
            pa.table({"key": pa.array([], pa.binary()), "line": pa.array([], pa.binary())}),
        )

    def fill(self, piece: Any) -> None:
        """Take over rows without a comparison, for a store without rows."""
        self.read += piece.num_rows
        self._has_filled = True
        with self._connection.given(piece=piece):
            run(self._connection, f"INSERT INTO {self._rows} SELECT key, low, high, {_part(piece)} FROM piece")

    def know_olds(self, piece: Any, *, only: bool) -> None:
        """Rows of a copy, as pieces are, which become the old rows of the changes from here on, if the store has the same ones. `only`:
        without the ones that were given before."""
        with self._connection.given(piece=piece):
            olds = _OLDS.format(rows=self._stored_rows)
            if only:
                # Rows that are deleted from a table of DuckDB stay in memory until the transaction ends.
                self._olds, self._copied = "copied", self._connection.sql(olds).to_arrow_table()
            else:
                run(self._connection, f"INSERT INTO olds {olds}")

    def changes(self, piece: Any) -> Any:
        """Rows that were inserted or updated, as a pyarrow.Table with `op`, the operation's letter, `old`, the line before, if it is known,
        and the piece's columns."""
        self.read += piece.num_rows
        with self._connection.given(piece=piece, copied=self._copied):
            found = self._connection.sql(_CHANGED.format(rows=self._stored_rows, olds=self._olds)).to_arrow_table()
            kept = f"key, low, high, {_part(piece)}" if self._by_parts else "key, NULL, NULL, NULL"
            run(self._connection, f"INSERT INTO seen SELECT {kept} FROM piece")
        if found.num_rows:
            with self._connection.given(found=found):
                run(self._connection, "INSERT INTO changed SELECT key, low, high, op FROM found")
            updated = int(pc.sum(pc.equal(found.column("op"), UPDATE)).as_py())
            self.inserted += found.num_rows - updated
            self.updated += updated
        return found

    def changed_of(self, piece: Any) -> Any:
        """The rows of the piece that `changes` found before, with `op`."""
        with self._connection.given(piece=piece):
            return self._connection.sql(
                "SELECT c.op, p.line FROM piece AS p JOIN changed AS c USING (key)"
            ).to_arrow_table()

    @contextmanager
    def held(self) -> Iterator[HeldRows]:
        """For rows that are given to `changes` later, in the block."""
        run(self._connection, "CREATE OR REPLACE TEMP TABLE looked (key BLOB, op UTINYINT)")
        run(self._connection, "CREATE OR REPLACE TEMP TABLE held (op UTINYINT, line BLOB)")
        try:
            yield HeldRows(self._connection, self._stored_rows)
        finally:
            run(self._connection, "DROP TABLE looked")
            run(self._connection, "DROP TABLE held")

    def changed_keys(self, most: int) -> Iterator[list[bytes]]:
        """The keys that `changes` found, in order, `most` at once."""
        keys = self._connection.sql("SELECT key FROM changed ORDER BY key").to_arrow_table().column("key")
        for begin in range(0, len(keys), most):
            yield keys.slice(begin, most).to_pylist()

    def check_keys(self) -> None:
        """Raises EngineFault(TABLE_NO_IDENTITY) if a row that was given has NULL in its key, or that of another one."""
        held = self._rows if self._has_filled else "seen"
        rows, keys, absent = run(self._connection, _KEYS.format(rows=held))[0]
        if rows != keys or absent:
            raise EngineFault(
                FaultKind.TABLE_NO_IDENTITY, self._rows, "rows have NULL in their key, or that of another"
            )

    def left(self, piece: Any) -> Any:
        """Those rows with the keys of the piece that the store has, as of `finish`: they are gone."""
        with self._connection.given(piece=piece):
            found = self._connection.sql(
                f"SELECT s.key FROM piece AS p JOIN {self._rows} AS s ON s.key = p.key"
            ).to_arrow_table()
        return self._gone(found)

    def missing(self, places: Sequence[int], lines: Sequence[bytes]) -> Any:
        """As `left`, those rows that were not given, and whose fields of the key at these places are one of these lines."""
        with self._connection.given(listed=pa.table([pa.array(lines, pa.large_binary())], ["line"])):
            found = self._connection.sql(
                f"SELECT s.key FROM {self._rows} AS s SEMI JOIN listed AS l ON l.line = {_fields(places)}"
                " ANTI JOIN seen USING (key) ANTI JOIN gone USING (key)"
            ).to_arrow_table()
        return self._gone(found)

    def _gone(self, found: Any) -> Any:
        self.deleted += found.num_rows
        with self._connection.given(found=found, copied=self._copied):
            run(self._connection, "INSERT INTO gone SELECT key FROM found")
            return self._connection.sql(_GONE.format(gone="found", olds=self._olds)).to_arrow_table()

    def keep(self) -> None:
        """The store is like the rows that were given now, without those of `left`; what it has besides them stays."""
        if self.updated or self.deleted:
            left = "SELECT key FROM changed UNION ALL SELECT key FROM gone"
            run(self._connection, f"DELETE FROM {self._rows} WHERE key IN ({left})")
        run(self._connection, f"INSERT INTO {self._rows} SELECT key, low, high, 0 FROM changed")

    def finish(self) -> Iterator[Any]:
        """The rows that are gone, as pyarrow.Table with `line`, the key's fields as a line of COPY text, and `old`, as of `changes`. When
        the iterator has ended, the store is like the rows that were given."""
        connection, rows = self._connection, self._rows
        self.deleted = self._stored - (self.read - self.inserted)
        if self.deleted < 0:
            raise EngineFault(FaultKind.TABLE_NO_IDENTITY, rows, "several rows of the table have the same key")
        missing = f"SELECT key FROM {self._stored_rows} ANTI JOIN seen USING (key)"
        run(
            connection,
            f"CREATE OR REPLACE TEMP TABLE gone AS {missing if self.deleted else 'SELECT key FROM seen LIMIT 0'}",
        )
        with connection.given(copied=self._copied):
            lines = _GONE.format(gone="gone", olds=self._olds)
            for batch in connection.sql(lines).to_arrow_reader(_ROWS_AT_ONCE):
                yield pa.Table.from_batches([batch])
        if self._by_parts:
            run(connection, f"DELETE FROM {rows} WHERE part IN (SELECT part FROM parts)")
            run(connection, f"INSERT INTO {rows} SELECT * FROM seen")
            return
        self.keep()


class HeldRows:
    """Rows that differ from the store, before that is recorded: they may still be forgotten."""

    def __init__(self, connection: _Connection, stored_rows: str) -> None:
        self._connection = connection
        self._stored_rows = stored_rows

    def look(self, piece: Any) -> None:
        """Note which rows of a piece, as of `RowComparison.changes`, differ."""
        with self._connection.given(piece=piece):
            run(
                self._connection,
                f"INSERT INTO looked SELECT key, op FROM ({_CHANGED.format(rows=self._stored_rows, olds='olds')})",
            )

    def keys(self) -> list[bytes]:
        """The keys of those that differ."""
        return [key for (key,) in run(self._connection, "SELECT key FROM looked")]

    def add(self, piece: Any) -> None:
        """Hold those rows of the piece that differ: it has `line`."""
        with self._connection.given(piece=piece):
            run(
                self._connection,
                "INSERT INTO held SELECT l.op, p.line FROM piece AS p JOIN looked AS l USING (key)",
            )

    def rows(self) -> Iterator[Any]:
        """Those that were added, as pyarrow.Table with `op` and `line`."""
        for batch in self._connection.sql("SELECT op, line FROM held").to_arrow_reader(_ROWS_AT_ONCE):
            yield pa.Table.from_batches([batch])


def run(connection: _Connection, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    """Run a statement to its end; its rows."""
    rows: list[tuple[Any, ...]] = connection.execute(sql, list(values)).fetchall()
    return rows


def _fields(places: Sequence[int]) -> str:
    """Those fields of a stored key, as a line."""
    listed = ", ".join(f"string_split(decode(s.key), chr(9))[{place + 1}]" for place in places)
    return f"encode(concat_ws(chr(9), {listed}))"


def _part(piece: Any) -> str:
    return "part" if "part" in piece.column_names else "0"
