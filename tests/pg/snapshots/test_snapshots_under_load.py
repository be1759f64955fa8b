"""Snapshots as files during replication: each is the source at its position, in all tables, whatever happens meanwhile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.link.snapshots import SnapshotReport
from engine.model.position import Lsn
from engine.model.snapshots import SnapshotFormat
from engine.model.subscription_state import DesiredState
from engine.platform import failpoints
from engine.platform.failpoints import Failpoint
from tests.fixtures.load import Load
from tests.fixtures.postgres import Database, Session
from tests.fixtures.replication import Replica, table
from tests.fixtures.waiting import wait_until
from tests.pg.snapshots.desk import Desk, manifest, rows

pytestmark = pytest.mark.pg
each_target = pytest.mark.parametrize("target_kind", ["duckdb", "postgres"])
mostly_duckdb = pytest.mark.parametrize("target_kind", ["duckdb", pytest.param("postgres", marks=pytest.mark.chaos)])

ACCOUNTS = 40
BANK = f"""
CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL, note text);
CREATE TABLE transfers (seq bigint PRIMARY KEY, giver int NOT NULL, taker int NOT NULL, amount bigint NOT NULL);
CREATE TABLE totals (id int PRIMARY KEY, transfers bigint NOT NULL);
INSERT INTO accounts SELECT i, 1000, repeat('n', i * 20) FROM generate_series(1, {ACCOUNTS}) i;
INSERT INTO totals VALUES (1, 0);
"""
Replicate = Callable[..., Replica]


class Bank(Load):
    """One writer of transfers. `after[k]`: a position at or after the end of transfer k, and before that of k + 1."""

    def __init__(self, database: Database) -> None:
        super().__init__(database.connect, "bank")
        self.after = [Lsn(0)]

    def transact(self, connection: Session) -> None:
        seq = len(self.after)
        giver, taker = parties(seq)
        with connection.transaction():
            connection.execute("INSERT INTO transfers VALUES (%s, %s, %s, %s)", [seq, giver, taker, seq % 5])
            connection.execute("UPDATE accounts SET balance = balance - %s WHERE id = %s", [seq % 5, giver])
            connection.execute("UPDATE accounts SET balance = balance + %s WHERE id = %s", [seq % 5, taker])
            connection.execute("UPDATE totals SET transfers = %s", [seq])
        row = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
        assert row is not None
        self.after.append(Lsn.parse(str(row[0])))


def parties(seq: int) -> tuple[int, int]:
    return seq % ACCOUNTS + 1, seq * 7 % ACCOUNTS + 1


@pytest.fixture
def replica(database: Database, replicate: Replicate) -> Replica:
    database.execute(BANK)
    return replicate(database, [table("accounts"), table("transfers"), table("totals")])


def check(report: SnapshotReport, bank: Bank) -> int:
    """The snapshot is the source's state at its position, row by row; the number of its transfers."""
    assert report.state == "succeeded", report.problem
    assert report.position is not None
    found = rows(report, "transfers")
    last = len(found)
    assert [row[0] for row in found] == list(range(1, last + 1))
    balances = dict.fromkeys(range(1, ACCOUNTS + 1), 1000)
    for seq, giver, taker, amount in found:
        assert (giver, taker, amount) == (*parties(seq), seq % 5)
        balances[giver] -= amount
        balances[taker] += amount
    assert rows(report, "accounts") == [(i, balances[i], "n" * i * 20) for i in sorted(balances)]
    assert rows(report, "totals") == [(1, last)]
    # Transfer k ended after `after[k - 1]`, and at `after[k]` at the latest.
    after = [*bank.after]
    assert all(position > report.position for position in after[last + 1 :])
    assert last == 0 or after[last - 1] < report.position
    assert {t["name"]: t["rows"] for t in manifest(report)["tables"]} == {
        "accounts": ACCOUNTS,
        "totals": 1,
        "transfers": last,
    }
    return last


@pytest.mark.parametrize(
    ("target_kind", "kind"),
    [
        ("duckdb", SnapshotFormat.PARQUET),
        ("duckdb", SnapshotFormat.DUCKDB),
        ("postgres", SnapshotFormat.PARQUET),
        pytest.param("postgres", SnapshotFormat.DUCKDB, marks=pytest.mark.chaos),
    ],
)
def test_each_snapshot_is_the_source_at_its_position(replica: Replica, kind: SnapshotFormat) -> None:
    desk = Desk(replica)
    with Bank(replica.database) as bank:
        bank.more(20)
        replica.catch_up()
        taken = [check(desk.take(format=kind), bank) for _ in range(4)]
    assert taken == sorted(taken)
    replica.catch_up()
    final = desk.take(format=kind)
    assert check(final, bank) == len(bank.after) - 1
    assert manifest(final)["commit_time"] is not None
    assert (desk.folder / f"latest-{kind.value}").readlink() == Path(str(final.name))
    assert not [name for name in desk.names() if name.startswith(".")]
    replica.assert_equal()


_READER = """
import sys, threading, duckdb
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
seen = set()
while not ended.is_set():
    with duckdb.connect(sys.argv[1], read_only=True) as found:
        (position,) = found.execute("SELECT position FROM penstock.snapshot").fetchone()
        last, total = found.execute("SELECT (SELECT count(*) FROM transfers), (SELECT transfers FROM totals)").fetchone()
        assert last == total, (position, last, total)
        if position not in seen:
            seen.add(position)
            print(position, flush=True)
"""


