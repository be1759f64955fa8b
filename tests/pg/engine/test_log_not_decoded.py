"""A source that cannot decode its own log is tried again, but not for ever, and a reload gets over the place."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from engine.control import retry_pauses
from engine.control.supervisor import DECODING_TRIES
from engine.link.messages import EventReport
from engine.model.fault import FaultKind
from engine.pipeline import run as run_module
from engine.pipeline.log_reader import Failed, ReaderCommand, ReaderConfig, ReaderEvent
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg


class FailingReader:
    """A log reader whose source fails at once."""

    pid = 0

    def __init__(self, config: ReaderConfig, listener: Callable[[object, ReaderEvent], None]) -> None:
        failed = Failed(FaultKind.LOG_NOT_DECODED, config.reader, "SQLSTATE XX000")
        threading.Thread(target=listener, args=(self, failed), daemon=True).start()

    def send(self, command: ReaderCommand) -> None:
        pass

    def stop(self) -> None:
        pass


def test_it_fails_where_the_log_goes_no_further_and_a_reload_gets_over_it(
    database: Database, replicate: Callable[..., Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_pauses, "FIRST_S", 0.01)
    database.execute("CREATE TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (1)")
    replica = replicate(database, [table("orders")])
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "ReaderProcess", FailingReader)
        replica.restart()
        assert replica.wait_state("failed").code == "log_not_decoded"
        told = [r.severity for r in replica.reports.all() if isinstance(r, EventReport) and r.code == "log_not_decoded"]
        assert told == ["warning"] * (DECODING_TRIES - 1) + ["error"]
        database.execute("INSERT INTO orders VALUES (2)")
    replica.pipeline.reload("again", None)
    replica.wait_state("running")
    replica.catch_up()
    replica.wait_live()
    replica.assert_equal()
