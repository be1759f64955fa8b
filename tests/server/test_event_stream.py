"""Events as they happen, from a server that listens on a real port."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from server.db.session import ReadSession, WriteInReadSession
from server.events import endpoints, repository
from server.events.service import record_event
from tests.server.conftest import ADMIN

HEADERS = {"Authorization": f"Bearer {ADMIN}"}


class _Server(uvicorn.Server):
    def __init__(self, app: FastAPI) -> None:
        super().__init__(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=1))
        self.is_up = threading.Event()

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


@pytest.fixture
def url(app: FastAPI) -> Iterator[str]:
    server = _Server(app)
    thread = threading.Thread(target=server.run)
    thread.start()
    assert server.is_up.wait(30)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(30)
    assert not thread.is_alive()


@contextmanager
def stream(url: str, **options: Any) -> Iterator[Iterator[dict[str, Any]]]:
    headers = {**HEADERS, **options.pop("headers", {})}
    with (
        httpx.Client(timeout=20) as client,
        client.stream("GET", f"{url}/api/v1/events/stream", headers=headers, **options) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines) == ": connected"
        yield _messages(lines)


def _messages(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    message: dict[str, Any] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            message[name] = json.loads(value) if name == "data" else value
        elif message:
            yield message
            message = {}


def record(app: FastAPI, kind: str, subscription: str | None = None, *, touch: bool = False) -> None:
    with app.state.database.write() as session:
        record_event(session, kind=kind, detail="Something.", subscription=subscription)
        if touch and subscription:
            session.touch(subscription)


def test_begins_behind_the_last_seen_and_goes_on_live(url: str, app: FastAPI) -> None:
    record(app, "one")
    record(app, "two")
    first = httpx.get(f"{url}/api/v1/events", headers=HEADERS).json()["items"][-1]["id"]
    with stream(url, headers={"Last-Event-ID": first}) as messages:
        got = next(messages)
        assert (got["event"], got["data"]["kind"], got["id"]) == ("event", "two", got["data"]["id"])
        record(app, "three")
        assert next(messages)["data"]["kind"] == "three"


def test_nothing_is_lost_between_two_connections(url: str, app: FastAPI) -> None:
    record(app, "before")
    last = httpx.get(f"{url}/api/v1/events", headers=HEADERS).json()["items"][0]["id"]
    for number in range(450):
        record(app, f"missed{number}")
    with stream(url, headers={"Last-Event-ID": last}) as messages:
        assert [next(messages)["data"]["kind"] for _ in range(450)] == [f"missed{number}" for number in range(450)]


def test_filter_and_changed(url: str, app: FastAPI) -> None:
    with stream(url, params={"subscription": "s"}, headers={"Last-Event-ID": "0"}) as messages:
        record(app, "other", "t", touch=True)
        record(app, "mine", "s", touch=True)
        seen = [next(messages), next(messages)]
        assert sorted(message["event"] for message in seen) == ["changed", "event"]
        by_event = {message["event"]: message["data"] for message in seen}
        assert by_event["changed"] == {"subscription": "s"}
        assert by_event["event"]["kind"] == "mine"


def test_only_commits_with_events_are_read(url: str, app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []

    def list_after(session: ReadSession, event_id: int, *rest: Any) -> Any:
        reads.append(event_id)
        return real(session, event_id, *rest)

    real = repository.list_after
    monkeypatch.setattr(repository, "list_after", list_after)
    with stream(url, headers={"Last-Event-ID": "0"}) as messages:
        for name in ("s", "t", "u"):
            with app.state.database.write() as session:
                session.touch(name)
            assert next(messages)["data"] == {"subscription": name}
        assert reads == [0]
        record(app, "real", "s", touch=True)
        assert next(messages)["data"] == {"subscription": "s"}
        assert next(messages)["data"]["kind"] == "real"
        assert reads == [0, 0]


def test_a_stream_without_news_is_kept_alive_and_goes_on(
    url: str, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "_KEEPALIVE_S", 0.01)
    headers = {**HEADERS, "Last-Event-ID": "0"}
    with (
        httpx.Client(timeout=20) as client,
        client.stream("GET", f"{url}/api/v1/events/stream", headers=headers) as answer,
    ):
        assert answer.headers["cache-control"] == "no-cache"
        lines = (line for line in answer.iter_lines() if line)
        assert [next(lines) for _ in range(3)] == [": connected", ": ping", ": ping"]
        record(app, "one")
        assert next(line for line in lines if line != ": ping") == "event: event"


class _Undone(Exception):
    """Undoes a transaction."""


def test_a_rolled_back_change_is_not_told(url: str, app: FastAPI) -> None:
    with stream(url, headers={"Last-Event-ID": "0"}) as messages:
        with suppress(_Undone), app.state.database.write() as session:
            record_event(session, kind="never", detail="Rolled back.")
            raise _Undone
        record(app, "real")
        assert next(messages)["data"]["kind"] == "real"


def test_reading_sessions_do_not_write(url: str, app: FastAPI) -> None:
    with app.state.database.read() as session:
        assert isinstance(session, ReadSession)
        with pytest.raises(WriteInReadSession):
            session.commit()
