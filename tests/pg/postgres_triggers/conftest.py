"""Subscriptions whose source is captured by triggers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.model.subscription import CaptureSpec, ConnectionSpec, QueueMode, TableSpec
from engine.model.subscription_state import DesiredState
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, duckdb_target, subscription_spec, table


class TriggersReplica(Replica):
    """A subscription into a DuckDB file."""

    def desire_paused(self) -> None:
        self.desire(DesiredState.PAUSED)
        self.wait_state("paused")

    def desire_running(self) -> None:
        self.desire(DesiredState.RUNNING)


Replicate = Callable[..., TriggersReplica]


@pytest.fixture
def replicate(tmp_path: Path) -> Iterator[Replicate]:
    """Starts subscriptions: `replicate(database, "orders", queue_mode=QueueMode.PERSIST)`. `settings`: further ones of the connection;
    `capture`: with other settings; `live=False`: do not wait until the tables are live."""
    started: list[TriggersReplica] = []

    def start(
        database: Database, *names: str | TableSpec, queue_mode: QueueMode = QueueMode.MEMORY, **given: Any
    ) -> TriggersReplica:
        folder = tmp_path / f"home{len(started)}"
        folder.mkdir()
        engine = {name: given.pop(name) for name in ("guard_interval_s", "guard_patience_s") if name in given}
        tables = [table(name) if isinstance(name, str) else name for name in names]
        settings = database.settings | given.pop("settings", {})
        source = ConnectionSpec("shop", "postgres", settings, {}, given.pop("capture", CaptureSpec("triggers")))
        live = given.pop("live", True)
        spec = subscription_spec(database, duckdb_target(folder), tables, source=source, queue_mode=queue_mode, **given)
        replica = TriggersReplica(database, folder, spec, **engine)
        started.append(replica)
        if live:
            replica.wait_live()
        return replica

    yield start
    for replica in started:
        replica.close()
