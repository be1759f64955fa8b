"""The sample database as the server runs it: the same one after a restart, under load, and gone when it is removed."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from server.demo import schema
from server.demo.sample import DATABASE, Sample, SampleState
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg


def _connect(sample: Sample) -> psycopg.Connection:
    at = sample.prepare()
    return psycopg.connect(
        host=at.host, port=at.port, user=at.user, password=at.password, dbname=DATABASE, autocommit=True
    )


def test_runs_comes_back_and_is_removed(tmp_path: Path) -> None:
    sample = Sample(tmp_path, orders=20)
    assert sample.standing().state is SampleState.ABSENT
    try:
        sample.start()
        assert sample.wait_settled(60).state is SampleState.RUNNING, sample.standing()
        with _connect(sample) as connection:
            found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
            connection.execute("CREATE TABLE mine (id int PRIMARY KEY)")
        assert sorted(name for (name,) in found) == sorted(schema.TABLES)
        wait_until(lambda: sample.standing().transactions, what="a transaction of the load")
        sample.close()
        again = Sample(tmp_path)  # as the next process of the server finds it
        sample = again
        assert again.is_kept
        again.start()
        assert again.wait_settled(60).state is SampleState.RUNNING, again.standing()
        wait_until(lambda: again.standing().transactions, what="a transaction of the load that continues")
        with _connect(again) as connection:
            assert connection.execute("SELECT count(*) FROM mine").fetchone() == (0,)
    finally:
        sample.remove()
    assert (sample.is_kept, list(tmp_path.iterdir())) == (False, [])


def test_a_start_under_way_can_be_taken_back(tmp_path: Path) -> None:
    sample = Sample(tmp_path, orders=20)
    sample.start()
    sample.remove()
    assert sample.standing().state is SampleState.ABSENT
    assert list(tmp_path.iterdir()) == []


def test_error_of_the_load_is_named(tmp_path: Path) -> None:
    sample = Sample(tmp_path, orders=20)
    try:
        sample.start()
        assert sample.wait_settled(60).state is SampleState.RUNNING, sample.standing()
        with _connect(sample) as connection:
            connection.execute("DROP TABLE order_events")
        wait_until(lambda: sample.standing().state is SampleState.FAILED, 30, what="the failure")
        reason = sample.standing().reason or ""
        assert reason.startswith("the load ended: ")
        assert 'relation "order_events" does not exist' in reason
    finally:
        sample.remove()
