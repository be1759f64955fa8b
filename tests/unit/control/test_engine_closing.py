"""An engine that closes takes no subscription any more."""

from __future__ import annotations

from pathlib import Path

from engine.control.engine import Engine
from engine.link.messages import Assign
from engine.platform.clock import SystemClock
from engine.platform.settings import EngineSettings
from tests.fixtures.local_runner import LocalRunner


def test_what_is_assigned_while_it_closes_is_not_taken(tmp_path: Path) -> None:
    settings = EngineSettings(home=tmp_path, url="http://127.0.0.1:1", engine_token="t" * 20)
    engine = Engine(settings, LocalRunner(1), SystemClock())
    engine.close()
    shop, mart = {"name": "shop", "kind": "postgres"}, {"name": "mart", "kind": "duckdb"}
    given = {"name": "orders", "epoch": 1, "source": shop, "target": mart, "tables": [], "slot": "s"}
    engine._handle_command(Assign.model_validate(given))
    assert engine._find("orders") is None
