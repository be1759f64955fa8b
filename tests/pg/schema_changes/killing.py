"""Plays scenarios on an engine that is killed among their steps, and begins again where it was."""

from __future__ import annotations

import base64
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.link.messages import TableRenamed
from engine.model.identity import Epoch, TableId, TableName
from engine.model.subscription import SubscriptionSpec
from engine.platform.failpoints import Failpoint
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica
from tests.pg.engine.killed_engines import arm
from tests.pg.schema_changes.golden import Golden
from tests.pg.schema_changes.playing import PROBE, Played, Playing, Sessions

_DIES_S = 60.0


class ReplicaToKill(Replica):
    """Its engine is a process of its own until it is taken `home`; what that reported before it died counts."""

    def __init__(self, database: Database, folder: Path, spec: SubscriptionSpec, **settings: Any) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._listener = threading.Thread()
        self.armed = folder / "armed"
        self.armed.mkdir()
        super().__init__(database, folder, spec, **settings)

    def _start(self) -> None:
        given = self.folder / "subscription.pickle"
        given.write_bytes(pickle.dumps((self.spec, self.engine_settings())))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.pg.schema_changes.engine_to_kill", str(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PENSTOCK_FAILPOINTS_FOLDER": str(self.armed)},
        )
        self._listener = threading.Thread(target=self._listen, args=[self._process])
        self._listener.start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):
                self.reports.take(pickle.loads(base64.b64decode(line)))

    def kill(self) -> None:
        """Its process is gone, and all that it reported is there."""
        assert self._process is not None
        self._process.kill()
        self._close_process()

    def wait_dead(self) -> None:
        """It dies by itself at a failpoint that was armed."""
        assert self._process is not None
        self._process.wait(_DIES_S)
        self._close_process()

    def _close_process(self) -> None:
        assert self._process is not None
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process = None

    def again(self) -> None:
        """Another process with the next epoch."""
        self._next_epoch()
        self._start()

    def home(self) -> None:
        """Continue with the next epoch in this process, so that its target can be queried."""
        self.kill()
        self._next_epoch()
        super()._start()

    def _next_epoch(self) -> None:
        """As the server gives the subscription to the next engine: with the names that tables were reported to have."""
        renamed = {r.table: TableName(r.schema_name, r.name) for r in self.reports.all() if isinstance(r, TableRenamed)}
        tables = tuple(replace(each, source=renamed.get(each.table, each.source)) for each in self.spec.tables)
        self.spec = replace(self.spec, epoch=Epoch(self.spec.epoch + 1), tables=tables)

    def close(self) -> None:
        if self._process is not None:
            self.kill()
            self._runner.stop()
        else:
            super().close()


class Killing(Playing):
    """In each part of the scenarios the engine dies three times.

    It is killed when half of them have done their statements, so that these are on their way; the others do theirs while no engine is
    there. The next engine dies at `moment`, in the batch that has those statements. And it is killed when all are at rest.

    The first statements run after the guard has read every table: it knows only what it has read there of the tables below a root that
    are truncated or detached later.
    """

    def __init__(
        self, goldens: Sequence[Golden], played: Played, sessions: Sessions, probe: TableId, moment: Failpoint
    ) -> None:
        super().__init__(goldens, played, sessions, probe)
        assert isinstance(played.replica, ReplicaToKill)
        self._replica = played.replica
        self._moment = moment

    def play(self, *, stepwise: bool) -> None:
        super().play(stepwise=stepwise)
        self._replica.home()
        self._settle("at rest when the engine is there again")

    def _play_part(self, number: int) -> None:
        if number:
            self._replica.kill()
            self._replica.again()
        else:
            self._settle("looked at to begin with")
        half = len(self._goldens) // 2
        for golden in self._goldens[:half]:
            self._play_round(golden, number)
        self._replica.kill()
        for golden in self._goldens[half:]:
            self._play_round(golden, number)
        self._played.database.execute(f"INSERT INTO {PROBE} VALUES ({number})")
        arm(self._replica.armed, self._moment, 1)
        self._replica.again()
        self._replica.wait_dead()
        self._replica.again()
