"""A PostgreSQL target whose engine dies at every step to it, and which is killed itself: nothing is lost, nothing comes twice."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from engine.model.subscription import (
    ApplyMode,
    ApplyPolicy,
    ConnectionSpec,
    LanePolicy,
    QueueMode,
    Visibility,
)
from engine.platform.failpoints import Failpoint
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.pg.bad_days.conftest import SHOP, BadDay
from tests.pg.engine.killed_engines import OrderLoad, arm, engine, subscribed, wait_for

pytestmark = pytest.mark.pg

AROUND_THE_COMMIT = [Failpoint.COMMIT_AFTER, Failpoint.PARTS_DECIDED]
BEFORE_AND_BEHIND = [
    Failpoint.BATCH_BEFORE_JOB,
    Failpoint.BATCH_AFTER_JOB,
    Failpoint.COMMIT_BEFORE,
    Failpoint.CONFIRM_BEFORE,
    Failpoint.REPORT_BEFORE,
    Failpoint.PARTS_PREPARED,
]
IN_PARTS = ApplyPolicy(ApplyMode.BATCH, lanes=3, visibility=Visibility.RELAXED)
IN_A_COPY = [Failpoint.SLOT_CREATED, Failpoint.COPY_RUNNING, Failpoint.HANDOVER_BEFORE, Failpoint.HANDOVER_AFTER]
DIES_S = 60.0
WAYS = [
    ApplyPolicy(),
    ApplyPolicy(ApplyMode.BATCH),
    ApplyPolicy(ApplyMode.GROUPED),
    ApplyPolicy(ApplyMode.TRANSACTIONAL, lanes=2),
    ApplyPolicy(ApplyMode.TRANSACTIONAL, LanePolicy.OPTIMISTIC, lanes=3),
]


@pytest.fixture
def mart(private_cluster: Callable[..., EmbeddedPostgres], database_on: Callable[..., Database]) -> Database:
    return database_on(private_cluster(16))


@pytest.fixture
def replica(database: Database, mart: Database, tmp_path: Path) -> Iterator[BadDay]:
    database.execute(SHOP)
    with subscribed(database, ConnectionSpec("mart", "postgres", mart.settings), ["orders", "lines"], tmp_path) as made:
        yield made


def left_behind(mart: Database) -> list[tuple[str]]:
    """The product's objects on the target, except the tables and the record."""
    return mart.execute(
        "SELECT relname::text FROM pg_class WHERE relname LIKE '%penstock\\_%' AND relkind IN ('r', 'S', 'v')"
        " UNION ALL SELECT gid FROM pg_prepared_xacts"
    )


@pytest.mark.parametrize(
    "points", [AROUND_THE_COMMIT, pytest.param(BEFORE_AND_BEHIND, marks=pytest.mark.chaos)], ids=["around", "elsewhere"]
)
def test_an_engine_that_dies_on_the_way_of_a_batch_takes_nothing_along(
    replica: BadDay, mart: Database, armed: Path, points: list[Failpoint]
) -> None:
    rng = random.Random(1)
    replica.wait_live()
    replica.close()
    with OrderLoad(replica.database.connect, 1):
        for point, way in zip(points, cycle(WAYS[::-1])):
            replica.spec = replace(replica.spec, apply=IN_PARTS if point.value.startswith("parts.") else way)
            with engine(replica, rng.choice(list(QueueMode)), armed) as process:
                wait_for(process, "lines live")
                arm(armed, point, rng.randint(1, 3))
                process.wait(DIES_S)
    replica.again()
    replica.wait_live()
    replica.assert_nothing_lost()
    assert "log_gap" not in replica.codes()
    assert left_behind(mart) == []


@pytest.mark.chaos
def test_an_engine_that_dies_in_the_first_copy_begins_it_again(replica: BadDay, mart: Database, armed: Path) -> None:
    assert replica.pipeline.forget() == []
    replica.close()
    with OrderLoad(replica.database.connect, 2):
        for point in IN_A_COPY:
            arm(armed, point, 1)
            with engine(replica, QueueMode.MEMORY, armed) as process:
                process.wait(DIES_S)
            assert not (armed / point.value).exists()
    replica.again()
    replica.wait_live()
    replica.assert_nothing_lost()
    assert left_behind(mart) == []


@pytest.mark.parametrize(
    ("how", "way"),
    [
        pytest.param("fast", WAYS[1], marks=pytest.mark.chaos),
        pytest.param("immediate", WAYS[2], marks=pytest.mark.chaos),
        ("kill -9", WAYS[3]),
        ("sessions", WAYS[4]),
    ],
)
def test_a_target_that_dies_is_taken_up_where_it_was(
    replica: BadDay, mart: Database, how: str, way: ApplyPolicy
) -> None:
    replica.again(replace(replica.spec, apply=way))
    replica.wait_live()
    with OrderLoad(replica.database.connect, 3):
        replica.catch_up()
        if how == "sessions":
            mart.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'penstock%'"
            )
        elif how == "kill -9":
            mart.cluster.kill9()
            mart.cluster.start()
        else:
            mart.cluster.restart("fast" if how == "fast" else "immediate")
        replica.touch("while it comes back")
    replica.assert_nothing_lost()
    assert left_behind(mart) == []
