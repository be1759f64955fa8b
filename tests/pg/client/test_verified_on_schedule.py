"""A schedule of verifications with a real engine: it finds what someone changed in the copy, without a request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from server.cli.exit_codes import ExitCode
from server.cli.main import app
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import standing_database, target_settings
from tests.fixtures.service import SUBSCRIPTION, Service, running_service
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.pg

PATH = f"/subscriptions/{SUBSCRIPTION}"


def test_a_planted_difference_is_found_and_shown(pg18: EmbeddedPostgres, tmp_path: Path) -> None:
    with standing_database(pg18, "verified") as source, standing_database(pg18, "verified_copy") as copy:
        source.execute("CREATE TABLE orders (id bigint PRIMARY KEY, total numeric(12, 2) NOT NULL)")
        source.execute("INSERT INTO orders SELECT n, n FROM generate_series(1, 500) n")
        target = {"kind": "postgres", "settings": target_settings(copy)}
        with running_service(source, tmp_path, ["orders"], target) as service, service.server.client() as api:
            copy.execute("UPDATE public.orders SET total = 0.01 WHERE id = 7")
            _run(service, "schedule", "set", "--every", "1m", "--budget", "1", "--method", "checksum")

            def table() -> dict[str, Any]:
                found: dict[str, Any] = api.get(f"{PATH}/tables").json()["items"][0]
                return found

            wait_until(lambda: table()["verified"], 60, "a scheduled verification")
            found = table()
            last = found["verified"]
            assert (last["equal"], last["method"], last["source_rows"], last["before_copy"]) == (
                False,
                "checksum",
                500,
                False,
            )
            assert found["health"]["status"] == "attention"
            assert api.get(PATH).json()["health"]["word"] == "different"
            listed = _run(service, "list", "--trigger", "schedule")["verifications"]
            assert [(item["id"], item["trigger"]) for item in listed] == [(last["verification"], "schedule")]
            differing = listed[0]["tables"][0]["differing"]
            assert [(each["key"], each["kind"]) for each in differing] == [(["7"], "different")]
            kinds = [
                event["kind"] for event in api.get("/events", params={"subscription": SUBSCRIPTION}).json()["items"]
            ]
            assert "verification_differs" in kinds
            assert _run(service, "schedule", "show")["verified"]["rows_ratio"] == 0


def _run(service: Service, *words: str) -> dict[str, Any]:
    arguments = ["verifications", *words, "--json", "--url", service.url, "--token", service.token]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == ExitCode.DONE, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found
