"""What the clients send: freshness, retries, the environment, and what the reads of a thread or task wait for."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import client as api
from penstock.client import sync_client
from penstock.client.requests import Floor, order_of
from tests.unit.client.test_client_answers import RECEIPT, TABLE, arrow, problem, rows_answer


class Server:
    """Answers waits and queries, after the losses that a test asks for; keeps their bodies."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.losses: list[Callable[[httpx.Request], httpx.Response]] = []
        self.now = "0/30"

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.losses:
            return self.losses.pop(0)(request)
        self.paths.append(request.url.path)
        if request.method == "GET":
            return httpx.Response(200, json={"items": [{"name": "the only one"}], "next_page_token": None})
        body = json.loads(request.content)
        self.bodies.append(body)
        receipt = RECEIPT | {"position": self.now}
        if request.url.path.endswith("/freshness-waits"):
            receipt |= {"position": body.get("position", self.now)}
            return httpx.Response(200, json={"id": "w1", "waited_ms": 12.0, "receipt": receipt})
        metadata = {} if body["freshness"]["mode"] == "any" else {"penstock.receipt": json.dumps(receipt)}
        return rows_answer(arrow(TABLE.replace_schema_metadata(metadata)))

    def asked(self) -> list[tuple[str, str | None]]:
        """Mode and position of each query."""
        return [(b["freshness"]["mode"], b["freshness"].get("position")) for b in self.bodies if "sql" in b]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def client(server: Server) -> Iterator[api.Client]:
    transport = httpx.MockTransport(server)
    with api.Client("http://penstock.test/", "token", subscription="shop", transport=transport) as found:
        yield found


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, which take no time. Other threads of the process pause as before."""
    made: list[float] = []
    mine, pause = threading.get_ident(), time.sleep
    monkeypatch.setattr(time, "sleep", lambda s: made.append(s) if threading.get_ident() == mine else pause(s))
    return made


def refused(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


def hung_up(request: httpx.Request) -> httpx.Response:
    raise httpx.RemoteProtocolError("Server disconnected without sending a response.", request=request)


def stopping(_: httpx.Request) -> httpx.Response:
    return problem(503, "server_stopping")


def gateway(_: httpx.Request) -> httpx.Response:
    return httpx.Response(502, text="<html>Bad Gateway</html>")


LOSSES = [refused, hung_up, stopping, gateway]


def test_a_wait_names_position_tables_and_deadline(client: api.Client, server: Server) -> None:
    receipt = client.wait("0/20", ["public.orders"], timeout=0)
    assert server.bodies == [{"position": "0/20", "tables": [{"schema": "public", "name": "orders"}], "timeout_ms": 0}]
    assert server.paths == ["/api/v1/subscriptions/shop/freshness-waits"]
    assert (receipt.position, receipt.waited) == ("0/20", 0.012)
    client.wait()
    assert "position" not in server.bodies[1]
    with pytest.raises(ValueError, match=r"public\.orders"):
        client.wait(tables=["orders"])


def test_lost_connections_are_retried_until_a_server_answers(
    client: api.Client, server: Server, pauses: list[float]
) -> None:
    server.losses = [*LOSSES, *LOSSES]
    client.wait()
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    assert server.bodies[0]["timeout_ms"] <= 30_000
    server.losses = list(LOSSES)
    assert len(client.query("select 1")) == 3


@pytest.mark.parametrize("loss", LOSSES)
def test_a_connection_that_is_lost_at_the_deadline_is_an_error(
    client: api.Client, server: Server, loss: Callable[[httpx.Request], httpx.Response]
) -> None:
    server.losses = [loss]
    with pytest.raises(api.ServerUnreachable):
        client.wait(timeout=0.05)


def test_other_answers_of_a_server_that_is_unavailable_are_not_retried(client: api.Client, server: Server) -> None:
    server.losses = [lambda _: problem(503, "freshness_unavailable")]
    with pytest.raises(api.Unavailable):
        client.wait()


def test_a_query_asks_for_what_it_is_told(client: api.Client, server: Server) -> None:
    client.query("select 1", max_rows=5, time_limit=2.5)
    client.query("select 1", "latest", timeout=1)
    client.query("select 1", "0/20")
    assert server.asked() == [("any", None), ("latest", None), ("position", "0/20")]
    assert (server.bodies[0]["max_rows"], server.bodies[0]["timeout_ms"]) == (5, 2500)
    assert server.bodies[1]["freshness"]["timeout_ms"] <= 1000
    with pytest.raises(ValueError, match="0/16B3748"):
        client.query("select 1", "yesterday")


def test_queries_wait_at_least_for_a_position(client: api.Client, server: Server) -> None:
    client.at_least("0/20")
    client.at_least("0/1F")
    client.query("select 1")
    client.query("select 1", "0/10")
    client.query("select 1", "1/0")
    client.query("select 1", "latest")
    assert server.asked() == [("position", "0/20"), ("position", "0/20"), ("position", "1/0"), ("latest", None)]
    with pytest.raises(ValueError, match="0/16B3748"):
        client.at_least("yesterday")


def test_what_is_waited_for_is_forgotten_on_request(client: api.Client, server: Server) -> None:
    client._requests.floor = Floor("0/20", now=True)
    client.at_least(None)
    client.query("select 1")
    client.at_least("0/10")
    client.query("select 1")
    assert server.asked() == [("any", None), ("position", "0/10")]


def test_the_latest_is_at_least_the_position_too(client: api.Client, server: Server) -> None:
    client.at_least("0/31")
    client.query("select 1", "latest")
    assert server.asked() == [("latest", None), ("position", "0/31")]


def test_an_unknown_position_is_waited_for_as_now_until_it_is_known(client: api.Client, server: Server) -> None:
    client._requests.floor = Floor("0/20", now=True)
    client.query("select 1")
    client.query("select 1")
    client._requests.floor = Floor("0/20", now=True)
    client.query("select 1", "0/25")
    assert server.asked() == [("latest", None), ("position", "0/30"), ("position", "0/30")]
    assert len(server.bodies) == 4


def test_threads_do_not_share_what_they_wait_for(client: api.Client, server: Server) -> None:
    client.at_least("0/20")
    thread = Thread(target=client.query, args=("select 1",))
    thread.start()
    thread.join()
    client.query("select 1")
    assert server.asked() == [("any", None), ("position", "0/20")]


async def test_tasks_inherit_what_is_waited_for_and_share_nothing_later(server: Server) -> None:
    transport = httpx.MockTransport(server)
    async with api.AsyncClient("http://penstock.test", subscription="shop", transport=transport) as client:
        client.at_least("0/10")

        async def task() -> None:
            client.at_least("0/20")
            await client.query("select 1")

        await asyncio.create_task(task())
        await client.query("select 1")
        await client.wait()
    assert server.asked() == [("position", "0/20"), ("position", "0/10")]


async def test_the_asynchronous_client_retries_too(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    mine, pause_of_others = threading.get_ident(), asyncio.sleep

    async def pause(seconds: float) -> None:
        if threading.get_ident() != mine:  # the loop of another thread
            await pause_of_others(seconds)
            return
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", pause)
    server.losses = list(LOSSES)
    transport = httpx.MockTransport(server)
    async with api.AsyncClient("http://penstock.test", "t0", subscription="shop", transport=transport) as client:
        assert (await client.query("select 1")).rows()[0][1] == "a"
        server.losses = [lambda _: problem(409, "freshness_unreachable")]
        with pytest.raises(api.FreshnessUnreachable):
            await client.wait()
        assert "t0" not in repr(client)
    assert pauses == [0.1, 0.2, 0.4, 0.8]


def test_address_and_token_come_from_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "http://from.environment")
    monkeypatch.setenv("PENSTOCK_TOKEN", "token-of-the-environment")
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return server(request)

    with api.Client(transport=httpx.MockTransport(answer)) as client:
        client.wait()
    assert seen[-1].headers["Authorization"] == "Bearer token-of-the-environment"
    assert seen[-1].url == "http://from.environment/api/v1/subscriptions/the%20only%20one/freshness-waits"
    assert "token-of-the-environment" not in repr(client)


@pytest.mark.parametrize("names", [[], ["a", "b"]])
def test_a_subscription_is_named_where_there_is_not_one(names: list[str]) -> None:
    items = [{"name": name} for name in names]
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json={"items": items}))
    with (
        api.Client("http://penstock.test", transport=transport) as client,
        pytest.raises(api.PenstockError, match="subscription="),
    ):
        client.wait()


@pytest.mark.parametrize("url", ["penstock.test", "ftp://penstock.test", "http://user:pw@penstock.test", "http://"])
def test_an_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="address of the server"):
        api.Client(url)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_positions_are_ordered_as_numbers(one: int, other: int) -> None:
    texts = [f"{number >> 32:X}/{number & 0xFFFFFFFF:X}" for number in (one, other)]
    assert (order_of(texts[0]) < order_of(texts[1])) == (one < other)
    assert order_of(str(one)) == one


def test_reading_the_position_that_is_interrupted_counts_as_unknown(
    client: api.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sync_client, "check_source", lambda _: None)
    monkeypatch.setattr(sync_client, "read_log_end", interrupted)
    with pytest.raises(KeyboardInterrupt), _block(client, "a connection"):
        pass
    assert client._requests.floor == Floor(now=True)


@contextmanager
def _block(client: api.Client, source: object) -> Iterator[None]:
    with client.read_your_writes(source):  # type: ignore[arg-type]
        yield


def test_what_is_no_connection_is_refused_before_the_block(client: api.Client) -> None:
    with pytest.raises(TypeError, match="psycopg"), _block(client, "postgresql://"):
        raise AssertionError("the block must not begin")
    with pytest.raises(TypeError, match="psycopg"):
        api.position_after(pa)
