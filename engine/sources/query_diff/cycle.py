"""One cycle: reads every followed table in one snapshot, compares it with the last cycle, and writes down what changed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.source import TableSplit
from engine.model.subscription import TableSpec
from engine.platform.clock import SystemClock
from engine.platform.failpoints import Failpoint, hit
from engine.records.landing import CopyLines
from engine.records.row_digest import hashed_lines, keyed_lines
from engine.sources.query_diff.cycle_files import (
    CycleFiles,
    CycleFound,
    CycleWriter,
    TableFound,
    deletes_schema,
    rows_schema,
)
from engine.sources.query_diff.cycle_numbers import CycleNumbers, locked, write_file
from engine.sources.query_diff.database import ComparedDatabase, ComparedTable, Method
from engine.sources.query_diff.row_store import Known, RowComparison, RowStore

PIECE_BYTES = 32 * 1024 * 1024
"""Bytes of rows that are compared at once. Not measured."""
SPLIT_BYTES = 256 * 1024 * 1024
"""Bytes of a table, estimated, that are read by one statement. Not measured."""
FEW_KEYS = 20_000
"""Changed rows up to which only these are read from a database that hashes rows; if there are more, all are. Not measured."""
_TRIES = 5
"""Snapshots that a cycle tries, if a table is changed in its structure while it is read."""
_OPERATIONS = {"insert": ord("I"), "update": ord("U"), "delete": ord("D")}
_INSERT_ONLY = frozenset({"insert"})
_AGAIN = frozenset({FaultKind.TABLE_STRUCTURE_CHANGED, FaultKind.TABLE_MISSING, FaultKind.COPY_LOST})


class StoppedError(Exception):
    """The cycle was given up because its process ends."""


@dataclass(frozen=True, slots=True)
class Follow:
    """How a table is followed. `where`: its row filter; `operations`: those that are wanted."""

    where: str | None
    operations: frozenset[str]

    @staticmethod
    def of(spec: TableSpec) -> Follow:
        return Follow(spec.where, spec.operations & (_INSERT_ONLY if spec.insert_only else _OPERATIONS.keys()))


@dataclass(frozen=True, slots=True)
class Folder:
    """What is kept of one subscription's source."""

    path: Path

    @property
    def files(self) -> CycleFiles:
        return CycleFiles(self.path)

    @property
    def numbers(self) -> CycleNumbers:
        return CycleNumbers(self.path)

    @property
    def exists(self) -> bool:
        return (self.path / "rows.duckdb").exists()

    @property
    def has_reader(self) -> bool:
        """Whether a reader began; before that, tables are only followed."""
        return (self.path / "durable").exists()

    @property
    def id(self) -> str | None:
        """A random name of what is kept; None if there is nothing."""
        try:
            return (self.path / "id").read_text(encoding="ascii")
        except FileNotFoundError:
            return None

    def make(self) -> None:
        """Create it if it is missing."""
        self.files.make()
        with locked(self.path / "cycle.lock"), closing(self.open_rows()) as rows:
            write_file(self.path / "id", rows.id.encode("ascii"), durable=True)

    def open_rows(self) -> RowStore:
        return RowStore(self.path / "rows.duckdb")

    @property
    def followed(self) -> dict[TableName, Follow]:
        """The tables that are compared."""
        try:
            listed = json.loads((self.path / "followed.json").read_bytes())
        except FileNotFoundError:
            return {}
        return {
            TableName(each["schema"], each["name"]): Follow(each["where"], frozenset(each["operations"]))
            for each in listed
        }

    def session(self) -> tuple[str, str]:
        """The last session that read, and its application; empty if there was none."""
        try:
            session, _, application = (self.path / "session").read_text(encoding="utf-8").partition("\n")
        except FileNotFoundError:
            return "", ""
        return session, application

    def set_session(self, session: str, application: str) -> None:
        write_file(self.path / "session", f"{session}\n{application}".encode())

    def follow(self, tables: Mapping[TableName, Follow]) -> None:
        """Compare these tables, and no others, from the next cycle on."""
        listed = [
            {"schema": name.schema, "name": name.name, "where": each.where, "operations": sorted(each.operations)}
            for name, each in tables.items()
        ]
        write_file(self.path / "followed.json", json.dumps(listed).encode("utf-8"), durable=True)


