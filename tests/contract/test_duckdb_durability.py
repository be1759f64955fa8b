"""The DuckDB target with kills, a full disk and concurrent readers. Slower than unit tests may be."""

from __future__ import annotations

import random
import signal
import threading
from pathlib import Path

import pytest

from engine.model.target import TableCommit
from engine.targets.duckdb.settings import DuckDbSettings
from engine.targets.duckdb.target import DuckDbTarget
from tests.contract import killed_writer
from tests.contract.target_material import SUBSCRIPTION, Pipeline, changes, inserts, keys
from tests.fixtures.answers import answered
from tests.fixtures.python_process import start_python

T = killed_writer.LEFT
pairs = killed_writer.left


@pytest.mark.slow
def test_killed_at_any_moment_it_stands_at_one_batch(tmp_path: Path) -> None:
    path = tmp_path / "mart.duckdb"
    chance = random.Random(20)
    last = 0
    for _ in range(6):
        process = start_python(killed_writer.__file__, str(path))
        assert process.stdout is not None
        for _ in range(chance.randint(2, 25)):
            line = process.stdout.readline()
            assert line, "the writer ended by itself"
            last = int(line)
        # A moment somewhere within the next commits.
        threading.Event().wait(chance.random() * 0.03)
        process.send_signal(signal.SIGKILL)
        rest = process.communicate(timeout=20)[0].split()
        last = int(rest[-1]) if rest else last
        target = DuckDbTarget(path)
        progress = target.progress(SUBSCRIPTION)
        assert progress is not None
        assert last <= progress.batch <= last + 1
        sql = "SELECT count(*), count(DISTINCT id), min(batch), max(batch) FROM "
        for table in ('public."left"', 'public."right"'):
            expected = (killed_writer.ACCOUNTS, killed_writer.ACCOUNTS, progress.batch, progress.batch)
            assert Pipeline(target).select(sql + table) == [expected]
        target.close()


DISK_FULL = """
import resource, sys
from pathlib import Path
from engine.targets.duckdb.settings import DuckDbSettings
from engine.targets.duckdb.target import DuckDbTarget
from engine.model.fault import EngineFault
from tests.contract.target_material import Pipeline, changes, inserts
from tests.contract.killed_writer import LEFT as T, left as pairs

target = DuckDbTarget(Path(sys.argv[1]), DuckDbSettings(checkpoint_threshold=sys.argv[2]))
pipeline = Pipeline(target).claim()
pipeline.load(T, pairs, [])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
kinds = []
done = 0
for attempt in range(200):
    try:
        rows = [(done * 5000 + i, hash((done, i))) for i in range(5000)]
        pipeline.change(T, pairs, changes(T, insert=inserts(pairs, rows)))
        done += 1
    except EngineFault as fault:
        kinds.append(fault.kind.value)
        if len(kinds) == 3:
            break
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
progress = target.progress(pipeline.subscription)
count = pipeline.select('SELECT count(*) FROM public."left"')[0][0]
same = (progress.batch, count) == (pipeline.batch, done * 5000)
pipeline.change(T, pairs, changes(T, insert=inserts(pairs, [(-1, 1)])))
target.close()
print(sorted(set(kinds)), same, done > 0)
"""


@pytest.mark.parametrize("threshold", ["1GB", "256KB"], ids=["in the log", "in a checkpoint"])
def test_a_full_disk_loses_nothing_and_ends_when_there_is_room(tmp_path: Path, threshold: str) -> None:
    process = start_python("-c", DISK_FULL, str(tmp_path / "mart.duckdb"), threshold, str(1_500_000))
    out = process.communicate(timeout=120)[0]
    assert out.strip() == "['target_disk_full'] True True"


def test_readers_never_see_half_a_batch(tmp_path: Path) -> None:
    target = DuckDbTarget(tmp_path / "mart.duckdb", DuckDbSettings(checkpoint_threshold="64KB"))
    pipeline = Pipeline(target).claim()
    other, twins = killed_writer.RIGHT, killed_writer.right
    pipeline.load(T, pairs, [(i, 0) for i in range(100)])
    pipeline.load(other, twins, [(i, 0) for i in range(100)])
    seen: set[int] = set()
    wrong: list[object] = []
    stop = threading.Event()
    sql = 'SELECT (SELECT min(batch) FROM public."left"), (SELECT max(batch) FROM public."right"), (SELECT count(*) FROM public."left")'

    def read() -> None:
        while not stop.is_set():
            answer = answered(target, sql, 10, 30.0, SUBSCRIPTION)
            low, high, count = answer.table.to_pylist()[0].values()
            position = answer.position.value
            if not (low == high and count == 100 and position == 1000 + 100 * (low + 2)):
                wrong.append((low, high, count, position))
            seen.add(low)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(1, 2_000):
        if number > 60 and len(seen) > 1:
            break
        pipeline.commit(
            *(
                TableCommit(
                    table,
                    schema,
                    schema.name,
                    (
                        changes(
                            table,
                            delete=keys(schema, [(i,) for i in range(100)]),
                            insert=inserts(schema, [(i, number) for i in range(100)]),
                        ),
                    ),
                )
                for table, schema in ((T, pairs), (other, twins))
            )
        )
    stop.set()
    for thread in threads:
        thread.join(30)
    target.close()
    assert wrong == []
    assert len(seen) > 1
