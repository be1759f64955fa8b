"""What tests share: of large open transactions a shop on a source that streams early, its copy, and a session to leave open; of
engines that are killed a target."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.model.subscription import BatchPolicy, ConnectionSpec
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures import replication
from tests.fixtures.local_runner import GatedRunner
from tests.fixtures.postgres import Database, Session
from tests.fixtures.replication import Replica, duckdb_target, table

_PIECE = 256 * 1024
_SHOP = """
CREATE TABLE orders (id bigint PRIMARY KEY, total numeric(12, 2), note text);
CREATE TABLE log (id bigint, note text); ALTER TABLE log REPLICA IDENTITY FULL;
INSERT INTO orders SELECT i, i * 1.5, 'note ' || i FROM generate_series(1, 20000) i;
"""


@pytest.fixture
def shop(pg18: EmbeddedPostgres, database_on: Callable[..., Database]) -> Database:
    made = database_on(pg18, logical_decoding_work_mem="'64kB'")
    made.execute(_SHOP)
    return made


@pytest.fixture
def replica(shop: Database, replicate: Callable[..., Replica]) -> Replica:
    """Tables of which every change counts, in pieces far smaller than the transactions of the tests."""
    return replicate(shop, [table("orders"), table("log")], batch=BatchPolicy(small_rows=0), piece_bytes=_PIECE)


@pytest.fixture(params=[pytest.param(16, marks=pytest.mark.chaos), 18], ids=["pg16", "pg18"])
def pg(request: pytest.FixtureRequest) -> EmbeddedPostgres:
    """What an older source does otherwise is tested in tests/pg/postgres_log."""
    cluster: EmbeddedPostgres = request.getfixturevalue(f"pg{request.param}")
    return cluster


@pytest.fixture
def session(shop: Database) -> Iterator[Session]:
    with shop.connect() as connection:
        yield connection


@pytest.fixture(params=["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)])
def mart(request: pytest.FixtureRequest, tmp_path: Path) -> ConnectionSpec:
    """A target of each kind; the second one where there is time."""
    if request.param == "duckdb":
        return duckdb_target(tmp_path)
    database_on: Callable[..., Database] = request.getfixturevalue("database_on")
    return ConnectionSpec("mart", "postgres", database_on(request.getfixturevalue("pg16")).settings)


@pytest.fixture
def armed(tmp_path: Path) -> Path:
    """The folder of the failpoints at which engines are to die."""
    folder = tmp_path / "armed"
    folder.mkdir()
    return folder


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[GatedRunner]]:
    """Shuts and opens the gate of every runner that the test starts; open at first."""

    class Runner(GatedRunner):
        gate = threading.Event()
        reached = threading.Event()

    Runner.gate.set()
    monkeypatch.setattr(replication, "LocalRunner", Runner)
    yield Runner
    Runner.gate.set()
