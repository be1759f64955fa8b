"""Subscriptions of SQLite files, captured by triggers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.model.identity import Epoch, SubscriptionName
from engine.model.subscription import CaptureSpec, ConnectionSpec, QueueMode, SubscriptionSpec, TableSpec
from tests.fixtures.replication import Replica, duckdb_target, table


class File:
    """A SQLite file of a test's own."""

    def __init__(self, path: Path, journal: str = "WAL", capture: CaptureSpec | None = None) -> None:
        self.path = path
        self.capture = capture or CaptureSpec("triggers")
        with self.connect() as connection:
            connection.execute(f"PRAGMA journal_mode = {journal}")

    @property
    def connection(self) -> ConnectionSpec:
        settings: dict[str, str | int] = {"path": str(self.path), "snapshot_folder": str(self.path.parent)}
        return ConnectionSpec("shop", "sqlite", settings, {}, self.capture)

    @contextmanager
    def connect(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA foreign_keys = ON")
        with closing(connection):
            yield connection

    def execute(self, script: str) -> None:
        with self.connect() as connection:
            connection.executescript(script)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            return connection.execute(query).fetchall()


class FileReplica(Replica):
    """A subscription into a DuckDB file."""

    def __init__(self, source: File, folder: Path, spec: SubscriptionSpec, **settings: Any) -> None:
        self.source = source
        super().__init__(source, folder, spec, **settings)  # type: ignore[arg-type]


Replicate = Callable[..., FileReplica]


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "shop.db")


@pytest.fixture
def replicate(tmp_path: Path) -> Iterator[Replicate]:
    """Starts subscriptions: `replicate(file, "orders", queue_mode=QueueMode.PERSIST)`. `guard_…`: settings of the engine."""
    started: list[FileReplica] = []

    def start(
        file: File, *names: str | TableSpec, queue_mode: QueueMode = QueueMode.MEMORY, live: bool = True, **given: Any
    ) -> FileReplica:
        folder = tmp_path / f"home{len(started)}"
        folder.mkdir()
        engine = {name: given.pop(name) for name in ("guard_interval_s", "guard_patience_s") if name in given}
        tables = tuple(table(name, "main") if isinstance(name, str) else name for name in names)
        name = f"s{len(started)}"
        spec = SubscriptionSpec(
            SubscriptionName(name),
            Epoch(1),
            file.connection,
            duckdb_target(folder),
            tables,
            f"penstock_{name}",
            queue_mode=queue_mode,
            **given,
        )
        replica = FileReplica(file, folder, spec, **engine)
        started.append(replica)
        if live:
            replica.wait_live()
        return replica

    yield start
    for replica in started:
        replica.close()
