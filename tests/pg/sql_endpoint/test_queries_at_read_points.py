"""Every way to query shows the same state of all tables at a read point, during a load, and an error after its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from typer.testing import CliRunner

from engine.control.engine import Engine
from engine.platform.clock import SystemClock
from engine.platform.settings import EngineSettings
from penstock.client import Client, ProblemError
from server.cli.main import app
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.channel import ADMIN, ENGINE
from tests.fixtures.local_runner import LocalRunner
from tests.fixtures.postgres import Database, standing_database
from tests.fixtures.service import SUBSCRIPTION, running_service
from tests.pg.sql_endpoint.conftest import Endpoint
from tests.pg.sql_endpoint.test_flight_sql import Client as FlightClient

pytestmark = [pytest.mark.pg, pytest.mark.xdist_group("sql_endpoint")]

PATH = f"/subscriptions/{SUBSCRIPTION}"
POINTS = f"{PATH}/read-points"
LATEST = {"mode": "latest", "timeout_ms": 60_000}
COUNTS = (
    "SELECT (SELECT CAST(note AS int) FROM public.orders WHERE id = 1) AS noted,"
    " (SELECT CAST(count(*) AS int) FROM public.lines WHERE sku = 'load') AS loaded"
)
ROWS = "SELECT order_id, n, sku FROM public.lines ORDER BY order_id, n"


@pytest.fixture
def api(endpoint: Endpoint) -> Iterator[httpx.Client]:
    with endpoint.service.server.client() as client:
        yield client
        for point in client.get(POINTS).json()["items"]:
            client.delete(f"{POINTS}/{point['name']}")


@contextmanager
def load(database: Database) -> Iterator[None]:
    """Transactions that each add one line and count it in an order. Their effect is undone at the end."""
    done, first = threading.Event(), threading.Event()

    def run() -> None:
        with psycopg.connect(database.dsn, autocommit=True) as connection:
            connection.execute("UPDATE orders SET note = '0' WHERE id = 1")
            number = 0
            while not done.is_set():
                number += 1
                with connection.transaction():
                    connection.execute("UPDATE orders SET note = %s WHERE id = 1", [str(number)])
                    connection.execute("INSERT INTO lines VALUES (%s, 1, 'load')", [100_000 + number])
                if number == 20:
                    first.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        assert first.wait(60)
        yield
    finally:
        done.set()
        thread.join(60)
        database.execute("DELETE FROM lines WHERE sku = 'load'")
        database.execute("UPDATE orders SET note = NULL WHERE id = 1")


def query(api: httpx.Client, sql: str, point: str | None = None, **more: Any) -> httpx.Response:
    at = {} if point is None else {"read_point": point}
    return api.post(f"{PATH}/queries", json={"sql": sql, **at, **more}, timeout=90)


def create(api: httpx.Client, name: str, **more: Any) -> dict[str, Any]:
    answer = api.post(POINTS, json={"name": name, "freshness": LATEST, **more}, timeout=90)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_all_ways_show_the_same_state_during_a_load(endpoint: Endpoint, api: httpx.Client, database: Database) -> None:
    with load(database):
        made = create(api, "cut")
        seen = query(api, COUNTS, "cut").json()
        [[noted, loaded]] = seen["rows"]
        assert (noted, seen["position"]) == (loaded, made["position"])
        assert noted >= 20
        receipt = seen["receipt"]
        assert (receipt["position"], receipt["applied"]) == (made["position"], made["position"])
        assert [table["name"] for table in receipt["tables"]] == ["lines", "orders"]
        expected = query(api, ROWS, "cut").json()["rows"]
        sql = "SELECT order_id, n, sku FROM lines WHERE order_id <= %s ORDER BY 1, 2"
        with psycopg.connect(database.dsn) as source:
            assert [list(row) for row in source.execute(sql, [100_000 + noted]).fetchall()] == expected

        later = query(api, COUNTS, freshness={"mode": "latest", "timeout_ms": 60_000}).json()["rows"][0]
        assert later[0] > noted
        flight = FlightClient(endpoint, **{"penstock-read-point": "cut"})
        with endpoint.connect() as session, Client(endpoint.service.url, ADMIN, subscription=SUBSCRIPTION) as client:
            session.execute("SET penstock.read_point = 'cut'")
            for _ in range(5):
                assert query(api, ROWS, "cut").json()["rows"] == expected
                assert [list(row) for row in session.execute(ROWS).fetchall()] == expected
                assert session.execute("SHOW penstock.position").fetchone() == (made["position"],)
                assert [list(row.values()) for row in flight.read(ROWS)] == expected
                found = client.query(ROWS, read_point="cut")
                assert (found.position, len(found.rows())) == (made["position"], len(expected))
                assert found.receipt is not None
                assert found.receipt.position == made["position"]
            session.execute("RESET penstock.read_point")
            assert session.execute(COUNTS).fetchall()[0][0] >= later[0]
            hinted = session.execute(f"/*+ penstock.read_point = 'cut' */ {COUNTS}").fetchall()
            assert hinted == [(noted, loaded)]
            with pytest.raises(psycopg.Error, match="read point"):
                session.execute("SET penstock.read_point = 'not a name'")
            with pytest.raises(ValueError, match="its own position"):
                client.query(ROWS, "latest", read_point="cut")


def test_it_is_described_listed_and_deleted(endpoint: Endpoint, api: httpx.Client) -> None:
    made = create(api, "month-end", ttl_seconds=60)
    assert (made["state"], made["reason"], made["name"]) == ("held", None, "month-end")
    assert made["created_at"] < made["expires_at"]
    assert [(one["name"], one["complete"], one["schema_version"]) for one in made["tables"]] == [
        ("files", True, 1),
        ("lines", True, 1),
        ("orders", True, 1),
    ]
    assert api.get(POINTS).json()["items"] == [made]
    assert api.get(f"{POINTS}/month-end").json() == made
    twice = api.post(POINTS, json={"name": "month-end"})
    assert (twice.status_code, twice.json()["code"]) == (409, "read_point_exists")
    long = api.post(POINTS, json={"name": "long", "ttl_seconds": 7200})
    assert (long.status_code, long.json()["code"]) == (409, "read_point_limit")
    wrong = query(api, "SELECT 1 AS x", "month-end", freshness={"mode": "latest"})
    assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "/freshness")
    for sql in ("COMMIT", "ROLLBACK", "SELECT 1; COMMIT", "SET x = 1"):
        assert query(api, sql, "month-end").status_code == 422
    assert query(api, "SELECT count(*) AS n FROM public.orders WHERE id <= 1000", "month-end").json()["rows"] == [
        [1000]
    ]
    assert api.delete(f"{POINTS}/month-end").status_code == 204
    for gone in (
        api.get(f"{POINTS}/month-end"),
        api.delete(f"{POINTS}/month-end"),
        query(api, "SELECT 1", "month-end"),
    ):
        assert (gone.status_code, gone.json()["code"]) == (404, "not_found")
    assert create(api, "month-end")["position"] >= made["position"]


def test_the_command_line(endpoint: Endpoint, api: httpx.Client) -> None:
    run, env = CliRunner(), {"PENSTOCK_URL": endpoint.service.url, "PENSTOCK_TOKEN": ADMIN}
    made = run.invoke(app, ["read-point", "create", "cli", "--ttl", "1m", "--fresh", "latest"], env=env)
    assert made.exit_code == 0, made.output
    found = run.invoke(
        app,
        ["query", "SELECT count(*) AS n FROM orders WHERE id <= 1000", "--read-point", "cli", "--format", "csv"],
        env=env,
    )
    assert found.stdout == "n\r\n1000\r\n" or found.stdout == "n\n1000\n"
    assert "cli" in run.invoke(app, ["read-point", "list"], env=env).stdout
    assert run.invoke(app, ["read-point", "delete", "cli"], env=env).exit_code == 0
    assert api.get(POINTS).json()["items"] == []


def test_a_restart_of_the_engine_ends_it_and_says_so(pg18: EmbeddedPostgres, tmp_path: Path) -> None:
    with standing_database(pg18, "read_point_restart") as database:
        database.execute("CREATE TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (1)")
        with running_service(database, tmp_path, ["orders"], read_points=1) as service, service.server.client() as api:
            create(api, "cut")
            full = api.post(POINTS, json={"name": "more"})
            assert (full.status_code, full.json()["code"]) == (409, "read_point_limit")
            service.engine.close()
            assert api.get(f"{POINTS}/cut").json()["state"] == "unknown"
            given = EngineSettings(home=tmp_path / "engine", url=service.url, engine_token=ENGINE)  # type: ignore[arg-type]
            engine = Engine(given, LocalRunner(2), SystemClock())
            engine.start()
            try:
                answer = api.post(
                    f"{PATH}/freshness-waits", json={"timeout_ms": 60_000, "on_unreachable": "wait"}, timeout=70
                )
                assert answer.status_code == 200, answer.text
                ended = query(api, "SELECT * FROM orders", "cut")
                assert (ended.status_code, ended.json()["code"]) == (409, "read_point_ended")
                assert "restarted" in ended.json()["detail"]
                assert "Create another read point" in ended.json()["remedy"]
                with Client(service.url, ADMIN) as client, pytest.raises(ProblemError, match="read_point_ended"):
                    client.query("SELECT * FROM orders", read_point="cut")
                view = api.get(f"{POINTS}/cut").json()
                assert (view["state"], "restarted" in view["reason"]) == ("ended", True)
                create(api, "cut")
                assert query(api, "SELECT * FROM orders", "cut").json()["rows"] == [[1]]
            finally:
                engine.close()
