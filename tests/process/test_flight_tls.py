"""The Flight SQL server's own end of a connection: TLS and logins, without statements."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from engine.sql_endpoint.flight.server import FlightSqlServer
from engine.sql_endpoint.server_api import Login, ProblemError
from tests.pg.postgres_log.test_capture_tls import certificate

TOKEN = "pst_flight"
_METHODS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda client, options: list(client.list_actions(options)),
    lambda client, options: client.get_flight_info(flight.FlightDescriptor.for_command("SELECT 1"), options),
    lambda client, options: client.get_schema(flight.FlightDescriptor.for_command("SELECT 1"), options),
    lambda client, options: list(client.do_action(flight.Action("CancelQuery", b""), options)),
    lambda client, options: client.do_get(flight.Ticket(b"x"), options).read_all(),
    lambda client, options: list(client.list_flights(b"", options)),
)


class OneToken:
    """In place of the server: it knows one token."""

    def __init__(self) -> None:
        self.valid = True

    async def login(self, *, digest: str) -> Login:
        if self.valid and digest == hashlib.sha256(TOKEN.encode()).hexdigest():
            return Login("reports", "viewer", "SCRAM-SHA-256$…")
        raise ProblemError({"code": "not_found"})


@pytest.fixture
def server() -> OneToken:
    return OneToken()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


@pytest.fixture
def chain(tmp_path: Path) -> bytes:
    found, key = certificate()
    (tmp_path / "chain.pem").write_bytes(found)
    (tmp_path / "key.pem").write_bytes(key)
    (tmp_path / "both.pem").write_bytes(found + key)
    return found


def serve(loop: asyncio.AbstractEventLoop, server: Any, tls: tuple[Path, Path | None] | None) -> FlightSqlServer:
    async def made() -> FlightSqlServer:
        return FlightSqlServer(server, None, ("127.0.0.1", 0), tls, 10)  # type: ignore[arg-type]

    return asyncio.run_coroutine_threadsafe(made(), loop).result()


def options(token: str | None) -> flight.FlightCallOptions:
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    return flight.FlightCallOptions(headers=headers, timeout=30)


@pytest.mark.parametrize("key", ["key.pem", None])
def test_connections_are_encrypted(
    loop: asyncio.AbstractEventLoop, server: OneToken, chain: bytes, tmp_path: Path, key: str | None
) -> None:
    tls = (tmp_path / "chain.pem", tmp_path / key) if key else (tmp_path / "both.pem", None)
    with serve(loop, server, tls) as serving:
        address = f"grpc+tls://127.0.0.1:{serving.port}"
        with flight.FlightClient(address, tls_root_certs=chain) as client:
            assert "CancelFlightInfo" in [action.type for action in client.list_actions(options(TOKEN))]
            with pytest.raises(flight.FlightUnauthenticatedError):
                list(client.list_actions(options("wrong")))
        with flight.FlightClient(address) as stranger, pytest.raises(flight.FlightUnavailableError):
            list(stranger.list_actions(options(TOKEN)))
        with (
            flight.FlightClient(f"grpc://127.0.0.1:{serving.port}") as plain,
            pytest.raises(flight.FlightUnavailableError),
        ):
            list(plain.list_actions(options(TOKEN)))


def test_a_certificate_that_cannot_be_used_is_an_error(
    loop: asyncio.AbstractEventLoop, server: OneToken, tmp_path: Path
) -> None:
    with pytest.raises(OSError, match=r"none\.pem"):
        serve(loop, server, (tmp_path / "none.pem", None))


def test_an_address_in_use_is_an_error(loop: asyncio.AbstractEventLoop, server: OneToken) -> None:
    with serve(loop, server, None) as serving:

        async def again() -> None:
            FlightSqlServer(server, None, ("127.0.0.1", serving.port), None, 10)  # type: ignore[arg-type]

        with pytest.raises((OSError, pa.ArrowException)):
            asyncio.run_coroutine_threadsafe(again(), loop).result()


def test_every_method_needs_a_valid_token(loop: asyncio.AbstractEventLoop, server: OneToken) -> None:
    with serve(loop, server, None) as serving, flight.FlightClient(f"grpc://127.0.0.1:{serving.port}") as client:
        for call in _METHODS:
            for token in (None, "", "wrong"):
                # pyarrow raises an OSError for get_schema, whatever the status.
                with pytest.raises((flight.FlightUnauthenticatedError, OSError), match="unauthenticated"):
                    call(client, options(token))
        with pytest.raises(flight.FlightUnauthenticatedError):
            client.authenticate_basic_token("other", TOKEN)
        assert client.authenticate_basic_token("reports", TOKEN)[1] == f"Bearer {TOKEN}".encode()
        server.valid = False
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(client.list_actions(options("wrong")))
