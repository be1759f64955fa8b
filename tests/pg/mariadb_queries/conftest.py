"""A MariaDB database whose account has the right SELECT on it, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.model.subscription import CaptureSpec, ConnectionSpec
from tests.fixtures.mariadb import MariaDbDatabase
from tests.fixtures.replication import Replica, duckdb_target, subscription_spec, table

Replicate = Callable[..., Replica]


@pytest.fixture
def connection(mariadb: MariaDbDatabase) -> ConnectionSpec:
    mariadb.server.execute("CREATE OR REPLACE USER reader@'%' IDENTIFIED BY 'secret'")
    mariadb.server.execute(f"GRANT SELECT ON {mariadb.name}.* TO reader@'%'")
    settings = {**mariadb.settings, "user": "reader"}
    return ConnectionSpec(
        "shop", "mariadb", settings, mariadb.secrets, CaptureSpec("query_diff", {"every_seconds": 3600})
    )


@pytest.fixture
def replicate(mariadb: MariaDbDatabase, connection: ConnectionSpec, tmp_path: Path) -> Iterator[Replicate]:
    """Starts a subscription of tables. `settings`: of the engine."""
    started: list[Replica] = []

    def start(*names: str, **settings: Any) -> Replica:
        tables = [table(name, mariadb.name) for name in names]
        spec = subscription_spec(mariadb, duckdb_target(tmp_path), tables, source=connection)  # type: ignore[arg-type]
        started.append(Replica(mariadb, tmp_path, spec, **settings))  # type: ignore[arg-type]
        started[0].wait_live()
        return started[0]

    yield start
    for replica in started:
        replica.close()
