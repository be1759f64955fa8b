"""Workloads write what they say, and PostgreSQL's own replication drains a tiny backlog of one."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from bench import backlog, capture, suite
from bench.capture import ReaderSide, ReceiverSide
from bench.contenders import NATIVE, PENSTOCK, declared, wait_until
from bench.environment import Stage
from bench.errors import BenchError
from bench.isolated.capture import table_of
from bench.isolated.scaling import descriptors, sealed
from bench.source_log import position, volume
from bench.workload import DATABASE, Table
from bench.workloads import WORKLOADS
from engine.connectors import open_source
from engine.model.subscription import ConnectionSpec
from engine.pipeline.task_functions import net_here
from server.demo.embedded import EmbeddedPostgres, server_folder

pytestmark = pytest.mark.pg

COMMITTING = (
    "tpcb",
    "inserts",
    "night-batch",
    "hot-rows",
    "hot-rows-many",
    "wide-rows",
    "tables-500",
    "huge-transaction",
)
AMOUNTS = {"night-batch": 1, "huge-transaction": 50}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedPostgres]:
    postgres = EmbeddedPostgres(server_folder("penstock-test-pg-"))
    try:
        postgres.start()
        yield postgres
    finally:
        postgres.destroy()


@pytest.fixture
def source(cluster: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """With an empty database of the suite's name."""
    cluster.execute(f"CREATE DATABASE {DATABASE}")
    yield cluster
    cluster.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


def _changed(postgres: EmbeddedPostgres) -> int:
    sql = "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables"
    return int(postgres.execute(sql, database=DATABASE)[0][0])


def _has_no_sessions(postgres: EmbeddedPostgres) -> bool:
    """Whether all sessions of the load have ended: what they changed is counted by then."""
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
    return postgres.execute(sql, [DATABASE]) == [(0,)]


@pytest.mark.parametrize("name", COMMITTING)
def test_a_load_changes_as_many_rows_as_it_says(source: EmbeddedPostgres, name: str) -> None:
    workload = WORKLOADS[name]
    with source.connect(DATABASE) as connection:
        workload.create(connection, 1)
    wait_until(lambda: _has_no_sessions(source), 30, "the sessions ended")
    before = _changed(source)
    made = workload.generate(source, AMOUNTS.get(name, 16))
    wait_until(lambda: _has_no_sessions(source), 30, "the sessions ended")
    assert _changed(source) - before == made.row_changes > 0


def test_an_aborted_load_leaves_log_and_no_rows(source: EmbeddedPostgres) -> None:
    workload = WORKLOADS["huge-aborted"]
    with source.connect(DATABASE) as connection:
        workload.create(connection, 1)
    before = position(source)
    workload.generate(source, 1000)
    source.execute("CHECKPOINT")
    found = volume(source, before, position(source))
    assert source.execute("SELECT count(*) FROM huge", database=DATABASE) == [(0,)]
    assert found.changes > 50_000
    assert found.images >= 0


def test_a_tiny_backlog_is_drained_and_everything_is_removed() -> None:
    said: list[str] = []
    with Stage(WORKLOADS["tpcb"], 1, [NATIVE], said.append) as stage:
        folder, source = stage.source.folder, stage.source.pid
        (done,) = backlog.rounds(stage, 400, 1, said.append)
    assert (done["transactions"], done["row_changes"]) == (400, 1600)
    side = done["sides"][NATIVE]
    assert side["rows_per_s"] * side["seconds"] == pytest.approx(1600, rel=0.1)  # seconds have three decimals
    assert {"walsender", "apply"} <= set(side["cpu_s"])
    assert side["peak_pss_mb_total"] > 1
    assert done["log"]["bytes"] > done["log"]["full_page_image_bytes"] >= 0
    assert said
    assert not folder.exists()
    assert not psutil.pid_exists(source)


@pytest.mark.chaos
def test_the_log_reader_alone_lands_what_the_source_has_beside_pg_recvlogical() -> None:
    said: list[str] = []
    workload = WORKLOADS["capture-only"]
    order = suite.Order(quick=True, against=True, amount=400, scale=1)
    document = suite.run(workload, order, said.append)
    (done,) = document["rounds"]
    assert suite.is_good(document)
    assert document["checks"] == {"equal": True, "wrong": []}
    assert done["sides"][PENSTOCK]["landed"]["rows"] >= done["row_changes"] == 1600
    assert done["decoding_alone"]["rows"] == done["sides"][PENSTOCK]["landed"]["rows"]
    assert {"walsender", "log reader", "intake"} <= set(done["sides"][PENSTOCK]["cpu_s"])
    assert set(done["sides"][NATIVE]["cpu_s"]) == {"walsender", "receiver"}
    assert done["sides"][PENSTOCK]["sent_mb"] > 0
    assert document["summary"]["ratio"]["median"] > 0


@pytest.mark.chaos
def test_a_landed_backlog_is_dealt_out_to_tasks_as_a_whole() -> None:
    said: list[str] = []
    workload = WORKLOADS["scaling"]
    with Stage(workload, 1, [PENSTOCK], said.append, side_of=capture.side) as stage:
        reader = stage.sides[PENSTOCK]
        assert isinstance(reader, ReaderSide)
        made = workload.generate(stage.source, 400)
        stage.wait_until_idle()
        folder = reader.leave()
        specs = [table_of(number, declared(table)) for number, table in enumerate(workload.tables())]
        source = open_source(ConnectionSpec("source", "postgres", reader.connection))
        described = source.describe(specs)
        source.close()
        catalog, batches = sealed(folder, 16 * 1024)
        tasks = descriptors(catalog, batches, [(spec, described[spec.source]) for spec in specs], folder / "staged")
        counts = [table.counts for task in tasks for table in net_here(task).tables]
    assert not folder.exists()
    assert len(tasks) > 3
    assert sum(sum(one.values()) for one in counts) == made.row_changes == 1600


def test_a_reader_that_cannot_start_says_why() -> None:
    with pytest.raises(BenchError, match="the log reader did not start"):
        side_at_a_closed_port()


def side_at_a_closed_port() -> None:
    folder = server_folder("penstock-test-pg-")
    nobody = ReaderSide(EmbeddedPostgres(folder))  # never started: nothing listens at its port
    try:
        nobody.start([Table("marks")])
    finally:
        nobody.stop()
        folder.rmdir()


def test_a_receiver_that_ended_says_what_it_said(source: EmbeddedPostgres) -> None:
    with source.connect(DATABASE) as connection:
        connection.execute("CREATE TABLE marks (id bigint PRIMARY KEY)")
    side = ReceiverSide(source)
    try:
        side.start([Table("marks")])
        wait_until(lambda: _active(source), 30, "it reads")
        (member,) = [process for _, process in side.members()]
        member.terminate()
        with pytest.raises(BenchError, match="pg_recvlogical has ended"):
            side.arm(1, "FFFFFFFF/0").result(30)
    finally:
        side.stop()
        wait_until(lambda: not _active(source), 30, "it has gone")
        source.execute("SELECT pg_drop_replication_slot('native')", database=DATABASE)


def _active(source: EmbeddedPostgres) -> bool:
    return source.execute("SELECT active FROM pg_replication_slots WHERE slot_name = 'native'") == [(True,)]
