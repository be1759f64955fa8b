"""Copies of MariaDB by both captures and on both kinds of target, whose verifications have several ranges."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.model.subscription import CaptureSpec, ConnectionSpec, TableSpec
from engine.verify import by_ranges
from tests.fixtures.mariadb import MariaDbDatabase
from tests.fixtures.replication import Replica, table

Start = Callable[..., Replica]


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several walks, several ranges, and several parts of each."""
    monkeypatch.setattr(by_ranges, "READ_BYTES", 30_000)
    monkeypatch.setattr(by_ranges, "RANGE_BYTES", 4_000)
    monkeypatch.setattr(by_ranges, "PART_ROWS", 5)


@pytest.fixture(params=["duckdb", "postgres"])
def target_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture(params=["triggers", "query_diff"])
def start(request: pytest.FixtureRequest, mariadb: MariaDbDatabase, replicate: Start) -> Start:
    given = {"capture": CaptureSpec("query_diff", {"every_seconds": 3600})} if request.param == "query_diff" else {}

    def begun(*tables: str | TableSpec, **secrets: str) -> Replica:
        source = ConnectionSpec("shop", "mariadb", mariadb.settings, {**mariadb.secrets, **secrets}, **given)
        specs = [table(each, mariadb.name) if isinstance(each, str) else each for each in tables]
        replica = replicate(mariadb, specs, source=source)
        replica.catch_up()
        return replica

    return begun
