"""The fake server of the tests of commands, and a runner of commands against it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from server.cli.main import app
from tests.fixtures.stand_in import Run, StandIn


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    server = StandIn()
    thread = threading.Thread(target=server.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.server.shutdown()
    thread.join()
    server.server.server_close()


@pytest.fixture
def run(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    for name in ("PENSTOCK_URL", "PENSTOCK_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))

    def invoke(*arguments: str, url: str | None = None, given: str | None = None) -> Result:
        return CliRunner().invoke(app, [*arguments, "--url", url or stand_in.url], input=given)

    return invoke
