"""Waits for "now" after random changes, many of them known from the source's catalog only: each shows what was committed."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.chaos.known_changes import Known, create, some_change
from tests.chaos.wait_checks import content, held
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

NEVER_S = 600.0
"""The guard looks by itself when a run begins, and not again in a test."""
CHANGES = 25


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.chaos) for n in range(2, 12))])
@pytest.mark.parametrize("target_kind", ["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)])
def test_each_answer_has_what_was_committed(database: Database, replicate: Callable[..., Replica], seed: int) -> None:
    rng, known = random.Random(seed), Known(0)
    database.execute(create(known))
    replica = replicate(database, [table(name) for name in known.tables], guard_interval_s=NEVER_S)
    with database.connect() as connection:
        for number in range(CHANGES):
            change = some_change(rng, known, connection)
            for statement in change.statements:
                connection.execute(statement.encode())
            replica.satisfied()
            for name in known.tables:
                expected = held(connection, name)
                found = content(
                    list(expected.columns), replica.query(f"SELECT {', '.join(expected.columns)} FROM {name}")
                )
                difference = expected.difference(found)
                assert difference is None, f"{number}: {name} behind {change.kind}: {difference}"
