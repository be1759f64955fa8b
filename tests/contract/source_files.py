"""A folder of files as the source under contract: an application puts other files in place after each transaction."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from engine.model.identity import TableId, TableName
from engine.model.source import Scanner, Source
from engine.model.subscription import FOLDER, CaptureSpec, ConnectionSpec, TableSpec
from engine.records.scan import RecordScanner
from engine.sources.files_queries.source import open_source
from tests.contract.source_material import Can, Session
from tests.fixtures.file_tables import FileTables, declared

_BY_ID = ("id",), {"id": "bigint"}
_TABLES = {
    **dict.fromkeys(("notes", "more", "moving", "history"), _BY_ID),
    "order_lines": (("n", "order_id"), {"n": "integer", "order_id": "bigint", "price": "decimal(10, 2)"}),
}


class FilesOrigin:
    """Origin over one folder. Nothing is followed before a test begins."""

    def __init__(self, folder: Path, form: str, stack: ExitStack) -> None:
        self._folder = folder
        self._form = form
        self._stack = stack
        self.can = frozenset({Can.SELECT_COLUMNS, Can.SNAPSHOT_ALONE, Can.BEGIN_ANYWHERE})
        self.scanner: Scanner = RecordScanner()
        self.slot = "contract"
        self._tables = FileTables(folder, form)
        stack.callback(self._tables.close)
        self.source: Source = self.open()
        self.source.sent_tables.prepare([], self.slot)

    def open(self) -> Source:
        tables = declared(_TABLES)
        if self._form == "parquet":
            tables = {name: {"key": each["key"]} for name, each in tables.items()}
        kept = self._folder / "cycles" / self.slot
        settings = {"every_seconds": 3600, FOLDER: str(kept), "tables": json.dumps(tables)}
        capture = CaptureSpec("query_diff", settings)
        source = open_source(
            ConnectionSpec("shop", "files", {"path": str(self._tables.path), "format": self._form}, {}, capture)
        )
        self._stack.callback(source.close)
        return source

    def table(self, name: str, **options: Any) -> TableSpec:
        source = TableName("files", name)
        return TableSpec(TableId("t" + name.encode().hex()), source, source, **options)

    @contextmanager
    def session(self) -> Iterator[Session]:
        with self._tables.session() as session:
            yield session

    def stream_early(self) -> None:
        raise NotImplementedError("files have committed changes only")

    def stop(self) -> None:
        self._tables.path.rename(self._tables.path.with_suffix(".away"))

    def start(self) -> None:
        self._tables.path.with_suffix(".away").rename(self._tables.path)


def files(form: str) -> Callable[[Callable[[str], Any], ExitStack, bool], FilesOrigin]:
    """A factory, as `postgres`."""

    def make(fixture: Callable[[str], Any], stack: ExitStack, own: bool) -> FilesOrigin:
        del fixture, own
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        return FilesOrigin(Path(folder), form, stack)

    return make
