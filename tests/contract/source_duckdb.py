"""A DuckDB file as the source under contract: only queried, while a process of its own writes to it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from engine.model.identity import TableId, TableName
from engine.model.source import Scanner, Source
from engine.model.subscription import FOLDER, CaptureSpec, ConnectionSpec, TableSpec
from engine.records.scan import RecordScanner
from engine.sources.duckdb_queries.source import open_source
from tests.contract.source_material import Can, Session
from tests.fixtures.duckdb_program import DuckDbProgram


class DuckDbOrigin:
    """Origin over one file. Nothing is followed before a test begins."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._path = folder / "shop.duckdb"
        self._stack = stack
        self.can = frozenset({Can.SELECT_COLUMNS, Can.SNAPSHOT_ALONE, Can.BEGIN_ANYWHERE})
        self.scanner: Scanner = RecordScanner()
        self.slot = "contract"
        self._program = DuckDbProgram(self._path)
        stack.callback(self._program.close)
        self._program.run("SELECT 1")
        self.source: Source = self.open()
        self.source.sent_tables.prepare([], self.slot)

    def open(self) -> Source:
        kept = self._path.parent / "cycles" / self.slot
        capture = CaptureSpec("query_diff", {"every_seconds": 3600, FOLDER: str(kept)})
        settings = {"path": str(self._path), "snapshot_folder": str(self._path.parent)}
        source = open_source(ConnectionSpec("shop", "duckdb", settings, {}, capture))
        self._stack.callback(source.close)
        return source

    def table(self, name: str, **options: Any) -> TableSpec:
        source = TableName("main", name)
        return TableSpec(TableId("t" + name.encode().hex()), source, source, **options)

    @contextmanager
    def session(self) -> Iterator[Session]:
        with self._program.session() as session:
            yield session

    def stream_early(self) -> None:
        raise NotImplementedError("cycles have committed changes only")

    def stop(self) -> None:
        self._path.rename(self._path.with_suffix(".away"))

    def start(self) -> None:
        self._path.with_suffix(".away").rename(self._path)


def duckdb_file(fixture: Callable[[str], Any], stack: ExitStack, own: bool) -> DuckDbOrigin:
    """A factory, as `postgres`."""
    del fixture, own
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    return DuckDbOrigin(Path(folder), stack)
