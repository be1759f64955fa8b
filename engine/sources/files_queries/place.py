"""A folder of files as the place of tables.

A snapshot is the set of the tables' files at one moment: they are listed, opened, and listed again until both lists are the same. What is
open stays as it was when another file takes its name or it is removed; that nothing was written into it is checked after each read.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb

from engine.duckdb.value_text import quoted
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.source import Finding
from engine.model.subscription import ConnectionSpec
from engine.sources.duckdb.catalog import LiveTable, ReadStructure, keyed
from engine.sources.duckdb.connect import connected
from engine.sources.duckdb.lines import ERRORS
from engine.sources.duckdb.settled import unsettled_ns
from engine.sources.files_queries.columns import (
    GROUP,
    GROUPS,
    CsvForm,
    PartFacts,
    UnfitPartError,
    csv_facts,
    csv_rows,
    joined,
    kinds_of,
    parquet_facts,
    parquet_rows,
)
from engine.sources.files_queries.listing import Listed, Listing, Part, listed
from engine.sources.query_diff.given import given_by

_K = FaultKind
_MOST_OPEN = 256
"""Files that a snapshot has open; further ones are read by their paths, so that the snapshot is over when one is replaced. Programs may
have 1,024 files open by default."""
_DELIMITERS = {"tab": "\t"}
_TRIES = 20
"""Lists of the folder until two are the same."""
_MOST_KNOWN = 100_000
"""Files whose columns are remembered. Not measured."""
_READ = (
    "Let the engine's user read the folder, the folders in it and their files; the path must be that of a folder on the engine's"
    " machine."
)


@contextmanager
def _opened_once() -> Iterator[Callable[[], Any]]:
    """Gives a connection of DuckDB for the block: to open one takes longer than to read the facts of a part, and most are known."""
    with ExitStack() as block:

        @cache
        def opened() -> Any:
            connection = connected(None)
            block.callback(connection.close)
            return connection

        yield opened


class FilesFolder:
    """`Place` over a folder."""

    remedies: Mapping[str, str] = {
        _K.SOURCE_UNREACHABLE.value: _READ,
        _K.SOURCE_PRIVILEGE.value: _READ,
        _K.TABLE_NAME_COLLISION.value: "Rename one of the two tables, or leave one of them out.",
        _K.COPY_LOST.value: "Put files in place by renaming them, several at once by renaming their folder; check again.",
        "table": "Correct the files or the table's `columns` in capture.tables, or take the table out of the subscription.",
    }

    def __init__(self, spec: ConnectionSpec) -> None:
        self.name = spec.name
        settings = spec.settings
        self._path = str(settings.get("path", ""))
        self._form = str(settings.get("format", "parquet"))
        self._csv = CsvForm(
            _DELIMITERS.get(str(settings.get("delimiter", ",")), str(settings.get("delimiter", ","))),
            settings.get("header", "names") == "names",
            str(settings.get("null_text", "")),
        )
        self._secrets = spec.secrets
        self._declared = given_by(spec).tables
        self._lock = threading.Lock()
        self._known: dict[Part, PartFacts] = {}

    def secret(self, name: str) -> str | None:
        return self._secrets.get(name)

    def check(self) -> None:
        if not Path(self._path).is_dir():
            raise EngineFault(_K.SOURCE_UNREACHABLE, self.name, f"the folder {self._path} cannot be read")

    def declared_key(self, table: TableName) -> Sequence[str]:
        declared = self._declared.get(str(table))
        return () if declared is None else declared.key or ()

    def _columns(self, table: TableName) -> Mapping[str, str]:
        declared = self._declared.get(str(table))
        return {} if declared is None else declared.columns

    def tables(self, names: Collection[TableName] | None = None) -> dict[TableName, LiveTable]:
        found: dict[TableName, LiveTable] = {}
        for _ in range(_TRIES):
            there = self._listed(names)
            paths = {part: part.path for each in there.values() for part in each.parts}
            with _opened_once() as opened:
                found = {name: self._live(name, each, paths, opened) for name, each in there.items()}
            # A file that is replaced meanwhile cannot be read, and is no problem of its table.
            if all(table.problem is None for table in found.values()) or self._listed(names) == there:
                break
        return found

    def _listed(self, names: Collection[TableName] | None) -> Listing:
        found = listed(self._path, self._form, self.name)
        return {name: each for name, each in found.items() if names is None or name in names}

    def _live(self, name: TableName, files: Listed, paths: Mapping[Part, str], opened: Callable[[], Any]) -> LiveTable:
        """`paths`: by which the parts are opened; `opened`: gives the connection that reads them."""
        try:
            if files.problem is not None:
                raise UnfitPartError(files.problem)
            facts = [(part, self._facts(name, part, paths[part], opened)) for part in files.parts]
            columns = kinds_of(joined(facts, self._form), self._columns(name))
        except UnfitPartError as unfit:
            return LiveTable(ReadStructure(name, (), (), declared=False), 0, 0, problem=str(unfit))
        structure, unreadable = keyed(name, columns, (), self.declared_key(name))
        rows, size = sum(each.rows for _, each in facts), sum(part.size for part in files.parts)
        problem = None if structure.columns else "it has no column whose values can be replicated"
        return LiveTable(structure, rows, size, unreadable, problem)

    def _facts(self, table: TableName, part: Part, path: str, opened: Callable[[], Any]) -> PartFacts:
        """Raises UnfitPartError."""
        declared = tuple(self._columns(table))
        with self._lock:
            if part not in self._known:
                try:
                    found = self._read_facts(part, path, declared, opened)
                    stays = Part.of(part.path, Path(path).stat()) == part
                except ERRORS as error:
                    raise UnfitPartError(
                        f"{part.name} cannot be read as {self._form} ({type(error).__name__})"
                    ) from error
                if not stays or unsettled_ns(part.changed_ns):
                    return found
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[part] = found
            return self._known[part]

    def _read_facts(self, part: Part, path: str, declared: Sequence[str], opened: Callable[[], Any]) -> PartFacts:
        if self._form == "csv":
            return csv_facts(path, part.name, self._csv, declared)
        return parquet_facts(opened(), path)

    @contextmanager
    def hold(self) -> Iterator[HeldFiles]:
        names = frozenset(name for name in map(_name_of, self._declared) if name is not None)
        with ExitStack() as block:
            files, descriptors = self._held(names, block)
            paths = {
                part: f"/proc/self/fd/{descriptors[part]}" if part in descriptors else part.path
                for each in files.values()
                for part in each.parts
            }
            connection = connected(None)
            block.callback(connection.close)
            tables = {name: self._live(name, each, paths, lambda: connection) for name, each in files.items()}
            yield HeldFiles(connection, tables, files, paths, descriptors, self)

    def _held(self, names: Collection[TableName], block: ExitStack) -> tuple[Listing, dict[Part, int]]:
        """The files as they are at one moment, and descriptors of them, which the block closes.

        Raises EngineFault(COPY_LOST) if they change all the time.
        """
        for _ in range(_TRIES):
            files = self._listed(names)
            parts = [part for each in files.values() for part in each.parts]
            with ExitStack() as opened:
                descriptors = {}
                for part in parts[:_MOST_OPEN]:
                    descriptor = _open(part.path)
                    if descriptor is None:
                        break
                    opened.callback(os.close, descriptor)
                    descriptors[part] = descriptor
                if len(descriptors) < min(len(parts), _MOST_OPEN) or self._listed(names) != files:
                    continue
                # What is written into a file from here on shows in its time.
                time.sleep(max([0, *(unsettled_ns(part.changed_ns) for part in parts)]) / 1e9)
                if all(_is_same(part, descriptors.get(part)) for part in parts):
                    block.push(opened.pop_all())
                    return files, descriptors
        raise EngineFault(_K.COPY_LOST, self.name, "the files change all the time")

    def rows_of(self, structure: ReadStructure) -> str:
        return quoted(f"table {structure.number}")

    def parts_of(self, table: LiveTable, most: int) -> list[str]:
        """Ranges of groups of files."""
        count = max(1, min(most, GROUPS))
        cuts = [GROUPS * part // count for part in range(count + 1)]
        if count == 1:
            return [""]
        return [f"t.{quoted(GROUP)} >= {low} AND t.{quoted(GROUP)} < {high}" for low, high in pairwise(cuts)]

    def findings(self) -> list[Finding]:
        return []

    def close(self) -> None:
        """Nothing is held."""

    def query_of(self, files: Listed, table: TableName, paths: Mapping[Part, str], opened: Callable[[], Any]) -> str:
        """A query for all rows of a table. `opened`: gives the connection that reads what is not known of its parts."""
        if self._form == "csv":
            by_form: dict[tuple[int, bool, tuple[str, ...]], list[str]] = {}
            for part in files.parts:
                names = tuple(name for name, _ in self._facts(table, part, paths[part], opened).columns)
                by_form.setdefault((_group(part), part.path.endswith(".gz"), names), []).append(paths[part])
            return csv_rows(by_form, self._csv)
        by_group: dict[int, list[str]] = {}
        for part in files.parts:
            by_group.setdefault(_group(part), []).append(paths[part])
        return parquet_rows(by_group)


class HeldFiles:
    """`HeldTables` of files that are open, up to a number of them."""

    def __init__(
        self,
        connection: Any,
        tables: Mapping[TableName, LiveTable],
        files: Listing,
        paths: Mapping[Part, str],
        descriptors: Mapping[Part, int],
        folder: FilesFolder,
    ) -> None:
        self.connection = connection
        self._tables = tables
        self._files = files
        self._paths = paths
        self._descriptors = descriptors
        self._folder = folder

    def table(self, name: TableName) -> LiveTable | None:
        return self._tables.get(name)

    def interrupt(self) -> None:
        self.connection.interrupt()

    def provide(self, table: LiveTable) -> None:
        name = table.structure.table_name
        files = self._files[name]
        query = self._folder.query_of(files, name, self._paths, lambda: self.connection)
        view = self._folder.rows_of(table.structure)
        self.connection.execute(f"CREATE VIEW IF NOT EXISTS {view} AS {query}").fetchall()

    def check(self, table: LiveTable, subject: str) -> None:
        for part in self._files[table.structure.table_name].parts:
            if not _is_same(part, self._descriptors.get(part)):
                raise EngineFault(_K.COPY_LOST, subject, f"{part.name} was changed while it was read")

    def fault(self, error: BaseException, subject: str) -> EngineFault:
        if isinstance(error, duckdb.InterruptException | duckdb.ConnectionException):
            return EngineFault(_K.COPY_LOST, subject, f"the read was ended ({type(error).__name__})")
        if isinstance(error, duckdb.OutOfMemoryException):
            return EngineFault(_K.SOURCE_TIMEOUT, subject, "DuckDB has not enough memory to read the table")
        detail = f"a part cannot be read as the settings of the connection say ({type(error).__name__})"
        return EngineFault(_K.VALUE_OUT_OF_DOMAIN, subject, detail)


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _is_same(part: Part, descriptor: int | None) -> bool:
    """Whether nothing was written into a part since it was listed. `descriptor`: where it is open; None: it is at its path."""
    try:
        found = Path(part.path).stat() if descriptor is None else os.fstat(descriptor)
    except OSError:
        return False
    return Part.of(part.path, found) == part


def _group(part: Part) -> int:
    return zlib.crc32(part.name.encode("utf-8")) % GROUPS


def _name_of(text: str) -> TableName | None:
    schema, dot, name = text.partition(".")
    return TableName(schema, name) if dot and name else None
