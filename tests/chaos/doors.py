"""The ways by which a program reads a copy: REST, `penstock.client`, psycopg over the SQL endpoint, and Arrow Flight SQL.

A door is used by one thread. Each of its reads is one statement with one row of two columns: a text with numbers, and a sum.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import psycopg
from pyarrow import flight

from engine.model.position import Lsn
from penstock.client import Client
from server.cli.client import Api
from tests.chaos.own_writes import Read
from tests.fixtures.rig import SUBSCRIPTION, Rig

TIMEOUT_S = 30.0
_TIMEOUT_MS = round(TIMEOUT_S * 1000)
_USER = "preset-admin"
_RECONNECT = [("grpc.max_reconnect_backoff_ms", 1000)]
"""By default gRPC tries to connect again only after up to two minutes."""

Connection = psycopg.Connection[Any]


class Door(Protocol):
    """One session. Whatever it raises ends only that read."""

    def writing(self, source: Connection) -> AbstractContextManager[None]:
        """The block in which the session's transaction is to be."""
        ...

    def read(self, sql: str, wanted: Lsn | None) -> Read:
        """Read after waiting for `wanted`; None: what is visible now, without a wait."""
        ...

    def close(self) -> None: ...


class RestDoor:
    """A wait and then a query, and in every second read a query that waits."""

    def __init__(self, rig: Rig) -> None:
        self._api: Api = rig.running.api(timeout_s=2 * TIMEOUT_S)
        self._path = rig.path
        self._count = 0

    def writing(self, source: Connection) -> AbstractContextManager[None]:
        return nullcontext()

    def read(self, sql: str, wanted: Lsn | None) -> Read:
        self._count += 1
        body: dict[str, Any] = {"sql": sql}
        if wanted is not None and self._count % 2:
            waited = {"position": str(wanted), "timeout_ms": _TIMEOUT_MS}
            self._api.post(f"{self._path}/freshness-waits", waited)
        elif wanted is not None:
            body["freshness"] = {"mode": "position", "position": str(wanted), "timeout_ms": _TIMEOUT_MS}
        answer = self._api.post(f"{self._path}/queries", body)
        return _read(wanted, answer["position"], *answer["rows"][0])

    def close(self) -> None:
        self._api.close()


class ClientDoor:
    """`read_your_writes`: the client itself reads the position of the commit."""

    def __init__(self, rig: Rig) -> None:
        self._client = Client(rig.running.options.url, rig.running.admin_token, subscription=SUBSCRIPTION)

    def writing(self, source: Connection) -> AbstractContextManager[None]:
        return self._client.read_your_writes(source)

    def read(self, sql: str, wanted: Lsn | None) -> Read:
        if wanted is None:
            self._client.at_least(None)
        result = self._client.query(sql, timeout=TIMEOUT_S)
        (row,) = result.rows()
        return _read(wanted, result.position, *row)

    def close(self) -> None:
        self._client.close()


class SqlDoor:
    """A session of the SQL endpoint that is kept until it fails."""

    def __init__(self, rig: Rig, port: int) -> None:
        self._settings = {
            "host": "127.0.0.1",
            "port": port,
            "user": _USER,
            "password": rig.running.admin_token,
            "dbname": SUBSCRIPTION,
            "sslmode": "disable",
        }
        self._connection: Connection | None = None

    def writing(self, source: Connection) -> AbstractContextManager[None]:
        return nullcontext()

    def read(self, sql: str, wanted: Lsn | None) -> Read:
        if self._connection is None:
            self._connection = psycopg.connect(**self._settings, autocommit=True, connect_timeout=round(TIMEOUT_S))
        try:
            freshness = "any" if wanted is None else str(wanted)
            self._connection.execute(f"SET penstock.freshness = '{freshness}'".encode())
            (row,) = self._connection.execute(sql.encode()).fetchall()
            ((position,),) = self._connection.execute("SHOW penstock.position").fetchall()
        except psycopg.OperationalError:
            self.close()
            raise
        return _read(wanted, position, *row)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class FlightDoor:
    """Statements of Flight SQL, each with the position that it waits for as a header."""

    def __init__(self, rig: Rig, port: int) -> None:
        self._client = flight.FlightClient(f"grpc://127.0.0.1:{port}", generic_options=_RECONNECT)
        self._headers = {
            "authorization": f"Bearer {rig.running.admin_token}",
            "penstock-subscription": SUBSCRIPTION,
        }

    def writing(self, source: Connection) -> AbstractContextManager[None]:
        return nullcontext()

    def read(self, sql: str, wanted: Lsn | None) -> Read:
        headers = {**self._headers, "penstock-freshness": "any" if wanted is None else str(wanted)}
        given = [(name.encode(), value.encode()) for name, value in headers.items()]
        options = flight.FlightCallOptions(headers=given, timeout=2 * TIMEOUT_S)
        info = self._client.get_flight_info(flight.FlightDescriptor.for_command(sql), options)
        position = json.loads(info.app_metadata)["position"]
        (row,) = self._client.do_get(info.endpoints[0].ticket, options).read_all().to_pylist()
        return _read(wanted, position, *row.values())

    def close(self) -> None:
        self._client.close()


def makers(rig: Rig, sql_port: int, flight_port: int) -> dict[str, Callable[[], Door]]:
    """How a door of each kind is made."""
    return {
        "REST": lambda: RestDoor(rig),
        "penstock.client": lambda: ClientDoor(rig),
        "SQL endpoint": lambda: SqlDoor(rig, sql_port),
        "Flight SQL": lambda: FlightDoor(rig, flight_port),
    }


def _read(wanted: Lsn | None, position: str, numbers: str, total: Any) -> Read:
    return Read(wanted, Lsn.parse(position), tuple(int(n) for n in numbers.split(",") if n), int(total))
