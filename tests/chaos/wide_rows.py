"""Random changes of a table that is large enough to be compared in steps, and of a small one."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import psycopg

from engine.sources.query_diff.table_walk import LEAST_BYTES

TABLES = ("wide", "narrow", "noted")
_NOTE_BYTES = 960
_ROWS = 2 * LEAST_BYTES // _NOTE_BYTES
_NARROW_ROWS = 500
_FREE = 80
"""Percent of a page that is filled at first: updated rows stay in their page, and rows in the order of their key."""
_DDL = f"""
CREATE TABLE wide (id bigint PRIMARY KEY, n int NOT NULL, note text NOT NULL) WITH (fillfactor = {_FREE});
CREATE TABLE narrow (id bigint PRIMARY KEY, n int NOT NULL, word text);
CREATE TABLE noted (move bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
INSERT INTO wide SELECT 2 * i, i % 100, repeat(md5(i::text), {_NOTE_BYTES // 32}) FROM generate_series(1, {_ROWS}) AS i;
INSERT INTO narrow SELECT i, i % 100, 'word ' || i FROM generate_series(1, {_NARROW_ROWS}) AS i;
ANALYZE wide, narrow
"""
_PAUSE_S = 0.02
_AGAIN_S = 0.2


def create(connection: psycopg.Connection[Any]) -> None:
    """Make and fill the tables: keys of `wide` are even, so that there is room for others between them."""
    connection.execute(_DDL.encode())


class WideRows:
    """A thread that changes rows from `start` to `stop`, through restarts of the source. `changes`: transactions that were committed."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], seed: int, *, rest: Callable[[], float]) -> None:
        """`rest`: as of `bank.Bank`."""
        self.changes = 0
        self.failure: BaseException | None = None
        self._connect = connect
        self._rest = rest
        self._rng = random.Random(f"{seed}/wide")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wide-rows", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._connect() as connection:
                    while not self._stopping.wait(_PAUSE_S):
                        self._rest()
                        self._change(connection)
                        self.changes += 1
            except psycopg.OperationalError:
                self._stopping.wait(_AGAIN_S)  # The source is being restarted.
            except BaseException as error:
                self.failure = error
                return

    def _change(self, connection: psycopg.Connection[Any]) -> None:
        rng = self._rng
        key, other = (rng.randrange(1, _ROWS) * 2 for _ in range(2))
        n, odd = rng.randrange(100), rng.randrange(2)
        statement = rng.choice(
            [
                f"UPDATE wide SET n = {n} WHERE id BETWEEN {key} AND {key + rng.randrange(60)}",
                f"UPDATE wide SET note = upper(note) WHERE id = {key}",
                f"UPDATE wide SET note = lower(note) WHERE id = {key}",
                f"DELETE FROM wide WHERE id BETWEEN {key} AND {key + rng.randrange(8)}",
                f"INSERT INTO wide SELECT i, {n}, repeat(md5(i::text), {_NOTE_BYTES // 32}) FROM generate_series({key}, {key + 8}) AS i"
                " ON CONFLICT DO NOTHING",
                f"UPDATE wide SET id = {other + odd} WHERE id = {key} AND NOT EXISTS (SELECT FROM wide WHERE id = {other + odd})",
                f"UPDATE narrow SET n = {n}, word = CASE WHEN {odd} = 1 THEN word || 'x' END WHERE id % 50 = {n % 50}",
                f"DELETE FROM narrow WHERE id = {key % _NARROW_ROWS}",
                f"INSERT INTO narrow VALUES ({key % _NARROW_ROWS}, {n}, 'new') ON CONFLICT DO NOTHING",
            ]
        )
        connection.execute(statement.encode())
