"""`lanes` on real PostgreSQL: what it writes, the usual modes compared with it, what its checks find, and a whole run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import perf_counter

import pytest

from bench import lanes, suite
from bench.delay import DelayProxy
from bench.errors import BenchError
from bench.lanes import KEYED, PAIRS, order_wrong
from bench.report import markdown
from bench.round_trips import FORMS, Form, Statement, measured_ms, write
from bench.suite import Order
from bench.workload import DATABASE, Connection
from bench.workloads import WORKLOADS
from server.demo.embedded import EmbeddedPostgres, server_folder
from tests.fixtures.postgres import Database

pytestmark = [pytest.mark.pg, pytest.mark.chaos]

TOGETHER, SINGLE = FORMS


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedPostgres]:
    postgres = EmbeddedPostgres(server_folder("penstock-test-pg-"), settings={"track_commit_timestamp": "on"})
    try:
        postgres.start()
        yield postgres
    finally:
        postgres.destroy()


@pytest.fixture
def written(cluster: EmbeddedPostgres) -> Iterator[Connection]:
    """The workload's tables in a database of the suite's name, with 20 transactions of it."""
    workload = WORKLOADS["lanes"]
    cluster.execute(f"CREATE DATABASE {DATABASE}")
    with cluster.connect(DATABASE) as connection:
        workload.create(connection, 1)
        made = [workload.generate(cluster, amount) for amount in (15, 5)]
        assert [(one.transactions, one.row_changes) for one in made] == [(15, 60), (5, 20)]
        yield connection
    cluster.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


@pytest.fixture
def counters(database: Database) -> Database:
    database.execute("CREATE TABLE sent (number bigint PRIMARY KEY, by int NOT NULL)")
    return database


def statements(number: int) -> list[Statement]:
    return [
        ("INSERT INTO sent VALUES (%s, 0)", (number,)),
        ("UPDATE sent SET by = pg_backend_pid() WHERE number = %s", (number,)),
    ]


def test_transactions_are_numbered_by_their_commits_and_share_no_row(written: Connection) -> None:
    assert written.execute("SELECT number FROM history ORDER BY number").fetchall() == [(n,) for n in range(1, 21)]
    for table in KEYED:
        changed = written.execute(f"SELECT id, balance FROM {table} WHERE balance > 0 ORDER BY id".encode()).fetchall()
        assert changed == [(number, number) for number in range(1, 21)]
    assert order_wrong(written) == []


def test_a_transaction_that_came_too_early_is_found(written: Connection) -> None:
    written.execute("UPDATE history SET number = 1000 - number WHERE number = 7")
    written.execute("UPDATE history SET number = 500 WHERE number = 8")
    (told,) = order_wrong(written)
    assert told == "1 transactions were committed before the one that the source has before them"


def test_transactions_that_became_one_are_found(written: Connection) -> None:
    with written.transaction():
        for number in (21, 22):
            written.execute("INSERT INTO history VALUES (%s, now(), '')", [number])
            for table in KEYED:
                written.execute(f"UPDATE {table} SET balance = %s WHERE id = %s".encode(), [number, number])
    assert order_wrong(written) == ["1 transactions share one of the target with others"]


def test_a_transaction_in_parts_is_found(written: Connection) -> None:
    written.execute("UPDATE tellers SET balance = balance WHERE id = 5")
    assert order_wrong(written) == ["1 rows were not written with the rest of their transaction"]


@pytest.mark.parametrize("connections", [1, 2])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_what_is_sent_in_the_usual_ways_is_there(counters: Database, form: Form, connections: int) -> None:
    done = write(counters.connect, form, connections, 0.1, 100, statements)
    found = counters.execute("SELECT count(*), count(DISTINCT by), min(number), max(number) FROM sent")
    assert found[0][:3] == (done["transactions"], connections, 100)
    assert found[0][3] < done["next"] <= found[0][3] + connections
    assert done["transactions_per_s"] == pytest.approx(done["transactions"] / done["seconds"], rel=0.01)


def test_a_way_takes_the_round_trips_that_it_says(counters: Database) -> None:
    far_s, host, port = 0.02, counters.settings["host"], int(counters.settings["port"])
    with DelayProxy(host, port, far_s) as proxy:
        connect = partial(counters.connect, port=proxy.port)
        with connect() as connection:
            assert measured_ms(connection) >= 2000 * far_s
        rates = [write(connect, form, 1, 0.0, first, statements) for first, form in ((1, TOGETHER), (2, SINGLE))]
    assert [one["transactions"] for one in rates] == [1, 1]
    # BEGIN, two statements and COMMIT; they are prepared on the way.
    assert rates[0]["seconds"] >= 2 * far_s
    assert rates[1]["seconds"] >= 4 * 2 * far_s


def test_a_refused_transaction_ends_the_measurement(counters: Database) -> None:
    with pytest.raises(BenchError, match="the target refused a transaction"):
        write(counters.connect, TOGETHER, 1, 60.0, 1, lambda _: [("INSERT INTO sent VALUES (1, 1)", ())])
    assert counters.execute("SELECT count(*) FROM sent") == [(1,)]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_lanes_are_measured_checked_and_reported() -> None:
    said: list[str] = []
    began = perf_counter()
    order = Order(against=True, amount=200, scale=1, rounds=1, seconds=0.05)
    document = suite.run(WORKLOADS["lanes"], order, said.append)
    took = perf_counter() - began
    assert suite.is_good(document)
    assert document["checks"] == {"equal": True, "wrong": []}
    assert (document["target"], document["apply"]) == (lanes.TARGET, lanes.APPLY)
    assert document["delay"]["round_trip_measured_ms"] >= 2.0
    ways = [way.name for way in lanes.WAYS]
    (done,) = document["rounds"]
    assert done["order"][:3] == ways
    assert set(done["ratios"]) == {name for name, _, _ in PAIRS}
    assert done["ratio"] == done["ratios"]["lanes, pessimistic"] > 0
    for way in ways:
        assert (done["sides"][way]["transactions"], done["sides"][way]["batches"]) == (200, 1)
        assert 0 < done["sides"][way]["seconds"] < took
    page = markdown([document])
    assert "| lanes, pessimistic | " in page
    assert "2 ms of delay to the target | at least 1.8 times the rate | " in page
