"""The control database on PostgreSQL: the same migrations, the same API, events numbered in commit order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.app import create_app
from server.db import migrate
from server.db.database import Database as ControlDatabase
from server.events import repository
from server.events.service import record_event
from server.settings import load_settings
from tests.fixtures.postgres import Database
from tests.server.conftest import ADMIN, TestClient
from tests.server.test_migrations import check_batches_stay, check_events_tell_states, check_migrations

pytestmark = pytest.mark.pg


@pytest.fixture
def control_url(database: Database) -> str:
    settings = database.settings
    return f"postgresql+psycopg://{settings['user']}@{settings['host']}:{settings['port']}/{settings['database']}"


@pytest.fixture
def control(control_url: str) -> Iterator[ControlDatabase]:
    migrate.upgrade(control_url)
    control = ControlDatabase(control_url)
    yield control
    control.close()


def test_migrations(control_url: str) -> None:
    check_migrations(control_url)


def test_batches_stay_over_migrations(control_url: str) -> None:
    check_batches_stay(control_url)


def test_events_of_before_tell_states(control_url: str) -> None:
    check_events_tell_states(control_url)


def test_api(control: ControlDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.app.SERVICES", ())
    settings = load_settings(home=tmp_path, database_url=control.url, admin_token=ADMIN, log_level="error")
    with TestClient(create_app(settings), headers={"Authorization": f"Bearer {ADMIN}"}) as client:
        base = "/api/v1"
        client.put(f"{base}/connections/mart", json={"kind": "duckdb", "settings": {"path": "x"}})
        source = {
            "kind": "postgres",
            "settings": {"host": "h", "database": "d", "user": "u"},
            "secrets": {"password": "x"},
        }
        assert client.put(f"{base}/connections/shop", json=source).status_code == 201
        body = {"source": "shop", "target": "mart", "tables": [{"schema": "public", "name": "a"}]}
        assert client.put(f"{base}/subscriptions/s", json=body).status_code == 201
        body["tables"] = [{"schema": "public", "name": "b"}]
        assert client.put(f"{base}/subscriptions/s", json=body).status_code == 200
        assert client.patch(f"{base}/subscriptions/s", json={"desired_state": "paused"}).status_code == 200
        key = {"Idempotency-Key": "k"}
        first, again = (
            client.post(f"{base}/subscriptions/s/tables", json={"schema": "x", "name": "c"}, headers=key)
            for _ in range(2)
        )
        assert (first.status_code, again.json()) == (201, first.json())
        pages = client.get(f"{base}/subscriptions/s/tables", params={"page_size": 1}).json()
        assert (pages["items"][0]["name"], pages["next_page_token"] is not None) == ("b", True)
        assert client.delete(f"{base}/subscriptions/s").status_code == 204
        kinds = [event["kind"] for event in client.get(f"{base}/events").json()["items"]]
        assert kinds[0] == "subscription_deleted"
        assert len(kinds) == 9


def test_who_commits_later_gets_the_higher_event_number(control: ControlDatabase) -> None:
    first_noted, second_done = threading.Event(), threading.Event()

    def first() -> None:
        with control.write() as session:
            record_event(session, kind="first", detail="Noted first, committed last.")
            first_noted.set()
            assert second_done.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    assert first_noted.wait(10)
    with control.write() as session:
        record_event(session, kind="second", detail="Noted last, committed first.")
    second_done.set()
    thread.join(10)
    with control.read() as session:
        assert [row.kind for row in repository.list_after(session, 0, 10, None)] == ["second", "first"]
