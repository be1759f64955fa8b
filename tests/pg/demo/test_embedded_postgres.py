"""The embedded server: starts, survives restarts and kills, keeps strangers out, and dies with its parent."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import psutil
import psycopg
import pytest

from server.demo.embedded import EmbeddedPostgres, server_folder
from tests.fixtures.postgres import Database

pytestmark = pytest.mark.pg


def test_logical_decoding_is_on_from_the_start(pg: EmbeddedPostgres) -> None:
    assert pg.execute("SHOW wal_level") == [("logical",)]


def test_database_is_fresh_and_its_own(database: Database) -> None:
    database.execute("CREATE TABLE t (id int)")
    database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [f"s_{database.name}"])
    assert database.execute("SELECT count(*) FROM t") == [(0,)]
    assert database.execute("SELECT current_database()") == [(database.name,)]


def test_restart_keeps_data_and_takes_settings(private_cluster: Callable[..., EmbeddedPostgres]) -> None:
    cluster = private_cluster(18, work_mem="'5MB'")
    cluster.execute("CREATE TABLE t AS SELECT 1 AS id")
    port = cluster.port
    cluster.restart(settings={"work_mem": "'6MB'"})
    assert (cluster.execute("SHOW work_mem"), cluster.port) == ([("6MB",)], port)
    assert cluster.execute("SELECT id FROM t") == [(1,)]


def test_acknowledged_commit_survives_kill9(private_cluster: Callable[..., EmbeddedPostgres]) -> None:
    cluster = private_cluster(18)
    cluster.execute("CREATE TABLE t AS SELECT 1 AS id")
    processes = psutil.Process(cluster.pid).children(recursive=True)
    cluster.kill9()
    ended = psutil.STATUS_ZOMBIE  # not every init reaps at once
    assert not any(process.is_running() and process.status() != ended for process in processes)
    cluster.start()
    assert cluster.execute("SELECT id FROM t") == [(1,)]


def test_password_is_asked_for() -> None:
    folder = server_folder()
    cluster = EmbeddedPostgres(folder, password="a 'quoted' secret")
    try:
        cluster.start()
        assert cluster.execute("SELECT 1") == [(1,)]
        cluster.password = "wrong"
        with pytest.raises(psycopg.OperationalError):
            cluster.execute("SELECT 1")
    finally:
        cluster.destroy()
    assert not folder.exists()


def test_server_dies_with_its_parent() -> None:
    folder = server_folder()
    program = (
        "import sys, pathlib; from server.demo.embedded import EmbeddedPostgres;"
        "pg = EmbeddedPostgres(pathlib.Path(sys.argv[1])); pg.start(); print(pg.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    server = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    _, alive = psutil.wait_procs([server], timeout=10)
    EmbeddedPostgres(folder).destroy()
    assert alive == []
