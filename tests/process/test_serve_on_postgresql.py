"""`penstock serve` on a control database in PostgreSQL, together with an engine: what was declared outlives the server."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from server.cli.client import Api, NoServerError, ProblemError
from server.demo.embedded import EmbeddedPostgres
from server.processes.ports import free_port
from tests.fixtures.postgres import Database
from tests.process.image_material import environment, exit_code, process, wait_or_show_log

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.chaos]

ADMIN = "serve-admin-token-0123"
ENGINE = "serve-engine-token-0123"
TABLE = [{"schema": "public", "name": "orders"}]


def _settled(api: Api) -> Callable[[], bool]:
    """Whether the one table is live; the subscription must not fail on the way."""

    def live() -> bool:
        try:
            state = api.get("/subscriptions/s")["state"]
            assert state != "failed"
            return [table["state"] for table in api.items("/subscriptions/s/tables")] == ["live"]
        except (NoServerError, ProblemError):
            return False

    return live


def _reached(api: Api) -> bool:
    try:
        api.send("GET", "/readyz", timeout_s=2.0)
    except (NoServerError, ProblemError):
        return False
    return True


def _declare(api: Api, source: Database, mart: Path) -> None:
    api.put("/connections/shop", {"kind": "postgres", "settings": source.settings})
    api.put("/connections/mart", {"kind": "duckdb", "settings": {"path": str(mart)}})
    body = {"source": "shop", "target": "mart", "tables": TABLE, "desired_state": "running"}
    api.put("/subscriptions/s", body)


def _count_now(api: Api) -> int:
    query = {"sql": "SELECT count(*) FROM orders", "freshness": {"mode": "latest", "timeout_ms": 60_000}}
    return int(api.post("/subscriptions/s/queries", query)["rows"][0][0])


def test_subscription_outlives_a_restart_of_the_server(
    pg18: EmbeddedPostgres, database_on: Callable[[EmbeddedPostgres], Database], tmp_path: Path
) -> None:
    control, source = database_on(pg18), database_on(pg18)
    source.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
    source.execute("INSERT INTO orders SELECT n, 'note' FROM generate_series(1, 1000) AS n")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    where = f"postgresql+psycopg://{pg18.user}@{pg18.host}:{pg18.port}/{control.name}"
    env = environment(
        tmp_path / "home", PENSTOCK_DATABASE_URL=where, PENSTOCK_PORT=str(port), PENSTOCK_ADMIN_TOKEN=ADMIN,
        PENSTOCK_ENGINE_TOKEN=ENGINE,
    )  # fmt: skip
    engine_env = environment(tmp_path / "engine", PENSTOCK_URL=url, PENSTOCK_ENGINE_TOKEN=ENGINE)
    log, serve = tmp_path / "log", ["penstock", "serve"]
    refused = subprocess.run(serve, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode != 0
    assert "penstock db upgrade" in refused.stdout + refused.stderr
    assert exit_code(["penstock", "db", "upgrade"], env) == 0
    with process(["penstock", "engine"], engine_env, log), Api(url, ADMIN) as api:
        with process(serve, env, log) as server:
            wait_or_show_log(lambda: _reached(api), log, 120)
            _declare(api, source, tmp_path / "mart.duckdb")
            assert _count_now(api) == 1000  # From its first moment on, a subscription is waited for.
            wait_or_show_log(_settled(api), log, 120)
            api.patch("/subscriptions/s", {"desired_state": "paused"})
            wait_or_show_log(lambda: api.get("/subscriptions/s")["state"] == "paused", log, 60)
            api.patch("/subscriptions/s", {"desired_state": "running"})
            assert _count_now(api) == 1000
            server.send_signal(signal.SIGTERM)
            server.wait(15)
        source.execute("INSERT INTO orders VALUES (1001, 'while the server was away')")
        with process(serve, env, log):
            wait_or_show_log(lambda: _reached(api), log, 120)
            wait_or_show_log(_settled(api), log, 60)
            assert api.get("/subscriptions/s")["desired_state"] == "running"
            assert [connection["name"] for connection in api.items("/connections")] == ["mart", "shop"]
            assert _count_now(api) == 1001
    assert (tmp_path / "mart.duckdb").is_file()
    assert not (tmp_path / "home" / "penstock.db").exists()
    assert (tmp_path / "engine" / "queue").is_dir()
