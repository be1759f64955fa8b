"""`transactional`: the target's transactions are the source's, committed in the same order, however many lanes write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.link.messages import BatchReport
from engine.model.subscription import (
    ApplyMode,
    ApplyPolicy,
    BatchPolicy,
    ConnectionSpec,
    LanePolicy,
)
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import subscription_spec, table
from tests.pg.bad_days.conftest import BadDay, Circumstances

pytestmark = pytest.mark.pg

TRANSACTIONS = 10_000
BANK = """
CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL);
CREATE TABLE tellers (id int PRIMARY KEY, balance int NOT NULL);
CREATE TABLE history (n int PRIMARY KEY, account int, teller int);
INSERT INTO accounts SELECT i, 0 FROM generate_series(1, 5000) i;
INSERT INTO tellers SELECT i, 0 FROM generate_series(1, 60) i;
CREATE PROCEDURE work(first int, count int) LANGUAGE plpgsql AS $$
DECLARE a int; t int;
BEGIN
    FOR i IN first..first + count - 1 LOOP
        a := 1 + (i * 7919) % 5000;
        t := 1 + (i * 31 + i / 7) % 60;
        UPDATE accounts SET balance = balance + i WHERE id = a;
        IF i % 3 = 0 THEN
            UPDATE tellers SET balance = balance + i WHERE id = t;
        END IF;
        IF i % 11 = 0 THEN
            DELETE FROM history WHERE n = i - CASE WHEN i % 5 = 0 THEN 1 ELSE 7 END;
        END IF;
        INSERT INTO history VALUES (i, a, t);
        COMMIT;
    END LOOP;
END $$;
"""


@pytest.mark.parametrize("policy", list(LanePolicy))
def test_the_target_commits_in_the_sources_order(
    database: Database,
    private_cluster: Callable[..., EmbeddedPostgres],
    database_on: Callable[..., Database],
    tmp_path: Path,
    policy: LanePolicy,
) -> None:
    mart = database_on(private_cluster(18, track_commit_timestamp="on"))
    database.execute(BANK)
    with _followed(database, mart, tmp_path, ("accounts", "tellers", "history"), policy) as replica:
        with database.connect() as source:
            source.execute("CALL work(1, %s)", [TRANSACTIONS])
        replica.catch_up(60.0)
        replica.assert_equal()
        modes = {r.mode for r in replica.reports.all() if isinstance(r, BatchReport) and r.transactions > 100}
    assert modes == {ApplyMode.TRANSACTIONAL}
    left = mart.execute("SELECT n, xmin::text, pg_xact_commit_timestamp(xmin) FROM history ORDER BY n")
    assert len(left) == database.execute("SELECT count(*) FROM history")[0][0]
    assert len({writer for _, writer, _ in left}) == len(left) > TRANSACTIONS * 0.9
    times = [when for _, _, when in left]
    assert times == sorted(times)


STREAMED = """
CREATE TABLE entries (n int, at int, of text NOT NULL, PRIMARY KEY (n, at));
CREATE TABLE journal (n int PRIMARY KEY, turn int NOT NULL);
CREATE TABLE turns (last int NOT NULL);
INSERT INTO turns VALUES (0);
CREATE PROCEDURE work(first int, count int) LANGUAGE plpgsql AS $$
DECLARE mine int;
BEGIN
    FOR i IN first..first + count - 1 LOOP
        INSERT INTO entries SELECT i, at, repeat('x', 40) FROM generate_series(1, CASE WHEN i % 2 = 0 THEN 1200 ELSE 3 END) at;
        UPDATE entries SET of = 'late' WHERE n = i - 2 AND at < 3;
        UPDATE turns SET last = last + 1 RETURNING last INTO mine;
        INSERT INTO journal VALUES (i, mine);
        COMMIT;
    END LOOP;
END $$;
"""
"""`turn` is the order of commits: who has it holds a row until its commit. Every other transaction is too large for the source's
decoding memory."""


def test_streamed_transactions_stay_apart_and_share_batches(
    database: Database,
    private_cluster: Callable[..., EmbeddedPostgres],
    database_on: Callable[..., Database],
    tmp_path: Path,
) -> None:
    mart = database_on(private_cluster(18, track_commit_timestamp="on"))
    database.execute(f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'")
    database.execute(STREAMED)

    def work(first: int) -> None:
        with database.connect() as source:
            source.execute("CALL work(%s, 100)", [first])

    with _followed(database, mart, tmp_path, ("entries", "journal"), LanePolicy.PESSIMISTIC) as replica:
        before = len(replica.reports.all())
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, (1, 1001)))
        replica.catch_up(60.0)
        replica.assert_equal()
        batches = [r for r in replica.reports.all()[before:] if isinstance(r, BatchReport) and r.transactions]
        [(streamed,)] = database.execute(
            "SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = %s", [replica.spec.reader]
        )
    assert streamed > 80
    assert len(batches) < streamed / 2
    assert {r.mode for r in batches if r.transactions > 1} == {ApplyMode.TRANSACTIONAL}
    left = mart.execute("SELECT n, xmin::text, pg_xact_commit_timestamp(xmin) FROM journal ORDER BY turn")
    assert len({writer for _, writer, _ in left}) == len(left) == 200
    times = [when for _, _, when in left]
    assert times == sorted(times)


@contextmanager
def _followed(
    database: Database, mart: Database, folder: Path, tables: Sequence[str], policy: LanePolicy
) -> Iterator[BadDay]:
    """A replica that writes the source's transactions over three lanes, once its tables are live."""
    spec = subscription_spec(
        database,
        ConnectionSpec("mart", "postgres", mart.settings),
        [table(each) for each in tables],
        batch=BatchPolicy(max_transactions=3000),
        apply=ApplyPolicy(ApplyMode.TRANSACTIONAL, policy, lanes=3),
    )
    replica = BadDay(database, folder, [], Circumstances(spec=spec))
    try:
        replica.wait_live()
        yield replica
    finally:
        replica.release()
