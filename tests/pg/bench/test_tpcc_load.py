"""The order-entry load against a real PostgreSQL, and its conditions there and on a DuckDB copy."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

import psycopg
import pytest

from bench.tpcc import Done, Driver, Kind, Scale, TpccError, TpccWorkload
from bench.tpcc.consistency import CONDITIONS
from bench.tpcc.suite import Tpcc
from bench.workload import DATABASE
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

SMALL = Scale(warehouses=1, items=200, customers=30)
WORKLOAD = TpccWorkload()
HOLDS = dict.fromkeys(CONDITIONS, 0)

BROKEN = {
    "UPDATE tpcc.warehouse SET w_ytd = w_ytd + 0.01": {"c01", "c08"},
    "UPDATE tpcc.district SET d_ytd = d_ytd + CASE d_id WHEN 1 THEN 1 ELSE -1 END WHERE d_id < 3": {"c09"},
    "UPDATE tpcc.district SET d_next_o_id = d_next_o_id + 1 WHERE d_id = 4": {"c02"},
    "DELETE FROM tpcc.new_order WHERE no_d_id = 1 AND no_o_id = 25": {"c03", "c05", "c11"},
    "INSERT INTO tpcc.new_order VALUES (1, 3, 21)": {"c05", "c11"},
    "DELETE FROM tpcc.new_order WHERE no_d_id = 7 AND no_o_id = 30": {"c02", "c05", "c11"},
    "UPDATE tpcc.orders SET o_ol_cnt = o_ol_cnt + CASE o_id WHEN 1 THEN 1 ELSE -1 END WHERE o_id < 3": {"c06"},
    "DELETE FROM tpcc.order_line WHERE ol_o_id = 30 AND ol_d_id = 2 AND ol_number = 5": {"c04", "c06"},
    "UPDATE tpcc.order_line SET ol_o_id = 1000 WHERE ol_o_id = 30 AND ol_d_id = 2 AND ol_number = 5": {"c06", "c07"},
    "UPDATE tpcc.orders SET o_carrier_id = NULL WHERE o_id = 3 AND o_d_id = 5": {"c05", "c07"},
    "UPDATE tpcc.order_line SET ol_delivery_d = NULL WHERE ol_o_id = 3 AND ol_d_id = 5 AND ol_number = 1": {"c07"},
    "DELETE FROM tpcc.history WHERE h_c_id = 7 AND h_c_d_id = 7": {"c08", "c09", "c10"},
    "UPDATE tpcc.history SET h_c_id = 8 WHERE h_c_id = 7 AND h_c_d_id = 7": {"c10"},
    "UPDATE tpcc.customer SET c_ytd_payment = 11 WHERE c_id = 9 AND c_d_id = 9": {"c12"},
    "UPDATE tpcc.order_line SET ol_amount = 5 WHERE ol_o_id = 3 AND ol_d_id = 5 AND ol_number = 1": {"c10", "c12"},
    "UPDATE tpcc.customer SET c_delivery_cnt = 1 WHERE c_id = 9 AND c_d_id = 9": {"c11"},
}


@pytest.fixture
def loaded(database: Database) -> Database:
    with database.connect() as connection:
        WORKLOAD.create(connection, SMALL)
    return database


def on(connection: psycopg.Connection[Any]) -> Callable[[str], list[Any]]:
    return lambda sql: connection.execute(sql.encode()).fetchall()


def transactions(counts: dict[str, int]) -> int:
    return sum(counts[kind] for kind in Kind) + counts["rolled_back"]


def test_full_mix_keeps_all_conditions(loaded: Database) -> None:
    assert WORKLOAD.check(loaded.execute) == HOLDS
    before = loaded.execute("SELECT count(*) FROM tpcc.orders")[0][0]
    counts = WORKLOAD.generate(loaded.connect, transactions=600, clients=3, seed=1)
    assert WORKLOAD.check(loaded.execute) == HOLDS
    assert transactions(counts) == 600
    assert min(counts[kind] for kind in Kind) > 5
    assert counts["rolled_back"] > 0
    assert loaded.execute("SELECT count(*) FROM tpcc.orders") == [(before + counts["new_order"],)]
    assert loaded.execute("SELECT count(*) - 300 FROM tpcc.history") == [(counts["payment"],)]
    assert loaded.execute("SELECT sum(c_delivery_cnt) > 50, sum(c_payment_cnt) - 300 FROM tpcc.customer") == [
        (True, counts["payment"])
    ]
    assert loaded.execute("SELECT count(*) FROM tpcc.stock WHERE s_quantity NOT BETWEEN 10 AND 100") == [(0,)]
    assert loaded.execute(
        "SELECT sum(s_ytd) = (SELECT sum(ol_quantity) FROM tpcc.order_line WHERE ol_o_id > 30) FROM tpcc.stock"
    ) == [(True,)]


def test_changes_counted_are_those_of_the_tables(loaded: Database) -> None:
    tables = ", ".join(f"'{document['name']}'" for document in WORKLOAD.tables)
    changed = (
        "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables"
        f" WHERE schemaname = 'tpcc' AND relname IN ({tables})"
    )
    with loaded.connect() as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
    before = loaded.execute(changed)[0][0]
    counts = WORKLOAD.generate(loaded.connect, transactions=200, clients=1, seed=8)
    # Statistics count what was rolled back too, so only as much as that may be between.
    undone = counts["rolled_back"] * 33
    assert counts["row_changes"] <= loaded.execute(changed)[0][0] - before <= counts["row_changes"] + undone


def test_what_is_broken_by_hand_is_reported(loaded: Database) -> None:
    reported: dict[str, set[str]] = {}
    with loaded.connect() as connection:
        for statement in BROKEN:
            with connection.transaction(force_rollback=True):
                connection.execute(statement.encode())
                found = WORKLOAD.check(on(connection))
            reported[statement] = {name[:3] for name, violations in found.items() if violations}
        assert WORKLOAD.check(on(connection)) == HOLDS
    assert reported == BROKEN
    assert set().union(*BROKEN.values()) == {name[:3] for name in CONDITIONS}


def test_losers_of_a_conflict_run_again(database: Database) -> None:
    with database.connect() as connection:
        WORKLOAD.create(connection, Scale(warehouses=2, items=100, customers=10))

    def connect() -> psycopg.Connection[Any]:
        return database.connect(options=r"-c default_transaction_isolation=repeatable\ read")

    counts = WORKLOAD.generate(connect, transactions=400, clients=4, seed=2)
    assert transactions(counts) == 400
    assert counts["serialization_failures"] > 0
    assert WORKLOAD.check(database.execute) == HOLDS
    assert database.execute("SELECT sum(s_remote_cnt) > 0 FROM tpcc.stock") == [(True,)]


def test_open_loop_keeps_its_times(loaded: Database) -> None:
    done: list[Done] = []
    driver = Driver(loaded.connect, clients=3, rate=100, transactions=120, observe=done.append)
    driver.start()
    counts = driver.join(30)
    assert transactions(counts) == len(done) == 120
    due = sorted(one.due for one in done)
    assert due[-1] - due[0] == pytest.approx(119 / 100)
    assert all(one.ended >= one.due for one in done)
    assert sum(one.committed for one in done) == 120 - counts["rolled_back"]


def test_stopped_open_loop_is_consistent(loaded: Database) -> None:
    some = threading.Event()
    driver = Driver(loaded.connect, clients=2, rate=300, observe=lambda _: some.set())
    driver.start()
    assert some.wait(10)
    counts = driver.stop()
    assert transactions(counts) > 0
    assert WORKLOAD.check(loaded.execute) == HOLDS


def test_error_of_a_client_ends_the_load(loaded: Database) -> None:
    loaded.execute("DROP TABLE tpcc.history")
    with pytest.raises(TpccError) as caught:
        WORKLOAD.generate(loaded.connect, transactions=500, clients=2, seed=1)
    assert isinstance(caught.value.__cause__, psycopg.errors.UndefinedTable)


def test_client_that_cannot_connect_ends_the_load(loaded: Database) -> None:
    calls = iter(range(100))

    def connect() -> psycopg.Connection[Any]:
        return loaded.connect() if next(calls) < 2 else loaded.connect(dbname="no such database")

    with pytest.raises(TpccError) as caught:
        WORKLOAD.generate(connect, transactions=50, clients=3, seed=1)
    assert isinstance(caught.value.__cause__, psycopg.OperationalError)


def test_program_runs_until_it_is_interrupted(loaded: Database) -> None:
    command = [sys.executable, "-m", "bench.tpcc", loaded.dsn, "--rate", "150", "--clients", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        with loaded.connect() as connection:
            paid = wait_for_payments(connection)
        program.send_signal(signal.SIGINT)
        output, errors = program.communicate(timeout=30)
    assert (program.returncode, errors) == (0, "")
    assert json.loads(output)["payment"] >= paid > 0
    assert WORKLOAD.check(loaded.execute) == HOLDS


def wait_for_payments(connection: psycopg.Connection[Any]) -> int:
    """How many payments there are since the load, once there are some."""
    deadline = monotonic() + 60
    while monotonic() < deadline:
        row = connection.execute("SELECT count(*) - 300, pg_sleep(0.1) FROM tpcc.history").fetchone()
        assert row is not None
        if row[0] > 0:
            return int(row[0])
    raise AssertionError("no payment within 60 s")


def test_program_tells_why_it_ended(database: Database) -> None:
    command = [sys.executable, "-m", "bench.tpcc", database.dsn, "--rate", "10"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("UndefinedTable: ")
    assert ended.stderr.count("\n") == 1


def test_suite_finds_what_is_wrong_on_either_side(loaded: Database) -> None:
    assert [t.name for t in Tpcc().tables() if t.insert_only] == ["history"]
    with loaded.connect() as connection:
        query = on(connection)
        assert Tpcc().check(connection, query) == []
        broken = Tpcc().check(connection, lambda sql: [[1]] if "span" in sql else query(sql))
    assert broken == ["c03_new_orders_have_no_gaps on the copy: 1 violations"]


def test_suite_counts_what_the_log_has(private_cluster: Callable[..., EmbeddedPostgres]) -> None:
    cluster, workload = private_cluster(18), Tpcc()
    cluster.execute(f"CREATE DATABASE {DATABASE}")
    with cluster.connect(DATABASE) as connection:
        WORKLOAD.create(connection, SMALL)
        made = workload.generate(cluster, 300)
        paid = connection.execute("SELECT count(*) - 300 FROM tpcc.history").fetchone()
        placed = connection.execute("SELECT count(*) - 300 FROM tpcc.orders").fetchone()
    assert paid is not None
    assert placed is not None
    assert paid[0] + placed[0] < made.transactions < 300
    assert made.row_changes / 300 == pytest.approx(workload.row_changes_per_transaction(), rel=0.25)


@pytest.mark.chaos
def test_conditions_hold_on_the_copy(loaded: Database, replicate: Callable[..., Replica]) -> None:
    WORKLOAD.generate(loaded.connect, transactions=100, clients=2, seed=3)
    specs = [
        table(document["name"], document["schema"], insert_only=document.get("insert_only", False))
        for document in WORKLOAD.tables
    ]
    replica = replicate(loaded, specs)
    assert WORKLOAD.check(replica.query) == HOLDS
    counts = WORKLOAD.generate(loaded.connect, transactions=600, clients=3, seed=4)
    replica.assert_equal()
    assert WORKLOAD.check(replica.query) == HOLDS
    orders = replica.query("SELECT count(*) FROM tpcc.orders")
    assert orders == loaded.execute("SELECT count(*) FROM tpcc.orders")
    assert orders[0][0] > counts["new_order"]
    loaded.execute("UPDATE tpcc.customer SET c_balance = c_balance + 1 WHERE c_id = 1 AND c_d_id = 1")
    replica.catch_up()
    reported = {name[:3]: violations for name, violations in WORKLOAD.check(replica.query).items() if violations}
    assert reported == {"c10": 1, "c12": 1}


@pytest.mark.chaos
def test_conditions_hold_at_any_moment_of_the_copy(loaded: Database, replicate: Callable[..., Replica]) -> None:
    specs = [table(d["name"], d["schema"], insert_only=d.get("insert_only", False)) for d in WORKLOAD.tables]
    replica = replicate(loaded, specs)
    driver = Driver(loaded.connect, clients=2, rate=200)
    driver.start()
    together = " UNION ALL ".join(f"SELECT '{name}', ({sql})" for name, sql in CONDITIONS.items())
    seen: set[int] = set()
    looks = 0
    try:
        while len(seen) < 4 and looks < 200:
            looks += 1
            replica.catch_up()
            seen.add(replica.query("SELECT count(*) FROM tpcc.history")[0][0])
            assert dict(replica.query(together)) == HOLDS
    finally:
        driver.stop()
    assert len(seen) == 4
    replica.assert_equal()
