"""One server, engine and copy in use with an SQL endpoint, for all tests of the folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.channel import ADMIN
from tests.fixtures.load import Load
from tests.fixtures.postgres import Database, Session, standing_database
from tests.fixtures.service import SUBSCRIPTION, Service, running_service
from tests.fixtures.sql_clients import Address

USER = "preset-admin"
_TABLES = """
CREATE TABLE orders (id bigint PRIMARY KEY, customer text NOT NULL, total numeric(10, 2), placed timestamptz DEFAULT now(), note text);
INSERT INTO orders SELECT i, 'customer ' || i % 10, i * 1.5, now(), NULL FROM generate_series(1, 1000) i;
CREATE TABLE lines (order_id bigint, n int, sku text, PRIMARY KEY (order_id, n));
INSERT INTO lines SELECT i, 1, 'sku ' || i FROM generate_series(1, 100) i;
CREATE TABLE files (id int PRIMARY KEY, content bytea);
INSERT INTO files VALUES (1, '\\x00ff'), (2, '\\x5c783030'), (3, ''), (4, NULL);
"""


@dataclass(frozen=True, slots=True)
class Endpoint(Address):
    """The endpoint of a service."""

    service: Service


class Traffic(Load):
    """Changes of orders that leave their values, so that clients read a copy in use."""

    def transact(self, connection: Session) -> None:
        connection.execute("UPDATE orders SET note = note WHERE id %% 100 = %s", [self.rng.randrange(100)])


@pytest.fixture(scope="package")
def endpoint(pg18: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with standing_database(pg18, "sql_endpoint") as database:
        database.execute(_TABLES)
        folder: Path = tmp_path_factory.mktemp("service")
        with running_service(database, folder, ["orders", "lines", "files"], sql_port=0, flight_port=0) as service:
            assert service.engine.sql_endpoint is not None
            port = service.engine.sql_endpoint.wait_for_port(30)
            flight_port = service.engine.sql_endpoint.wait_for_port(30, "flight")
            assert port is not None, "the endpoint does not listen"
            assert flight_port is not None, "the endpoint does not listen for Flight SQL"
            with Traffic(database.connect, "traffic", rest_s=0.02) as traffic:
                traffic.more(1)
                yield Endpoint(port, flight_port, USER, ADMIN, SUBSCRIPTION, service)


@pytest.fixture
def database(endpoint: Endpoint) -> Database:
    """The source of the endpoint's copy."""
    return endpoint.service.database
