"""Every kind of target, as the contract's tests open it. A new one is a line in EACH_KIND and a function here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from engine.model.subscription import ConnectionSpec
from engine.model.target import PARTS_FROM_ROWS, Target
from engine.net.copy_text import decode_copy_text
from engine.targets.duckdb.target import DuckDbTarget
from engine.targets.postgres.target import PostgresTarget
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database, create_database, drop_database, target_settings

EACH_KIND = ("duckdb", pytest.param("postgres16", marks=pytest.mark.chaos), "postgres18")
"""As the parameters of a fixture. Of PostgreSQL, the newest: what older ones do otherwise has tests of its own."""

Build = Callable[[str], None]
"""Runs a statement of another user in the target's database."""
OpenTarget = Callable[[], Target]
"""Opens one and the same target each time."""


@contextmanager
def target_opener(
    kind: str, request: pytest.FixtureRequest, folder: Path, *, few: int | None = None
) -> Iterator[OpenTarget]:
    """Opens a fresh target of this kind, which goes with the block. More rows than `few` are many to it, if that can be said."""
    if kind == "duckdb":
        yield lambda: DuckDbTarget(folder / "mart.duckdb", decode=decode_copy_text)
        return
    cluster: EmbeddedPostgres = request.getfixturevalue(kind.replace("postgres", "pg"))
    database = Database(cluster, f"mart_{folder.name[-40:]}".lower())
    create_database(database)
    try:
        spec = ConnectionSpec("mart", "postgres", target_settings(database))
        yield lambda: PostgresTarget(spec, decode_copy_text, parts_from_rows=few or PARTS_FROM_ROWS, copy_above=few)
    finally:
        drop_database(database)


def builder(target: Target) -> Build:
    """For an open target. A DuckDB file is given up for as long as the statement takes."""
    if isinstance(target, DuckDbTarget):

        def in_file(sql: str) -> None:
            target.close()
            with duckdb.connect(str(target.path)) as connection:
                connection.execute(sql)

        return in_file

    assert isinstance(target, PostgresTarget)

    def in_database(sql: str) -> None:
        with target._sessions.session() as connection:
            connection.execute(sql.encode())

    return in_database
