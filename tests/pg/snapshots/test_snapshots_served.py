"""A snapshot through the whole product: command line, server, engine, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from server.cli.exit_codes import ExitCode
from server.cli.main import app
from tests.fixtures.postgres import Database
from tests.fixtures.service import Service, running_service
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg


def test_a_command_takes_shows_and_deletes_snapshots(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, total numeric(10, 2))")
    database.execute("INSERT INTO orders SELECT i, i * 1.25 FROM generate_series(1, 1000) i")
    place = tmp_path / "given"
    with running_service(database, tmp_path, ["orders"], snapshots=place) as service:
        database.execute("INSERT INTO orders VALUES (2000, 7)")
        taken = _run(service, "create", "--latest", "--format", "duckdb")
        folder = Path(taken["folder"])
        assert folder.parent == place / "shop"
        assert taken["position"] >= taken["receipt"]["position"]
        with duckdb.connect(str(place / "shop" / "latest-duckdb" / "copy.duckdb"), read_only=True) as copy:
            assert copy.execute("SELECT count(*), sum(total)::text FROM public.orders").fetchall() == [
                (1001, "625632.00")
            ]
        assert [item["id"] for item in _run(service, "list")["snapshots"]] == [taken["id"]]
        assert _run(service, "show", taken["id"])["tables"][0]["rows"] == 1001
        _run(service, "schedule", "set", "--every", "1h", "--keep", "2")

        def scheduled() -> bool:
            items = _run(service, "list")["snapshots"]
            return any(item["scheduled"] and item["state"] == "succeeded" for item in items)

        wait_until(scheduled, 30.0)
        assert _run(service, "schedule", "show")["keep"] == 2
        _run(service, "schedule", "remove")
        _run(service, "delete", taken["id"], "--yes")
        wait_until(lambda: not folder.exists(), 30.0)
        wait_until(lambda: len(_run(service, "list")["snapshots"]) == 1, 30.0)


def _run(service: Service, *words: str) -> dict[str, Any]:
    arguments = ["snapshot", *words, "--json", "--url", service.url, "--token", service.token]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == ExitCode.DONE, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found
