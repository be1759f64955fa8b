"""A file that is removed, renamed or replaced while it is open: what is written to it counts for nothing any more."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from engine.control.target_registry import TargetRegistry
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.subscription import ConnectionSpec
from engine.targets.duckdb.settings import DuckDbSettings
from engine.targets.duckdb.target import DuckDbTarget
from tests.contract.target_material import SUBSCRIPTION, Pipeline, changes, inserts, structure
from tests.fixtures.answers import answered

T = TableId("t0a")
pairs = structure(TableName("public", "pairs"), {"id": "int4", "v": "int8"}, ["id"])

Harm = Callable[[Path], None]


def removed(path: Path) -> None:
    path.unlink()


def renamed(path: Path) -> None:
    path.rename(path.with_name("elsewhere.duckdb"))


def replaced(path: Path) -> None:
    other = path.with_name("other.duckdb")
    duckdb.connect(str(other)).close()
    other.replace(path)


def log_removed(path: Path) -> None:
    Path(f"{path}.wal").unlink()


def log_replaced(path: Path) -> None:
    path.with_name("other").write_bytes(b"of another file")
    path.with_name("other").replace(f"{path}.wal")


HARMS = [removed, renamed, replaced, log_removed, log_replaced]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mart.duckdb"


@pytest.fixture
def target(path: Path) -> Iterator[DuckDbTarget]:
    opened = DuckDbTarget(path)
    Pipeline(opened).claim().load(T, pairs, [(1, 1)])
    yield opened
    opened.close()


def assert_file_gone(call: Callable[[], object]) -> str:
    with pytest.raises(EngineFault) as caught:
        call()
    assert caught.value.kind is FaultKind.TARGET_FILE_GONE
    return caught.value.detail


@pytest.mark.parametrize("harm", HARMS)
def test_it_is_noticed_and_nothing_is_written_over_it(target: DuckDbTarget, path: Path, harm: Harm) -> None:
    target.check_place()
    harm(path)
    assert "while it was open" in assert_file_gone(target.check_place)
    log = Path(f"{path}.wal")
    before = log.read_bytes() if harm is log_replaced else None
    target.close()
    assert before is None or log.read_bytes() == before


@pytest.mark.parametrize("harm", [removed, renamed, replaced])
def test_nothing_is_read_from_it_or_written_to_it(target: DuckDbTarget, path: Path, harm: Harm) -> None:
    harm(path)
    pipeline = Pipeline(target)
    assert_file_gone(lambda: pipeline.change(T, pairs, changes(T, insert=inserts(pairs, [(2, 2)]))))
    assert_file_gone(lambda: answered(target, "SELECT * FROM pairs", None, 5.0, SUBSCRIPTION))
    assert_file_gone(lambda: target.progress(SUBSCRIPTION))


def test_a_commit_under_way_is_not_vouched_for(target: DuckDbTarget, path: Path) -> None:
    """The commit itself succeeds: the file is there, under no name."""
    pipeline = Pipeline(target)
    pipeline.batch, pipeline.end = 1, 1100
    pipeline.change(T, pairs, changes(T, insert=inserts(pairs, [(2, 2)])))
    path.unlink()
    assert_file_gone(target.check_place)


def test_a_removed_log_is_folded_in_and_nothing_is_lost(target: DuckDbTarget, path: Path) -> None:
    log_removed(path)
    assert_file_gone(target.check_place)
    target.close()
    target.check_place()
    assert answered(target, "SELECT id, v FROM pairs", None, 5.0, SUBSCRIPTION).table.to_pylist() == [{"id": 1, "v": 1}]


def test_who_asks_for_the_target_next_gets_what_is_there_by_then(path: Path) -> None:
    connection = ConnectionSpec("mart", "duckdb", {"path": str(path)})
    registry = TargetRegistry(lambda _: DuckDbTarget(path))
    first = registry.acquire(connection)
    Pipeline(first).claim()
    renamed(path)
    assert_file_gone(lambda: first.progress(SUBSCRIPTION))
    second = registry.acquire(connection)
    assert second.progress(SUBSCRIPTION) is None
    registry.close_all()
    shutil.move(path.with_name("elsewhere.duckdb"), path)
    third = registry.acquire(connection)
    assert third.progress(SUBSCRIPTION) is not None
    registry.close_all()


def test_a_link_to_the_file_is_as_good(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    link = tmp_path / "mart.duckdb"
    link.symlink_to(tmp_path / "disk" / "real.duckdb")
    target = DuckDbTarget(link)
    Pipeline(target).claim().load(T, pairs, [(1, 1)])
    target.check_place()
    link.unlink()
    assert_file_gone(target.check_place)
    target.close()


def test_checkpoints_beside_it_are_not_taken_for_it(path: Path) -> None:
    """Each ends the write-ahead log and begins another one; with so small a threshold most commits make one."""
    target = DuckDbTarget(path, DuckDbSettings(checkpoint_threshold="1KB"))
    pipeline = Pipeline(target).claim()
    pipeline.load(T, pairs, [(0, 0)])
    ended = threading.Event()
    looks: list[str] = []

    def look() -> None:
        while not ended.is_set():
            try:
                target.check_place()
                looks.append("")
            except EngineFault as fault:
                looks.append(fault.detail)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for i in range(1, 150):
            pipeline.change(T, pairs, changes(T, insert=inserts(pairs, [(i, i)])))
    finally:
        ended.set()
        thread.join()
    assert set(looks) == {""}
    target.close()
