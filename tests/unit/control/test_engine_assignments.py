"""Which assignments of subscriptions an engine takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.control.engine import Engine
from engine.link.messages import Assign
from engine.platform.clock import SystemClock
from engine.platform.settings import EngineSettings
from tests.fixtures.local_runner import LocalRunner


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    settings = EngineSettings(home=tmp_path, url="http://127.0.0.1:1", engine_token="t" * 20)
    made = Engine(settings, LocalRunner(1), SystemClock())
    yield made
    made.close()


def assign(engine: Engine, epoch: int) -> None:
    shop = {
        "name": "shop",
        "kind": "postgres",
        "settings": {"host": "127.0.0.1", "port": 1, "database": "d", "user": "u"},
    }
    mart = {"name": "mart", "kind": "duckdb"}
    given = {"name": "orders", "epoch": epoch, "source": shop, "target": mart, "tables": [], "slot": "s"}
    engine._handle_command(Assign.model_validate(given))


def test_what_is_assigned_while_it_closes_is_not_taken(engine: Engine) -> None:
    engine.close()
    assign(engine, 1)
    assert engine._find("orders") is None


def test_an_assignment_of_a_past_epoch_is_ignored(engine: Engine) -> None:
    """The server would ignore all reports of that epoch."""
    found = []
    for epoch in (2, 1, 3):
        assign(engine, epoch)
        running = engine._find("orders")
        assert running is not None
        found.append(int(running.spec.epoch))
    assert found == [2, 2, 3]
