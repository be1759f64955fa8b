"""`transactional`: the target's transactions are the source's, committed in the same order, however many lanes write them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.link.messages import BatchReport
from engine.model.identity import Epoch, SubscriptionName
from engine.model.subscription import (
    ApplyMode,
    ApplyPolicy,
    BatchPolicy,
    ConnectionSpec,
    LanePolicy,
    SubscriptionSpec,
)
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import table
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
    name = f"s{uuid.uuid4().hex[:8]}"
    spec = SubscriptionSpec(
        name=SubscriptionName(name),
        epoch=Epoch(1),
        source=ConnectionSpec("shop", "postgres", database.settings),
        target=ConnectionSpec("mart", "postgres", mart.settings),
        tables=(table("accounts"), table("tellers"), table("history")),
        slot=f"penstock_{name}",
        batch=BatchPolicy(max_transactions=3000),
        apply=ApplyPolicy(ApplyMode.TRANSACTIONAL, policy, lanes=3),
    )
    replica = BadDay(database, tmp_path, [], Circumstances(spec=spec))
    try:
        replica.wait_live()
        with database.connect() as source:
            source.autocommit = True
            source.execute("CALL work(1, %s)", [TRANSACTIONS])
        replica.catch_up(60.0)
        replica.assert_equal()
        modes = {r.mode for r in replica.reports.all() if isinstance(r, BatchReport) and r.transactions > 100}
    finally:
        replica.release()
    assert modes == {ApplyMode.TRANSACTIONAL}
    left = mart.execute("SELECT n, xmin::text, pg_xact_commit_timestamp(xmin) FROM history ORDER BY n")
    assert len(left) == database.execute("SELECT count(*) FROM history")[0][0]
    assert len({writer for _, writer, _ in left}) == len(left) > TRANSACTIONS * 0.9
    times = [when for _, _, when in left]
    assert times == sorted(times)