@contextmanager
def run_cycle(
    database: ComparedDatabase,
    folder: Folder,
    method: Method,
    timeout_s: float,
    check: Callable[[], None] = lambda: None,
) -> Iterator[tuple[str, int]]:
    """Run a cycle; yields the snapshot that it read, which lasts as long as the block, and its number.

    `check`: called repeatedly; what it raises ends the cycle without an effect. Raises EngineFault: SOURCE_TIMEOUT if another cycle runs
    for so long, LOG_GAP without a folder.
    """
    with ExitStack() as block:
        with locked(folder.path / "cycle.lock", timeout_s), closing(folder.open_rows()) as rows:
            folder.files.recover(rows.last)
            for left in reversed(range(_TRIES)):
                number = folder.numbers.begin(rows.last + 1)
                with ExitStack() as reading:
                    snapshot = reading.enter_context(database.snapshot(timeout_s))
                    cycle = _Cycle(database, rows, folder.files.begin(number), snapshot, method, check)
                    try:
                        cycle.run(folder, number)
                    except EngineFault as fault:
                        if fault.kind not in _AGAIN or not left:
                            raise
                        continue
                    block.push(reading.pop_all())
                    break
        yield snapshot, number


@dataclass(frozen=True, slots=True)
class _Cycle:
    database: ComparedDatabase
    rows: RowStore
    writer: CycleWriter
    snapshot: str
    method: Method
    check: Callable[[], None]

    def run(self, folder: Folder, number: int) -> None:
        """Compare every followed table that is there, make what was found durable, and publish it."""
        at_us, previous, followed = SystemClock().wall_us(), self.rows.last, folder.followed
        with self.rows.transaction(number):
            for relation, name in self.rows.followed().items():
                # One that is only away keeps its rows here: it may come back with changes.
                if name not in followed:
                    self.rows.forget(relation)
            there = self.database.tables({name: each.where for name, each in followed.items()})
            found = tuple(self._table(table, followed[name]) for name, table in there.items())
            self.writer.finish(CycleFound(number, previous, at_us, SystemClock().wall_us(), True, found))
            hit(Failpoint.CYCLE_WRITTEN)
        hit(Failpoint.CYCLE_COMMITTED)
        folder.files.publish(number)

    def _table(self, table: ComparedTable, follow: Follow) -> TableFound:
        began = time.monotonic()
        relation = int(table.schema.relation)
        known = self.rows.known(relation)
        now = Known(table.schema.name, follow.where, table.record, table.schema.key, self._method_of(table).value)
        unreadable = known is not None and known.keys != now.keys
        if known is None or unreadable:
            self.rows.forget(relation)
        method = Method(now.method if known is None or unreadable else known.method)
        self.rows.follow(relation, now)
        comparison = self.rows.comparison(relation)
        found = TableFound(
            table.schema.name.schema,
            table.schema.name.name,
            relation,
            table.unreadable if unreadable else table.record,
            len(table.schema.columns),
            table.key_places,
            now.method,
            unreadable=unreadable,
            filled=known is None or unreadable,
        )
        if found.filled:
            read = self._fill(table, comparison, method)
        else:
            read = self._compare(table, follow, comparison, method)
            if method.value != now.method:
                # Hashes of the two methods differ: the rows are hashed again, in the same snapshot.
                self.rows.forget(relation)
                self.rows.follow(relation, now)
                self._fill(table, self.rows.comparison(relation), Method(now.method))
        return replace(found, **read, seconds=round(time.monotonic() - began, 3))

    def _method_of(self, table: ComparedTable) -> Method:
        return self.method if self.method in self.database.methods(table) else Method.INCREMENTAL

    def _fill(self, table: ComparedTable, comparison: RowComparison, method: Method) -> dict[str, Any]:
        reading = _Reading(self, table)
        for piece in reading.hashes() if method is Method.ROW_CHECKSUM else reading.rows():
            comparison.fill(piece)
        return reading.counts

    def _compare(
        self, table: ComparedTable, follow: Follow, comparison: RowComparison, method: Method
    ) -> dict[str, Any]:
        relation = int(table.schema.relation)
        reading = _Reading(self, table)
        file = self.writer.file(f"{relation}.rows", rows_schema())
        if method is Method.ROW_CHECKSUM:
            for piece in reading.hashes():
                comparison.changes(piece)
            for piece in reading.changed(comparison):
                file.write(_wanted(comparison.changed_of(piece), follow))
        else:
            for piece in reading.rows():
                file.write(_wanted(comparison.changes(piece), follow))
        gone = self.writer.file(f"{relation}.deletes", deletes_schema())
        deleted = comparison.finish().cast(deletes_schema())
        if "delete" in follow.operations:
            gone.write(deleted)
        return {
            **reading.counts,
            "rows": file.name if file.rows else None,
            "deletes": gone.name if gone.rows else None,
            "inserted": comparison.inserted,
            "updated": comparison.updated,
            "deleted": comparison.deleted,
        }


