"""The target's file: locked, full, or with a stranger's table in it."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from engine.model.subscription import QueueMode
from engine.model.subscription_state import DesiredState
from engine.model.target import QueryRefused
from tests.fixtures.postgres import Database
from tests.pg.bad_days.conftest import BadDays
from tests.pg.bad_days.small_disk import SmallDisk

pytestmark = pytest.mark.pg

HOLDER = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.readline()"


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Another process has the file open."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield
        finally:
            process.communicate("\n", timeout=10)


def test_name_collision_parks_only_that_table(shop: Database, bad_day: BadDays, tmp_path: Path) -> None:
    path = tmp_path / "taken.duckdb"
    with duckdb.connect(str(path)) as stranger:
        stranger.execute("CREATE SCHEMA public; CREATE TABLE public.lines AS SELECT 42 AS answer")
    replica = bad_day(shop, live=False, target=path)
    parked = replica.wait_table("lines", "parked")
    assert parked.code == "table_name_collision"
    assert "target" in (parked.remedy or "")
    replica.wait_live("orders")
    replica.touch("meanwhile")
    replica.catch_up()
    with pytest.raises(QueryRefused):
        replica.query("select answer from public.lines")
    replica.desire(DesiredState.STOPPED)
    replica.wait_state("stopped")
    with duckdb.connect(str(path)) as stranger:
        assert stranger.execute("SELECT answer FROM public.lines").fetchall() == [(42,)]
        stranger.execute("DROP TABLE public.lines")
    replica.desire(DesiredState.RUNNING)
    replica.wait_state("running")
    replica.wait_live()
    replica.assert_nothing_lost()


def test_file_locked_by_another_process(shop: Database, bad_day: BadDays, tmp_path: Path) -> None:
    path = tmp_path / "locked.duckdb"
    with held(path):
        replica = bad_day(shop, live=False, target=path)
        assert "close it" in (replica.wait_code("starting", "target_locked").remedy or "")
        replica.touch("while locked")
    replica.wait_live()
    replica.assert_nothing_lost()


def test_file_locked_by_another_process_while_stopped(shop: Database, bad_day: BadDays) -> None:
    replica = bad_day(shop)
    replica.desire(DesiredState.STOPPED)
    replica.wait_state("stopped")
    with held(replica.target):
        replica.desire(DesiredState.RUNNING)
        replica.wait_code("starting", "target_locked")
        replica.touch("while locked")
    replica.wait_state("running")
    replica.assert_nothing_lost()


@pytest.mark.parametrize("mode", [QueueMode.MEMORY, QueueMode.PERSIST])
def test_target_disk_full(
    shop: Database, bad_day: BadDays, small_disk: Callable[[int], SmallDisk], mode: QueueMode
) -> None:
    disk = small_disk(24)
    replica = bad_day(shop, target=disk.path / "mart.duckdb", queue_mode=mode)
    disk.fill(leave_bytes=256 * 1024)
    for i in range(8):
        shop.execute(f"UPDATE orders SET note = repeat('{i}', 20) || md5(random()::text) || repeat(md5(id::text), 200)")
    replica.pipeline.demand(replica.now())
    assert "Free space" in (replica.wait_code("starting", "target_disk_full").remedy or "")
    disk.free()
    replica.wait_state("running")
    replica.assert_nothing_lost()


def test_target_write_fails_at_a_file_size_limit(shop: Database, bad_day: BadDays) -> None:
    """The same without a disk of its own, by the operating system's limit on this process."""
    replica = bad_day(shop)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = max(p.stat().st_size for p in replica.target.parent.glob("mart.duckdb*"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 64 * 1024, hard))
    try:
        for _ in range(3):
            shop.execute("UPDATE orders SET note = md5(random()::text) || repeat(md5(id::text), 300)")
        replica.pipeline.demand(replica.now())
        replica.wait_code("starting", "target_disk_full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    replica.wait_state("running")
    replica.assert_nothing_lost()


def test_a_file_removed_while_it_is_written_to_is_noticed_and_made_again(shop: Database, bad_day: BadDays) -> None:
    """No other process could open the removed file: its rows must not satisfy a wait for a later position."""
    replica = bad_day(shop)
    replica.catch_up()
    replica.target.unlink()
    replica.touch("to nowhere")
    position = replica.now()
    replica.pipeline.demand(position)
    assert "all tables are copied" in (replica.wait_code("failed", "target_file_gone").remedy or "")
    assert replica.applied() < position
    assert not replica.target.exists()
    replica.desire(DesiredState.RUNNING)
    replica.wait_state("running")
    replica.assert_nothing_lost()
    assert replica.target.exists()


def test_a_file_removed_while_nothing_happens_is_noticed(shop: Database, bad_day: BadDays) -> None:
    replica = bad_day(shop)
    replica.catch_up()
    replica.target.unlink()
    assert "Restore the file" in (replica.wait_code("failed", "target_file_gone", timeout_s=5.0).remedy or "")


def test_a_file_that_was_renamed_and_put_back_goes_on_where_it_was(shop: Database, bad_day: BadDays) -> None:
    replica = bad_day(shop)
    replica.catch_up()
    replica.target.rename(replica.target.with_name("aside.duckdb"))
    replica.wait_code("failed", "target_file_gone")
    replica.touch("meanwhile")
    replica.wait_slot_free()
    replica.target.with_name("aside.duckdb").rename(replica.target)
    copied = len([s for s in replica.reports.all() if getattr(s, "state", "") == "copying"])
    replica.desire(DesiredState.RUNNING)
    replica.wait_state("running")
    replica.assert_nothing_lost()
    assert len([s for s in replica.reports.all() if getattr(s, "state", "") == "copying"]) == copied


@pytest.mark.parametrize("queued", [True, False], ids=["changes_queued", "changes_gone"])
def test_a_file_replaced_by_an_older_copy_of_it_loses_nothing_unseen(
    shop: Database, bad_day: BadDays, *, queued: bool
) -> None:
    """Changes since the copy are applied again where the queue still has them; else there is a gap, as the source removed them."""
    replica = bad_day(shop)
    replica.catch_up()
    replica.desire(DesiredState.STOPPED)
    replica.wait_state("stopped")
    older = replica.target.with_name("older.duckdb")
    shutil.copy(replica.target, older)
    replica.desire(DesiredState.RUNNING)
    replica.wait_state("running")
    replica.touch("later")
    replica.wait_confirmed(replica.catch_up())
    older.replace(replica.target)
    replica.wait_code("failed", "target_file_gone")
    if not queued:
        shutil.rmtree(replica.queue)
    replica.desire(DesiredState.RUNNING)
    if not queued:
        replica.wait_code("failed", "log_gap")
        replica.reload_all()
        replica.wait_live()
    replica.assert_nothing_lost()
