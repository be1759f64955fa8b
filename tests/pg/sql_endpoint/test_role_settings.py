"""Settings of a token: what its sessions begin with, over both protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import psycopg
import pytest
from pyarrow import flight

from tests.fixtures.postgres import Database
from tests.fixtures.service import SUBSCRIPTION
from tests.pg.sql_endpoint.conftest import Endpoint

pytestmark = [pytest.mark.pg, pytest.mark.xdist_group("sql_endpoint")]

_FUTURE = "FFFFFFFF/0"
"""A position that no commit reaches."""


@pytest.fixture
def api(endpoint: Endpoint) -> Iterator[httpx.Client]:
    with endpoint.service.server.client() as opened:
        yield opened


@pytest.fixture
def token(api: httpx.Client) -> Iterator[Callable[..., dict[str, Any]]]:
    """Makes a token with these settings."""
    made: list[dict[str, Any]] = []

    def create(**settings: str) -> dict[str, Any]:
        given = {name.replace("__", "."): value for name, value in settings.items()}
        body = {"name": f"role-{len(made)}", "role": "viewer", "settings": given}
        answer = api.post("/tokens", json=body)
        assert answer.status_code == 201, answer.text
        made.append(answer.json())
        return made[-1]

    yield create
    for one in made:
        api.delete(f"/tokens/{one['id']}")


def _connect(endpoint: Endpoint, token: dict[str, Any], **changed: Any) -> psycopg.Connection[Any]:
    return endpoint.connect(user=token["name"], password=token["token"], **changed)


def _shown(session: psycopg.Connection[Any], name: str) -> str:
    row = session.execute(f"SHOW {name}").fetchone()
    assert row is not None
    return str(row[0])


def test_a_session_begins_with_the_settings_of_its_role(
    endpoint: Endpoint, database: Database, token: Callable[..., dict[str, Any]]
) -> None:
    role = token(penstock__freshness="latest", penstock__timeout_ms="20s", penstock__on_timeout="stale")
    with _connect(endpoint, role) as session:
        assert [_shown(session, f"penstock.{name}") for name in ("freshness", "timeout_ms", "on_timeout")] == [
            "latest", "20s", "stale",
        ]  # fmt: skip
        for number in range(5):
            database.execute("INSERT INTO orders (id, customer, total) VALUES (%s, 'role', 1)", [80_000 + number])
            found = session.execute("SELECT count(*) FROM orders WHERE customer = 'role'").fetchone()
            assert found == (number + 1,)
        database.execute("DELETE FROM orders WHERE customer = 'role'")
        for back in ("RESET penstock.freshness", "SET penstock.freshness TO DEFAULT", "RESET ALL", "DISCARD ALL"):
            session.execute("SET penstock.freshness = any")
            assert _shown(session, "penstock.freshness") == "any"
            session.execute(back)
            assert _shown(session, "penstock.freshness") == "latest", back
        shown = session.execute("SELECT setting FROM pg_settings WHERE name = 'penstock.freshness'").fetchone()
        assert shown == ("latest",)
    with endpoint.connect() as other:
        assert _shown(other, "penstock.freshness") == "any"


def test_what_a_client_asks_for_at_its_start_comes_first(
    endpoint: Endpoint, token: Callable[..., dict[str, Any]]
) -> None:
    role = token(penstock__freshness="latest", application_name="of the role")
    with _connect(endpoint, role, options="-c penstock.freshness=any") as session:
        assert _shown(session, "penstock.freshness") == "any"
        assert session.info.parameter_status("application_name") == "of the role"
    with _connect(endpoint, role, application_name="mine") as session:
        assert session.info.parameter_status("application_name") == "mine"


def test_changed_settings_are_those_of_the_next_session(
    endpoint: Endpoint, api: httpx.Client, token: Callable[..., dict[str, Any]]
) -> None:
    role = token()
    with _connect(endpoint, role) as session:
        settings = {"penstock.freshness": _FUTURE, "penstock.timeout_ms": "50"}
        assert api.patch(f"/tokens/{role['id']}", json={"settings": settings}).status_code == 200
        assert _shown(session, "penstock.freshness") == "any"
    with _connect(endpoint, role) as session:
        with pytest.raises(psycopg.Error) as late:
            session.execute("SELECT count(*) FROM lines")
        assert late.value.sqlstate == "PF001"
        assert session.execute("/*+ penstock.freshness = any */ SELECT count(*) FROM lines").fetchone() == (100,)
    assert api.patch(f"/tokens/{role['id']}", json={"settings": dict.fromkeys(settings)}).json()["settings"] == {}
    with _connect(endpoint, role) as session:
        assert session.execute("SELECT count(*) FROM lines").fetchone() == (100,)


def test_a_role_is_no_matter_of_sql(endpoint: Endpoint) -> None:
    with endpoint.connect() as session, pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
        session.execute("ALTER ROLE dashboard SET penstock.freshness = 'latest'")
    assert "penstock token configure" in str(refused.value.diag.message_hint)


def _read(endpoint: Endpoint, token: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
    given = {"authorization": f"Bearer {token['token']}", "penstock-subscription": SUBSCRIPTION}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    options = flight.FlightCallOptions(headers=[(name.encode(), value.encode()) for name, value in given.items()])
    with flight.FlightClient(f"grpc://127.0.0.1:{endpoint.flight_port}") as client:
        command = flight.FlightDescriptor.for_command(b"SELECT count(*) AS n FROM lines")
        ticket = client.get_flight_info(command, options).endpoints[0].ticket
        rows: list[dict[str, Any]] = client.do_get(ticket, options).read_all().to_pylist()
    return rows


def test_calls_of_flight_sql_have_them_too(endpoint: Endpoint, token: Callable[..., dict[str, Any]]) -> None:
    role = token(penstock__freshness=_FUTURE, penstock__timeout_ms="50")
    with pytest.raises(flight.FlightTimedOutError, match="freshness_timeout"):
        _read(endpoint, role)
    assert _read(endpoint, role, penstock_freshness="any") == [{"n": 100}]


def test_the_time_limit_of_statements_holds_for_flight_sql(
    endpoint: Endpoint, token: Callable[..., dict[str, Any]]
) -> None:
    assert _read(endpoint, token(statement_timeout="20s")) == [{"n": 100}]
    with pytest.raises(flight.FlightServerError, match="timeout_ms"):
        _read(endpoint, token(statement_timeout="99d"))
