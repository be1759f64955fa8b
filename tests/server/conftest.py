"""The application under test: a control database of its own, an administrator's token, and a gateway that plays the engine."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from typer.testing import CliRunner, Result

from engine.connectors import CONNECTIONS
from engine.link.messages import Assign
from server.app import create_app
from server.cli import options
from server.cli.client import Api
from server.cli.main import app as cli
from server.demo.binaries import PostgresMissingError
from server.demo.sample import Address, SampleState, Standing
from server.security import tokens
from server.security.principal import Role
from server.settings import Settings, load_settings
from tests.fixtures.channel import FakeEngine, declare, running_server
from tests.fixtures.control_database import lay_control_database

with warnings.catch_warnings():
    # It asks for a successor of httpx; what is here of it works with httpx.
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

Run = Callable[..., Result]
ADMIN = "test-admin-token-0123456789"


@pytest.fixture
def no_duckdb_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections of the kind duckdb are targets only, as another kind may be."""
    monkeypatch.setitem(CONNECTIONS, "duckdb", replace(CONNECTIONS["duckdb"], captures=()))


class PlayedEngine:
    """Answers by kind of command and remembers what it was asked."""

    def __init__(self) -> None:
        self.connected = True
        self.answers: dict[str, dict[str, Any] | Exception] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def connected_s(self, engine_id: str | None) -> float | None:
        return 60.0 if self.connected else None

    async def request(self, kind: str, payload: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        self.asked.append((kind, dict(payload)))
        answer = self.answers[kind]
        if isinstance(answer, Exception):
            raise answer
        return answer


class PlayedSample:
    """In the place of the sample database: says how it is, and runs nothing."""

    def __init__(self) -> None:
        self.state = SampleState.ABSENT

    @property
    def is_kept(self) -> bool:
        return self.state not in {SampleState.ABSENT, SampleState.UNAVAILABLE}

    def standing(self) -> Standing:
        return Standing(self.state, "no PostgreSQL here" if self.state is SampleState.UNAVAILABLE else None, 7)

    def prepare(self) -> Address:
        if self.state is SampleState.UNAVAILABLE:
            raise PostgresMissingError("no PostgreSQL here")
        return Address("127.0.0.1", 5999, "postgres", "hidden-sample-word")

    def start(self) -> None:
        self.state = SampleState.STARTING

    def close(self) -> None:
        pass

    def remove(self) -> None:
        self.state = SampleState.ABSENT


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in ("ADMIN_TOKEN", "ENGINE_TOKEN", "DATABASE_URL", "SECRET_KEYS", "HOME", "HOST", "PORT"):
        monkeypatch.delenv(f"PENSTOCK_{name}", raising=False)
    made = load_settings(home=tmp_path / "home", admin_token=ADMIN, log_level="error")
    made.make_home()
    lay_control_database(made.home)
    return made


@pytest.fixture
def app(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    """Without the channel to the engine: what waits in the outbox stays there."""
    monkeypatch.setattr("server.app.SERVICES", ())
    app = create_app(settings)
    app.state.sample = PlayedSample()
    return app


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    """An administrator's client of the running application."""
    with TestClient(app, headers={"Authorization": f"Bearer {ADMIN}"}, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def engine(client: TestClient, app: FastAPI) -> PlayedEngine:
    """In the place of the engine's channel."""
    played = PlayedEngine()
    app.state.engine_gateway = played
    return played


@pytest.fixture
def run(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line against this server."""

    @contextmanager
    def opened(url: str | None, token: str | None) -> Any:
        api = Api("http://testserver", token)
        api._http = client
        yield api

    monkeypatch.setattr(options, "open_api", opened)

    def invoke(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(cli, list(arguments), input=stdin)

    return invoke


@pytest.fixture
def as_role(client: TestClient, app: FastAPI) -> Callable[[Role], dict[str, str]]:
    """Headers of a new token with this role."""

    def headers(role: Role) -> dict[str, str]:
        with app.state.database.write() as session:
            _, token = tokens.create_token(session, f"a-{role.value}", role)
        return {"Authorization": f"Bearer {token}"}

    return headers


@pytest.fixture
def connections(client: TestClient) -> None:
    """`shop`, a PostgreSQL source, and `mart`, a DuckDB target."""
    shop = {
        "kind": "postgres",
        "settings": {"host": "db", "database": "shop", "user": "penstock"},
        "secrets": {"password": "hidden-word"},
    }
    assert client.put("/api/v1/connections/shop", json=shop).status_code == 201
    mart = {"kind": "duckdb", "settings": {"path": "/data/mart.duckdb"}}
    assert client.put("/api/v1/connections/mart", json=mart).status_code == 201


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[tuple[httpx.Client, FakeEngine, Assign]]:
    """A server with the running subscription `orders`, applied up to 0/50: its client, its engine and the assignment."""
    with running_server(tmp_path) as server, server.client() as client:
        declare(client)
        engine = FakeEngine(server.url)
        try:
            yield client, engine, engine.run(applied="0/50")
        finally:
            engine.close()
