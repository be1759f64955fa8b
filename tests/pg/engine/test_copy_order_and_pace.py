"""Tables with a higher priority are copied first, and the limit of a copy's rate is set and removed while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import pytest

from engine.copy.split_task import CopyTask
from engine.link.messages import CopyProgress
from engine.model.subscription import CopyPolicy
from tests.fixtures import replication
from tests.fixtures.local_runner import LocalRunner
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

Replicate = Callable[..., Replica]
SHOP = """
CREATE TABLE {0} (id bigint PRIMARY KEY, note text);
INSERT INTO {0} SELECT i, repeat('x', 60) FROM generate_series(1, {1}) i;
ANALYZE {0};
"""


class Listening(LocalRunner):
    """Notes which tables copies read, in that order."""

    read: ClassVar[list[str]] = []

    def run(self, function: Callable[[Any], Any], descriptors: Sequence[Any], group: str) -> list[Any]:
        parts = [part for task in descriptors if isinstance(task, CopyTask) for part in task.parts]
        type(self).read += [part.schema.name.name for part in parts]
        return super().run(function, descriptors, group)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    Listening.read.clear()
    monkeypatch.setattr(replication, "LocalRunner", Listening)
    return Listening.read


def test_tables_with_a_higher_priority_are_copied_first(
    database: Database, replicate: Replicate, read: list[str]
) -> None:
    for name, rows in (("small", 10), ("large", 4000), ("other", 10)):
        database.execute(SHOP.format(name, rows))
    tables = [table("small", priority=-1), table("large", priority=5), table("other")]
    replica = replicate(database, tables, copy_stretch_bytes=1 << 16)
    replica.assert_equal()
    assert list(dict.fromkeys(read)) == ["large", "other", "small"]
    assert read.count("large") >= 4


def test_a_copy_that_is_slowed_down_is_let_go_while_it_runs(database: Database, replicate: Replicate) -> None:
    database.execute(SHOP.format("small", 10))
    database.execute(SHOP.format("large", 100_000))
    small, large = table("small"), table("large")
    replica = replicate(database, [small])

    def update(policy: CopyPolicy) -> None:
        replica.spec = replace(replica.spec, tables=(small, large), copies=policy)
        replica.pipeline.update(replace(replica.pipeline.spec, tables=(small, large), copies=policy))

    # At this pace it would take more than a minute and a half.
    update(CopyPolicy(max_rows_per_second=1000))
    replica.wait_table("large", "copying")
    replica.catch_up()
    replica.catch_up()
    assert replica.states()["large"] == "copying"
    update(CopyPolicy(max_time_share=0.9))
    replica.wait_live(timeout_s=50)
    replica.assert_equal()


def test_progress_counts_the_whole_table(database: Database, replicate: Replicate) -> None:
    database.execute(SHOP.format("large", 6000))
    replica = replicate(database, [table("large")], copy_stretch_bytes=1 << 16)
    shown = [r for r in replica.reports.all() if isinstance(r, CopyProgress)]
    percents = [r.percent for r in shown]
    assert percents == sorted(percents)
    assert percents[-1] == 100
    assert shown[-1].rows == 6000
    assert shown[-1].bytes == shown[-1].total_bytes
    assert shown[-1].total_rows == 6000
    for before, after in pairwise(shown):
        assert before.rows <= after.rows
        assert before.bytes <= after.bytes
    # Both fractions say the same, whatever the source's statistics know of the table.
    halves = [(r.rows / r.total_rows, r.bytes / r.total_bytes) for r in shown if r.total_rows and r.total_bytes]
    assert all(abs(by_rows - by_bytes) < 0.02 for by_rows, by_bytes in halves)
    assert all(
        abs(by_bytes * 100 - (r.percent or 0)) < 2
        for (_, by_bytes), r in zip(halves, shown[-len(halves) :], strict=True)
    )
    # Without statistics the number of rows is guessed by what was read.
    guesses = [r.total_rows for r in shown if r.rows > 500 and r.total_rows]
    assert guesses
    assert all(4000 < guess < 9000 for guess in guesses)
    assert len({r.rows for r in shown}) >= 4