class _Reading:
    """Reads of one table in a cycle, and what they cost."""

    def __init__(self, cycle: _Cycle, table: ComparedTable) -> None:
        self._cycle = cycle
        self._table = table
        self.counts: dict[str, Any] = {"rows_read": 0, "rows_hashed": 0, "bytes_read": 0}

    def rows(self) -> Iterator[Any]:
        """All rows, as of `keyed_lines`."""
        return self._rows(self._cycle.database.reads.splits(self._table.schema, self._table.spec, SPLIT_BYTES))

    def hashes(self) -> Iterator[Any]:
        """Keys and hashes of all rows, hashed by the database, as of `hashed_lines`."""
        for text in self._joined(self._cycle.database.hashed_rows(self._table, self._cycle.snapshot)):
            found = hashed_lines(text)
            self.counts["rows_hashed"] += found.num_rows
            yield found

    def changed(self, comparison: RowComparison) -> Iterator[Any]:
        """At least the rows whose hash changed."""
        count = comparison.inserted + comparison.updated
        if not count:
            return iter(())
        if count > FEW_KEYS:
            return self.rows()
        keys = _texts(comparison.changed_keys(), len(self._table.schema.key))
        return self._rows(self._cycle.database.reads.key_splits(self._table.schema, self._table.spec, keys))

    def _rows(self, splits: Sequence[TableSplit]) -> Iterator[Any]:
        fields, places = len(self._table.schema.columns), self._table.key_places
        for split in splits:
            for text in self._joined(self._cycle.database.reads.read_split(split, self._cycle.snapshot)):
                found = keyed_lines(text, fields, places)
                self.counts["rows_read"] += found.num_rows
                yield found

    def _joined(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The same text in pieces of about PIECE_BYTES."""
        held: list[bytes] = []
        size = 0
        for piece in pieces:
            self._cycle.check()
            held.append(piece)
            size += len(piece)
            if size >= PIECE_BYTES:
                yield self._counted(held)
                held, size = [], 0
        if held:
            yield self._counted(held)

    def _counted(self, pieces: Sequence[bytes]) -> bytes:
        text = b"".join(pieces)
        self.counts["bytes_read"] += len(text)
        return text


def _wanted(found: Any, follow: Follow) -> Any:
    """The rows that are followed, for a file of the cycle."""
    rows = found.select(["op", "line"]).cast(rows_schema())
    if follow.operations >= _OPERATIONS.keys():
        return rows
    wanted = pa.array([_OPERATIONS[each] for each in follow.operations], pa.uint8())
    return rows.filter(pc.is_in(rows.column("op"), wanted))


def _texts(keys: Sequence[bytes], fields: int) -> list[tuple[str, ...]]:
    """The texts of keys' fields."""
    lines = CopyLines.of(b"".join(key + b"\n" for key in keys), fields)
    data, starts, sizes = lines.data.tobytes(), lines.starts.tolist(), lines.sizes.tolist()
    return [
        tuple(data[at : at + size].decode("utf-8") for at, size in zip(*row, strict=True))
        for row in zip(starts, sizes, strict=True)
    ]
