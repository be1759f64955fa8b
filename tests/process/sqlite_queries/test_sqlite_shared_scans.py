"""Two threads of cycles over one SQLite file: its session reads for one of them, and the other one uses that."""

from __future__ import annotations

import os
import random
import select
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.folder import Follow
from engine.sources.query_diff.given import Given
from engine.sources.query_diff.stream import CycleThread
from tests.fixtures.compared_reads import held_by
from tests.pg.query_diff.test_cycles_find_changes import ALL, Copy
from tests.process.sqlite_queries.test_sqlite_by_queries import database_of
from tests.process.sqlite_queries.test_sqlite_cycles import change, create_tables
from tests.process.sqlite_triggers.conftest import File

_DEADLINE_S = 60.0


def _run_until(threads: list[CycleThread], is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not is_done():
        assert time.monotonic() < deadline
        for ended in select.select([thread.ended for thread in threads], [], [], 1.0)[0]:
            os.read(ended, 64)
        for thread in threads:
            thread.check()


def test_threads_on_the_same_schedule_read_the_file_once(file: File, tmp_path: Path) -> None:
    rng, database, names = random.Random(1), database_of(file), create_tables(file)
    change(file, rng)
    given = [Given(400_000, Method.INCREMENTAL, 10.0, tmp_path / n, "shop", shared=tmp_path / "all") for n in "ab"]
    copies = [Copy(each.folder) for each in given]
    for each, copy in zip(given, copies, strict=True):
        each.folder.make()
        each.folder.follow({name: Follow(None, ALL) for name in names})
        with run_cycle(database, each) as (snapshot, number):
            copy.fill(held_by(database, dict.fromkeys(names), snapshot), number)

    def shared() -> list[int]:
        reports = [found for each in given for found in each.folder.files.reports(30)]
        return [sum(t.rows_shared for t in f.tables) for f in reports if any(t.rows_shared for t in f.tables)]

    def is_done() -> bool:
        change(file, rng)
        return len(shared()) > 3

    with ExitStack() as running:
        threads = [running.enter_context(closing(CycleThread(database, each.folder, each))) for each in given]
        _run_until(threads, is_done)
    assert len(shared()) > 3
    for each, copy in zip(given, copies, strict=True):
        # A cycle that used the reads of another one says nothing of them twice, and by itself none is missing.
        with run_cycle(database, each) as (snapshot, _):
            expected = held_by(database, dict.fromkeys(names), snapshot)
        copy.follow()
        assert copy.rows == expected
