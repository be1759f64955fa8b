"""Engines in processes of their own that die at failpoints, and the load under which they do."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from engine.model.identity import Epoch
from engine.model.subscription import ConnectionSpec, QueueMode
from engine.platform.failpoints import Failpoint
from tests.fixtures.load import Load
from tests.fixtures.postgres import Database, Session
from tests.fixtures.replication import subscription_spec, table
from tests.pg.bad_days.conftest import BadDay, Circumstances


class OrderLoad(Load):
    """Small transactions over orders and their lines."""

    def transact(self, connection: Session) -> None:
        with connection.transaction():
            first = self.rng.randrange(1, 180)
            connection.execute(
                "UPDATE orders SET total = total + 1, note = note || 'x' WHERE id BETWEEN %s AND %s",
                [first, first + 20],
            )
            connection.execute("DELETE FROM lines WHERE order_id = %s", [first])
            connection.execute("INSERT INTO lines VALUES (%s, 1, 'again')", [first])


@contextmanager
def subscribed(database: Database, target: ConnectionSpec, tables: Sequence[str], home: Path) -> Iterator[BadDay]:
    """A subscription of these tables, run by an engine of this process."""
    spec = subscription_spec(database, target, map(table, tables))
    made = BadDay(database, home, [], Circumstances(spec=spec))
    yield made
    made.release()


@contextmanager
def engine(replica: BadDay, mode: QueueMode, armed: Path) -> Iterator[subprocess.Popen[str]]:
    """Another engine process with the next epoch, on the same home and target."""
    replica.spec = replace(replica.spec, epoch=Epoch(replica.spec.epoch + 1), queue_mode=mode)
    given = armed.parent / "subscription.pickle"
    given.write_bytes(pickle.dumps((replica.spec, replica.home)))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.pg.engine.engine_to_kill", str(given)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PENSTOCK_FAILPOINTS_FOLDER": str(armed)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(process: subprocess.Popen[str], beginning: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(beginning):
            return
    raise AssertionError(f"the engine ended without saying {beginning}")


def arm(folder: Path, point: Failpoint, passing: int) -> None:
    """Kill the process that passes this failpoint for the `passing`-th time."""
    draft = folder.parent / "draft"
    draft.write_text(f"kill@{passing}")
    draft.rename(folder / point.value)
