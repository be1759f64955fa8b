"""Requests at the same time about a connection and its nodes, where the control database lets both run: on PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from cryptography.fernet import Fernet

from server.connections import repository, service
from server.connections.nodes import NodesFixed
from server.connections.schemas import ConnectionPut
from server.connections.service import ConnectionInUse
from server.db import migrate
from server.db.database import Database as ControlDatabase
from server.db.session import WriteSession
from server.errors import InvalidRequest, Problem
from server.security.secret_box import SecretBox
from server.subscriptions.schemas import SubscriptionPut
from server.subscriptions.service import put_subscription
from tests.fixtures.postgres import Database

pytestmark = pytest.mark.pg
BOX = SecretBox([Fernet.generate_key()])
BLOCKED_S = 0.5
"""Time in which a request ends if no lock holds it. Not measured; it takes some milliseconds."""
Request = Callable[[WriteSession], object]


@pytest.fixture
def control(database: Database) -> Iterator[ControlDatabase]:
    """With the connections `shop-1` to `shop-3`, and `mart`."""
    settings = database.settings
    url = f"postgresql+psycopg://{settings['user']}@{settings['host']}:{settings['port']}/{settings['database']}"
    migrate.upgrade(url)
    control = ControlDatabase(url)
    with control.write() as session:
        for number in (1, 2, 3):
            body = ConnectionPut(kind="postgres", settings={"host": f"db{number}", "database": "shop", "user": "u"})
            service.put_connection(session, BOX, f"shop-{number}", body, None)
        service.put_connection(session, BOX, "mart", ConnectionPut(kind="duckdb", settings={"path": "x"}), None)
    yield control
    control.close()


def whole(*connections: str, name: str = "shops") -> Request:
    nodes = [{"name": connection.replace("shop-", "n"), "connection": connection} for connection in connections]
    body = ConnectionPut(kind="partitioned", settings={"nodes": nodes})
    return lambda session: service.put_connection(session, BOX, name, body, None)


def removal(name: str) -> Request:
    return lambda session: service.remove_connection(session, name, None)


def subscription(session: WriteSession) -> object:
    body = SubscriptionPut.model_validate({"source": "shops", "target": "mart", "tables": []})
    return put_subscription(session, "s", body, [], None)


def overlapping(control: ControlDatabase, first: Request, second: Request) -> Problem | None:
    """What ends the second request, which begins while the first one is not committed."""
    problems: list[Problem] = []

    def run() -> None:
        try:
            with control.write() as session:
                second(session)
        except Problem as problem:
            problems.append(problem)

    other = threading.Thread(target=run)
    with control.write() as session:
        first(session)
        session.flush()
        other.start()
        other.join(BLOCKED_S)
    other.join()
    return problems[0] if problems else None


def test_a_connection_that_becomes_a_node_is_not_deleted(control: ControlDatabase) -> None:
    assert isinstance(overlapping(control, whole("shop-1", "shop-2"), removal("shop-2")), ConnectionInUse)
    assert overlapping(control, whole("shop-1", "shop-2"), removal("shop-3")) is None
    with control.read() as session:
        assert repository.find_connection(session, "shop-2") is not None


def test_a_connection_that_is_being_deleted_becomes_no_node(control: ControlDatabase) -> None:
    problem = overlapping(control, removal("shop-2"), whole("shop-1", "shop-2"))
    assert isinstance(problem, InvalidRequest)
    assert "'shop-2'" in problem.detail
    with control.read() as session:
        assert repository.find_connection(session, "shops") is None


def test_connections_with_the_same_nodes_in_other_orders_wait_for_each_other(control: ControlDatabase) -> None:
    """Locks in the order of the bodies would be a deadlock."""
    first, second = whole("shop-1", "shop-2", "shop-3"), whole("shop-3", "shop-2", "shop-1", name="others")
    assert overlapping(control, first, second) is None
    with control.read() as session:
        found = [repository.find_connection(session, name) for name in ("shops", "others")]
    assert [row.settings["nodes"][0] for row in found if row is not None] == [  # type: ignore[index]
        {"name": "n1", "connection": "shop-1"},
        {"name": "n3", "connection": "shop-3"},
    ]


def test_nodes_are_not_moved_below_a_subscription_that_begins(control: ControlDatabase) -> None:
    with control.write() as session:
        whole("shop-1", "shop-2")(session)
    assert isinstance(overlapping(control, subscription, whole("shop-2", "shop-1")), NodesFixed)