@mostly_duckdb
def test_a_reader_in_another_process_sees_whole_files_one_after_another(replica: Replica, tmp_path: Path) -> None:
    desk = Desk(replica)
    with Bank(replica.database) as bank:
        bank.more(20)
        replica.catch_up()
        positions = [desk.take(format=SnapshotFormat.DUCKDB).position]
        path = desk.folder / "latest-duckdb" / "copy.duckdb"
        script = _READER.replace("FROM transfers", "FROM public.transfers").replace("FROM totals", "FROM public.totals")
        with subprocess.Popen(
            [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            try:
                seen = [process.stdout.readline().strip()]
                for _ in range(5):
                    # The reader prints a position once, and two snapshots of a copy that did not move have the same.
                    bank.more(1)
                    positions.append(desk.take(format=SnapshotFormat.DUCKDB, at_least=replica.catch_up()).position)
                    while len(seen) < 2:
                        seen.append(process.stdout.readline().strip())
                rest, _ = process.communicate("", timeout=30)
            finally:
                process.kill()
    assert process.returncode == 0
    assert len([*seen, *rest.split()]) >= 2
    assert {*seen, *rest.split()} <= {str(position) for position in positions}


@mostly_duckdb
def test_a_table_that_is_not_live_is_refused_by_name_or_left_out(replica: Replica) -> None:
    desk = Desk(replica)
    replica.catch_up()
    totals = replica.table_id("totals")
    paused = [table for table in replica.spec.tables if table.table != totals]
    replica.replace(*paused, *(replace(t, paused=True) for t in replica.spec.tables if t.table == totals))
    replica.wait_table("totals", "paused")
    refused = desk.take()
    assert (refused.state, refused.problem and refused.problem.code) == ("failed", "table_not_live")
    assert refused.problem is not None
    assert "public.totals is paused" in refused.problem.detail
    without = desk.take(leave_out=True)
    assert without.state == "succeeded"
    assert [(t.table, t.state) for t in without.left_out] == [(totals, "paused")]
    assert [t["name"] for t in manifest(without)["left_out"]] == ["totals"]
    assert not (Path(str(without.folder)) / "public.totals.parquet").exists()
    only = desk.take(tables=[str(replica.table_id("accounts"))])
    assert (only.state, len(only.tables)) == ("succeeded", 1)
    none = desk.take(tables=[str(totals)], leave_out=True)
    assert none.problem is not None
    assert none.problem.code == "table_not_live"


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Callable[[Failpoint], Path]]:
    """Arms a failpoint so that the process is held there; the file that exists meanwhile."""
    folder = tmp_path / "held"
    folder.mkdir()
    failpoints.watch(folder)

    def hold(point: Failpoint) -> Path:
        (folder / point.value).write_text("hold")
        return failpoints.held_file(folder, point)

    yield hold
    failpoints.watch(None)


@each_target
def test_the_writer_goes_on_while_a_snapshot_is_held(replica: Replica, held: Callable[[Failpoint], Path]) -> None:
    """A table is replaced and changed meanwhile; the snapshot has the rows of its position, or ends, and never has others."""
    desk = Desk(replica)
    replica.catch_up()
    file = held(Failpoint.SNAPSHOT_TABLE)
    snapshot = desk.begin()
    wait_until(file.exists)
    replica.database.execute("INSERT INTO transfers VALUES (1, 1, 2, 0); UPDATE totals SET transfers = 1")
    replica.catch_up()
    replica.pipeline.reload("r1", [replica.table_id("totals")])
    replica.wait_reload("r1")
    replica.database.execute("ALTER TABLE transfers ADD COLUMN more int DEFAULT 7")
    replica.database.execute("INSERT INTO transfers VALUES (2, 1, 2, 0)")
    replica.catch_up()
    file.unlink()
    report = desk.end_of(snapshot)
    if report.state == "succeeded":
        assert (rows(report, "transfers"), rows(report, "totals")) == ([], [(1, 0)])
    else:
        assert report.problem is not None
        assert report.problem.code == "snapshot_unavailable"
        assert desk.names() == []
    assert len(rows(desk.take(), "transfers")) == 2


@each_target
def test_a_snapshot_is_cancelled_and_leaves_nothing(replica: Replica, held: Callable[[Failpoint], Path]) -> None:
    desk = Desk(replica)
    replica.catch_up()
    file = held(Failpoint.SNAPSHOT_TABLE)
    snapshot = desk.begin()
    wait_until(file.exists)
    assert [name[:9] for name in desk.names()] == [".writing-"]
    desk.begin(snapshot_id=snapshot)  # the server repeats what has not ended
    desk.desk.clean(str(replica.spec.name))
    desk.desk.cancel(snapshot)
    file.unlink()
    assert desk.end_of(snapshot).state == "cancelled"
    assert desk.names() == []


@mostly_duckdb
def test_limits_and_demands_that_cannot_be_met_end_it_with_a_reason(replica: Replica) -> None:
    desk = Desk(replica)
    position = replica.catch_up()

    def code(**asked: Any) -> str:
        report = desk.take(**asked)
        assert report.problem is not None
        return report.problem.code

    assert code(limit_s=0.0) == "snapshot_timeout"
    assert code(at_least=Lsn.parse("FFFF/0")) == "snapshot_too_old"
    assert code(tables=["t0123"]) == "table_not_live"
    assert code(begun=True) == "snapshot_interrupted"
    (desk.folder / "latest-parquet").mkdir(parents=True)
    assert code() == "snapshot_place_taken"
    assert desk.take(latest=False, at_least=position).state == "succeeded"
    replica.desire(DesiredState.STOPPED)
    replica.wait_state("stopped")
    assert code() == "snapshot_unavailable"
    assert [name for name in desk.names() if name.startswith(".")] == []
