"""One subscription for all tests of the client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import Client
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import standing_database
from tests.fixtures.service import SUBSCRIPTION, Service, running_service


@pytest.fixture(scope="module")
def service(pg18: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with standing_database(pg18, "client") as database:
        database.execute("CREATE TABLE orders (id bigint PRIMARY KEY, total numeric(12, 2) NOT NULL)")
        with running_service(database, tmp_path_factory.mktemp("client"), ["orders"]) as found:
            yield found


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with Client(service.url, service.token, subscription=SUBSCRIPTION) as found:
        yield found


@pytest.fixture
def own_service(pg18: EmbeddedPostgres, tmp_path: Path) -> Iterator[Service]:
    """A subscription of one test, whose engine it may close."""
    with standing_database(pg18, "budget") as database:
        database.execute("CREATE TABLE orders (id bigint PRIMARY KEY, total numeric(12, 2) NOT NULL)")
        with running_service(database, tmp_path, ["orders"]) as found:
            yield found
