"""The load of the demonstration: its rate, its counts, its failures and its ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from server.demo import schema
from server.demo.embedded import EmbeddedPostgres, server_folder
from server.demo.workload import Workload
from tests.fixtures.postgres import Database
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

ORDERS = 50
RATE = 150
NOTES = """
CREATE TABLE noted (what text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO noted VALUES (TG_OP || ' ' || TG_TABLE_NAME); RETURN NULL; END $$;
CREATE TRIGGER note AFTER INSERT OR DELETE ON orders EXECUTE FUNCTION note();
CREATE TRIGGER note AFTER UPDATE ON customers EXECUTE FUNCTION note();
CREATE TRIGGER note AFTER UPDATE ON products EXECUTE FUNCTION note();
CREATE TRIGGER note AFTER UPDATE ON loyalty_cards EXECUTE FUNCTION note();
"""
"""Each transaction that commits leaves one row in `noted`."""
SHARES_NOTED = {
    "INSERT orders": 40 + 3,
    "UPDATE customers": 24 + 10,
    "UPDATE products": 8,
    "UPDATE loyalty_cards": 6,
    "DELETE orders": 5,
}
PARENT = """
import sys
from pathlib import Path
from server.demo.embedded import EmbeddedPostgres, server_folder
from server.demo.workload import Workload

load = Workload(EmbeddedPostgres(Path(sys.argv[1]), port=int(sys.argv[2])), sys.argv[3], 100, clients=2)
load.start()
print(load._process.pid, flush=True)
sys.stdin.read()
"""
"""A process with a load, which lasts until its input ends."""


@pytest.fixture
def shop(database: Database) -> Database:
    with database.connect() as connection:
        schema.create(connection, orders=ORDERS)
    return database


@contextmanager
def running(shop: Database, rate: float = RATE, clients: int = 3) -> Iterator[Workload]:
    load = Workload(shop.cluster, shop.name, rate, clients=clients)
    load.start()
    try:
        yield load
    finally:
        load.stop()


def pgbench(load: Workload) -> psutil.Process:
    """The process of a load that has been started."""
    assert load._process is not None
    return psutil.Process(load._process.pid)


def sessions(shop: Database) -> int:
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name = 'pgbench'"
    return int(shop.cluster.execute(count, [shop.name])[0][0])


def waiting(shop: Database) -> int:
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
    return int(shop.cluster.execute(count, [shop.name])[0][0])


def rolled_back(shop: Database) -> int:
    """Transactions that were rolled back, by the server's statistics, which sessions bring up to date when they end."""
    wait_until(lambda: sessions(shop) == 0, what="the ends of the load's sessions")
    count = "SELECT xact_rollback FROM pg_stat_database WHERE datname = %s"
    return int(shop.cluster.execute(count, [shop.name])[0][0])


def test_rate_shares_and_counts(shop: Database) -> None:
    shop.execute(NOTES)
    before = rolled_back(shop)
    with running(shop, rate=400) as load:
        wait_until(lambda: load.transactions > 1500, 30, "transactions of the load")
        seen = load.transactions, load.rolled_back
    assert load.failure is None
    noted: dict[str, int] = dict(shop.execute("SELECT what, count(*) FROM noted GROUP BY 1"))
    assert load.transactions == sum(noted.values())
    assert load.rolled_back == rolled_back(shop) - before
    assert seen[0] == pytest.approx(load.transactions, abs=400 * 3), "progress is printed each second"
    assert seen[1] == pytest.approx(load.rolled_back, abs=40 * 3)
    total = load.transactions + load.rolled_back
    expected = {**SHARES_NOTED, "rolled back": 4}
    for what, count in {**noted, "rolled back": load.rolled_back}.items():
        mean = total * expected[what] / 100
        assert count == pytest.approx(mean, abs=6 * mean**0.5), what


def test_no_process_and_no_session_is_left(shop: Database) -> None:
    with running(shop) as load:
        wait_until(lambda: sessions(shop) == 3, what="the sessions of the load")
        process = pgbench(load)
        assert "pgbench" in process.name()
    assert not process.is_running()
    assert load.failure is None
    wait_until(lambda: sessions(shop) == 0, what="the ends of the load's sessions")
    load.stop()  # again, without effect
    assert load.failure is None


def test_stop_immediately_after_start(shop: Database) -> None:
    with running(shop) as load:
        process = pgbench(load)
    assert not process.is_running()
    assert load.failure is None


def test_transaction_that_waits_is_given_up_at_the_timeout(shop: Database) -> None:
    with running(shop, clients=2) as load, shop.connect() as connection, connection.transaction():
        process = pgbench(load)
        connection.execute("LOCK TABLE customers, products, loyalty_cards, orders IN ACCESS EXCLUSIVE MODE")
        wait_until(lambda: waiting(shop) > 0, what="a session that waits for the lock")
        load.stop(0.2)
    assert not process.is_running()
    assert load.failure is None


def test_lost_conflicts_are_tried_again(pg18: EmbeddedPostgres, database_on: Callable[..., Database]) -> None:
    shop = database_on(pg18, default_transaction_isolation="'repeatable read'")
    with shop.connect() as connection:
        schema.create(connection, orders=ORDERS)
    before = rolled_back(shop)
    with shop.connect() as connection, running(shop) as load:
        with connection.transaction():
            connection.execute("UPDATE stock SET counted_at = now()")
            wait_until(lambda: waiting(shop) == 3, what="sessions that wait for stock")
        wait_until(lambda: load.rolled_back >= 3 or load.failure, what="a second of progress after the conflicts")
    assert load.failure is None
    assert load.rolled_back == rolled_back(shop) - before


def test_error_of_the_load_is_named_without_values(shop: Database) -> None:
    shop.execute("ALTER TABLE order_events ADD CHECK (kind <> 'placed')")
    with running(shop) as load:
        process = pgbench(load)
        wait_until(lambda: load.failure, 30, "the failure")
    assert 'ERROR:  new row for relation "order_events" violates check constraint' in str(load.failure)
    assert "DETAIL" not in str(load.failure)
    assert "warehouse" not in str(load.failure)
    assert not process.is_running()


def test_one_lost_session_ends_the_load(shop: Database) -> None:
    with running(shop) as load:
        wait_until(lambda: load.transactions, what="a transaction of the load")
        one = "(SELECT min(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pgbench')"
        shop.execute(f"SELECT pg_terminate_backend({one})")
        wait_until(lambda: load.failure, what="the failure")
    assert "FATAL:  terminating connection due to administrator command" in str(load.failure)


def test_killed_pgbench_is_a_failure(shop: Database) -> None:
    with running(shop) as load:
        wait_until(lambda: load.transactions, what="a transaction of the load")
        pgbench(load).kill()
        wait_until(lambda: load.failure, what="the failure")
    assert str(load.failure) == "pgbench ended with -9"


def test_program_that_cannot_be_started_is_a_failure(shop: Database, tmp_path: Path) -> None:
    without = EmbeddedPostgres(tmp_path, port=shop.cluster.port, installation=tmp_path)
    load = Workload(without, shop.name, RATE)
    load.start()
    wait_until(lambda: load.failure, what="the failure")
    load.stop()
    assert "No such file or directory" in str(load.failure)


def test_refused_sessions_are_a_failure(shop: Database) -> None:
    shop.cluster.execute(f'ALTER DATABASE "{shop.name}" CONNECTION LIMIT 2')
    shop.cluster.execute("CREATE ROLE clerk LOGIN")
    with shop.connect() as connection:
        connection.execute(
            "GRANT ALL ON ALL TABLES IN SCHEMA public TO clerk; GRANT ALL ON SEQUENCE orders_id_seq TO clerk"
        )
    limited = EmbeddedPostgres(shop.cluster.folder, port=shop.cluster.port)
    limited.user = "clerk"
    load = Workload(limited, shop.name, RATE)
    try:
        load.start()
        wait_until(lambda: load.failure, what="the failure")
    finally:
        load.stop()
        shop.execute("DROP OWNED BY clerk")
        shop.execute("DROP ROLE clerk")
    assert "too many connections for database" in str(load.failure)


def test_password_is_not_on_the_command_line(tmp_path: Path) -> None:
    cluster = EmbeddedPostgres(server_folder("penstock-test-pg-"), password="open sesame")
    try:
        cluster.start()
        with cluster.connect() as connection:
            schema.create(connection, orders=ORDERS)
        with running(Database(cluster, "postgres")) as load:
            wait_until(lambda: load.transactions, what="a transaction of the load")
            command = pgbench(load).cmdline()
        assert load.failure is None
        assert "sesame" not in " ".join(command)
    finally:
        cluster.destroy()


def test_orders_with_ids_of_their_own_are_continued(shop: Database) -> None:
    shop.execute("INSERT INTO orders (id, customer_id, total) VALUES (51, 1, 1), (60, 1, 1)")
    with running(shop) as load:
        wait_until(lambda: load.transactions > 20 or load.failure, what="transactions of the load")
    assert load.failure is None
    assert shop.execute("SELECT count(*) FROM orders WHERE id BETWEEN 52 AND 59") == [(0,)]


def test_ends_with_a_killed_parent(shop: Database) -> None:
    arguments = [str(shop.cluster.folder), str(shop.cluster.port), shop.name]
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    ) as parent:
        assert parent.stdout is not None
        process = psutil.Process(int(parent.stdout.readline()))
        wait_until(lambda: sessions(shop) == 2, what="the sessions of the load")
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, what="the end of pgbench")
    wait_until(lambda: sessions(shop) == 0, what="the ends of the load's sessions")
