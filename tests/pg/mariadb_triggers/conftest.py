"""Subscriptions whose source is MariaDB, captured by triggers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.model.subscription import ConnectionSpec, QueueMode, TableSpec
from tests.fixtures.mariadb import MariaDbDatabase
from tests.fixtures.replication import Replica, duckdb_target, subscription_spec, table

Replicate = Callable[..., Replica]


def connection(database: MariaDbDatabase) -> ConnectionSpec:
    return ConnectionSpec("shop", "mariadb", database.settings, database.secrets)


@pytest.fixture
def replicate(tmp_path: Path) -> Iterator[Replicate]:
    """Starts subscriptions: `replicate(database, "orders", queue_mode=QueueMode.PERSIST)`."""
    started: list[Replica] = []

    def start(
        database: MariaDbDatabase, *names: str | TableSpec, queue_mode: QueueMode = QueueMode.MEMORY, **given: Any
    ) -> Replica:
        folder = tmp_path / f"home{len(started)}"
        folder.mkdir()
        engine = {name: given.pop(name) for name in ("guard_interval_s", "guard_patience_s") if name in given}
        tables = [table(name, database.name) if isinstance(name, str) else name for name in names]
        source = connection(database)
        spec = subscription_spec(database, duckdb_target(folder), tables, source=source, queue_mode=queue_mode, **given)
        replica = Replica(database, folder, spec, **engine)
        started.append(replica)
        replica.wait_live()
        return replica

    yield start
    for replica in started:
        replica.close()
