"""Connections that consist of others: declared, refused, changed with their nodes, and given to the engine with the nodes' settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.fernet import Fernet
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from sqlmodel import select

from engine.link.messages import Assign
from server.connections.service import connection_with_secrets, require_connection
from server.db.models.outbox import OutboxRow
from server.db.models.subscription import SubscriptionRow
from server.engines.commands import initial_commands
from server.security.secret_box import SecretBox
from server.subscriptions.assignment import build_assignment
from tests.server.conftest import PlayedEngine

URL = "/api/v1/connections"
SUBSCRIPTIONS = "/api/v1/subscriptions"
MART = {"kind": "duckdb", "settings": {"path": "/data/mart.duckdb"}}
BODY = {"source": "shops", "target": "mart", "tables": [{"schema": "public", "name": "orders"}]}
NAMES = ("n1", "n2", "n3", "n4")


def shop(number: int, **secrets: str) -> dict[str, Any]:
    settings = {"host": f"db{number}", "database": "shop", "user": "penstock"}
    return {"kind": "postgres", "settings": settings, "secrets": secrets}


def partitioned(*connections: str, names: tuple[str, ...] = NAMES, **more: Any) -> dict[str, Any]:
    nodes = [{"name": name, "connection": connection} for name, connection in zip(names, connections, strict=False)]
    return {"kind": "partitioned", "settings": {"nodes": nodes}, **more}


@pytest.fixture
def shops(client: TestClient) -> None:
    """`shop-1` to `shop-4`, the connection `shops` with two of them, and the target `mart`."""
    for number in range(1, 5):
        body = shop(number, password=f"hidden-{number}", mask_key="hidden-key-of-a-node")
        assert client.put(f"{URL}/shop-{number}", json=body).status_code == 201
    assert client.put(f"{URL}/mart", json=MART).status_code == 201
    body = partitioned("shop-1", "shop-2", secrets={"mask_key": "hidden-key-of-all"})
    assert client.put(f"{URL}/shops", json=body).status_code == 201


@pytest.fixture
def subscribed(client: TestClient, shops: None) -> None:
    assert client.put(f"{SUBSCRIPTIONS}/s", json=BODY).status_code == 201


@pytest.fixture
def outbox(app: FastAPI) -> Callable[[], list[str]]:
    """Takes the commands that wait for engines."""

    def taken() -> list[str]:
        with app.state.database.write() as session:
            rows = list(session.exec(select(OutboxRow)))
            for row in rows:
                session.delete(row)
            return [f"{row.kind} {row.subscription}" for row in rows]

    return taken


@pytest.mark.usefixtures("shops")
def test_it_is_declared_read_and_listed(client: TestClient) -> None:
    nodes = [{"name": "n1", "connection": "shop-1"}, {"name": "n2", "connection": "shop-2"}]
    found = client.get(f"{URL}/shops").json()
    assert (found["kind"], found["settings"], found["secrets_set"]) == ("partitioned", {"nodes": nodes}, ["mask_key"])
    assert [item["settings"] for item in client.get(URL).json()["items"] if item["name"] == "shops"] == [
        {"nodes": nodes}
    ]
    again = client.put(f"{URL}/shops", json=partitioned("shop-1", "shop-2"))
    assert (again.status_code, again.headers["ETag"]) == (200, client.get(f"{URL}/shops").headers["ETag"])
    assert client.post(f"{URL}/shops/plans", json=partitioned("shop-1", "shop-2")).json()["result"] == "unchanged"
    plan = client.post(f"{URL}/shops/plans", json=partitioned("shop-1", "shop-2", "shop-3")).json()
    assert (plan["result"], [change["field"] for change in plan["fields"]]) == ("changed", ["settings.nodes"])
    assert plan["fields"][0]["after"] == [*nodes, {"name": "n3", "connection": "shop-3"}]


@pytest.mark.usefixtures("shops")
def test_the_engine_is_given_the_nodes_with_their_passwords(app: FastAPI) -> None:
    """And no other secret of a node: those are of other uses of it."""
    with app.state.database.read() as session:
        row = require_connection(session, "shops")
        found = connection_with_secrets(session, row, app.state.secret_box)
    assert (found["name"], found["kind"], list(found["settings"])) == ("shops", "partitioned", ["nodes"])
    nodes = json.loads(found["settings"]["nodes"])
    defaults = {"port": 5432, "database": "shop", "user": "penstock", "sslmode": "prefer"}
    assert nodes == [
        {"name": "n1", "settings": {"host": "db1", **defaults}},
        {"name": "n2", "settings": {"host": "db2", **defaults}},
    ]
    assert found["secrets"] == {
        "mask_key": "hidden-key-of-all",
        "n1/password": "hidden-1",
        "n2/password": "hidden-2",
    }


@pytest.mark.usefixtures("shops")
def test_a_node_without_a_password_has_none(client: TestClient, app: FastAPI) -> None:
    client.patch(f"{URL}/shop-1", json={"secrets": {"password": None}})
    client.patch(f"{URL}/shops", json={"secrets": {"mask_key": None}})
    with app.state.database.read() as session:
        found = connection_with_secrets(session, require_connection(session, "shops"), app.state.secret_box)
    assert found["secrets"] == {"n2/password": "hidden-2"}


@pytest.mark.usefixtures("subscribed")
def test_an_assignment_has_them_and_can_be_sent(app: FastAPI) -> None:
    with app.state.database.read() as session:
        document = build_assignment(session, app.state.secret_box, "s")
    spec = Assign.model_validate(document).to_spec()
    assert [node["name"] for node in json.loads(str(spec.source.settings["nodes"]))] == ["n1", "n2"]
    assert spec.source.secrets["n2/password"] == "hidden-2"
    assert spec.source.capture is not None
    assert (spec.source.capture.kind, spec.source.capture.settings) == ("postgres_logs", {"order": "causal"})


@pytest.mark.usefixtures("subscribed")
def test_every_question_to_the_engine_has_them(client: TestClient, engine: PlayedEngine) -> None:
    table = {"schema": "public", "name": "orders", "key": ["id"], "identity": "d", "partitioned": False}
    engine.answers = {
        "preflight": {"findings": []},
        "discover": {"tables": [{**table, "rows_estimate": 1, "bytes": 1, "columns": [], "problems": []}]},
        "ddl_capture": {"installed": False, "current": True, "install_sql": [], "remove_sql": []},
    }
    answers = [
        client.post(f"{URL}/shops/checks", json={}),
        client.post(f"{URL}/new/checks", json={"connection": partitioned("shop-1", "shop-2")}),
        client.post(f"{URL}/shops/checks", json={"capture": {"kind": "postgres_logs", "order": "strict"}}),
        client.get(f"{URL}/shops/tables"),
        client.get(f"{URL}/shops/ddl-capture"),
        client.patch(f"{SUBSCRIPTIONS}/s", json={"tables": [{"schema": "public", "name": "*"}]}),
        client.put(f"{SUBSCRIPTIONS}/other", json={**BODY, "tables": [{"schema": "sales", "name": "*"}]}),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 200, 200, 422], answers[-2].text
    assert answers[-1].json()["code"] == "pattern_matches_nothing"
    assert len(engine.asked) == 7
    for kind, payload in engine.asked:
        given = payload["connection"]
        assert [node["settings"]["host"] for node in json.loads(given["settings"]["nodes"])] == ["db1", "db2"], kind
        assert given["secrets"]["n1/password"] == "hidden-1", kind
    assert engine.asked[2][1]["capture"] == {"kind": "postgres_logs", "settings": {"order": "strict"}}


@pytest.mark.usefixtures("subscribed")
def test_secrets_never_come_out(client: TestClient) -> None:
    answers = [
        client.get(f"{URL}/shops"),
        client.get(URL),
        client.get(f"{SUBSCRIPTIONS}/s"),
        client.post(
            f"{URL}/shops/plans", json=partitioned("shop-1", "shop-2", secrets={"mask_key": "hidden-other-key"})
        ),
        client.put(f"{URL}/shops", json=partitioned("shop-2", "shop-1")),
        client.get("/api/v1/events"),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 409, 200]
    assert all("hidden" not in answer.text for answer in answers)


@pytest.mark.parametrize(
    ("connections", "names", "pointers"),
    [
        (("shop-1",), NAMES, ["/settings/nodes"]),
        (("shop-1", "shop-1"), NAMES, ["/settings/nodes"]),
        (("shop-1", "shop-2"), ("n1", "n1"), ["/settings/nodes"]),
        (("shop-1", "shop-2"), ("n1", "N2"), ["/settings/nodes/1/name"]),
        (("shop-1", "shop-2"), ("n1", "n2,n3"), ["/settings/nodes/1/name"]),
        (("shop-1", "shop-2"), ("n1", "n2/x"), ["/settings/nodes/1/name"]),
        (("shop-1", "shop-2"), ("n1", "n2\n"), ["/settings/nodes/1/name"]),
        (("shop-1", ""), NAMES, ["/settings/nodes/1/connection"]),
        (("shop-1", "nope"), NAMES, ["/settings/nodes/1/connection"]),
        (("mart", "nope"), NAMES, ["/settings/nodes/0/connection", "/settings/nodes/1/connection"]),
        (("shops", "shop-3"), NAMES, ["/settings/nodes/0/connection"]),
        (tuple(f"x{number}" for number in range(65)), tuple(f"n{number}" for number in range(65)), ["/settings/nodes"]),
    ],
)
@pytest.mark.usefixtures("shops")
def test_unfit_nodes_are_pointed_at(
    client: TestClient, connections: tuple[str, ...], names: tuple[str, ...], pointers: list[str]
) -> None:
    body = partitioned(*connections, names=names)
    for answer in (
        client.put(f"{URL}/other", json=body),
        client.post(f"{URL}/other/plans", json=body),
        client.put(f"{URL}/shops", json=body),
        client.patch(f"{URL}/shops", json={"settings": body["settings"]}),
        client.post(f"{URL}/other/checks", json={"connection": body}),
    ):
        assert (answer.status_code, [error["pointer"] for error in answer.json()["errors"]]) == (422, pointers)
        assert answer.json()["remedy"]
    assert client.get(f"{URL}/other").status_code == 404
    assert len(client.get(f"{URL}/shops").json()["settings"]["nodes"]) == 2


@pytest.mark.parametrize("wrong", [{}, {"nodes": None}, {"nodes": 5}, {"nodes": [5, 6]}, {"nodes": {"n1": "shop-1"}}])
@pytest.mark.usefixtures("shops")
def test_what_is_no_list_of_nodes_is_refused(client: TestClient, wrong: dict[str, Any]) -> None:
    answer = client.put(f"{URL}/other", json={"kind": "partitioned", "settings": wrong})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].startswith("/settings/nodes")


@pytest.mark.usefixtures("shops")
def test_a_node_is_not_deleted(client: TestClient) -> None:
    answer = client.delete(f"{URL}/shop-2")
    assert (answer.status_code, answer.json()["code"]) == (409, "connection_in_use")
    assert answer.json()["detail"] == "The connection 'shop-2' is a node of 'shops'."
    assert "of which it is a node" in answer.json()["remedy"]
    assert client.delete(f"{URL}/shop-3").status_code == 204
    assert client.delete(f"{URL}/shops").status_code == 204
    assert client.delete(f"{URL}/shop-2").status_code == 204


@pytest.mark.usefixtures("subscribed")
def test_a_change_of_a_node_reaches_the_subscriptions_of_the_whole(
    client: TestClient, outbox: Callable[[], list[str]], app: FastAPI
) -> None:
    direct = {**BODY, "source": "shop-1", "tables": [{"schema": "public", "name": "events"}]}
    assert client.put(f"{SUBSCRIPTIONS}/direct", json=direct).status_code == 201
    outbox()
    client.patch(f"{URL}/shop-1", json={"settings": {"port": 6000}})
    assert sorted(outbox()) == ["assign direct", "assign s"]
    client.patch(f"{URL}/shop-2", json={"settings": {"host": "elsewhere"}, "secrets": {"password": "hidden-new"}})
    assert outbox() == ["assign s"]
    with app.state.database.read() as session:
        source = build_assignment(session, app.state.secret_box, "s")["source"]
    assert json.loads(source["settings"]["nodes"])[1]["settings"]["host"] == "elsewhere"
    assert source["secrets"]["n2/password"] == "hidden-new"
    client.patch(f"{URL}/shop-3", json={"settings": {"host": "elsewhere"}})
    client.patch(f"{URL}/shop-2", json={"settings": {"host": "elsewhere"}})
    assert outbox() == []


@pytest.mark.usefixtures("subscribed")
def test_nodes_are_added_at_the_end(client: TestClient, outbox: Callable[[], list[str]]) -> None:
    outbox()
    answer = client.put(f"{URL}/shops", json=partitioned("shop-1", "shop-2", "shop-4", "shop-3"))
    assert (answer.status_code, outbox()) == (200, ["assign s"])
    event = client.get("/api/v1/events", params={"kind": "nodes_added"}).json()["items"][0]
    assert (event["subscription"], event["severity"]) == ("s", "warning")
    assert "n3, n4" in event["detail"]
    assert event["actions"][0]["command"] == "penstock subscriptions reload s"


NODES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(["shop-1", "shop-2", "shop-3", "shop-4"])),
    min_size=2,
    unique_by=(lambda node: node[0], lambda node: node[1]),
)

CHANGES = NODES.flatmap(
    lambda before: st.tuples(
        st.just(before), NODES | st.permutations(before) | NODES.map(lambda more: [*before, *_others(before, more)])
    )
)
"""Nodes before and after a change: any, in another order, or with more of them at the end."""


def _others(before: list[tuple[str, str]], nodes: list[tuple[str, str]]) -> list[tuple[str, str]]:
    taken = {word for node in before for word in node}
    return [node for node in nodes if not taken & set(node)]


def _in_place(before: list[tuple[str, str]], after: list[tuple[str, str]]) -> bool:
    """Every node is where it was, and none leads to the database of another one."""
    owners = {connection: name for name, connection in before}
    return [name for name, _ in after][: len(before)] == [name for name, _ in before] and all(
        owners.get(connection, name) == name for name, connection in after
    )


def test_nodes_in_use_stay_in_their_places(client: TestClient, shops: None) -> None:
    """Any change of the nodes: allowed without a subscription, and with one only if each node stays what it is."""

    @given(change=CHANGES)
    def check(change: tuple[list[tuple[str, str]], list[tuple[str, str]]]) -> None:
        before, after = change
        bodies = [
            partitioned(*(connection for _, connection in nodes), names=tuple(name for name, _ in nodes))
            for nodes in (before, after)
        ]
        assert client.put(f"{URL}/shops", json=bodies[0]).status_code == 200
        assert client.put(f"{SUBSCRIPTIONS}/s", json=BODY).status_code == 201
        plan = client.post(f"{URL}/shops/plans", json=bodies[1])
        put = client.put(f"{URL}/shops", json=bodies[1])
        assert plan.status_code == put.status_code == (200 if _in_place(before, after) else 409)
        if put.status_code == 409:
            assert (put.json()["code"], put.json()["errors"][0]["pointer"]) == ("nodes_fixed", "/settings/nodes")
            assert "'s'" in put.json()["detail"]
            assert client.get(f"{URL}/shops").json()["settings"] == bodies[0]["settings"]
        assert client.delete(f"{SUBSCRIPTIONS}/s").status_code == 204

    check()


@pytest.mark.usefixtures("shops")
def test_a_node_is_no_target_of_its_source(client: TestClient) -> None:
    answer = client.put(f"{SUBSCRIPTIONS}/s", json={**BODY, "target": "shop-2"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/target")
    assert "'shop-2' is a node of the source 'shops'" in answer.json()["detail"]
    assert client.put(f"{SUBSCRIPTIONS}/s", json={**BODY, "target": "shop-3"}).status_code == 201
    answer = client.put(f"{URL}/shops", json=partitioned("shop-1", "shop-2", "shop-3"))
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/settings/nodes")


@pytest.mark.usefixtures("shops")
def test_it_is_no_target(client: TestClient) -> None:
    answer = client.put(f"{SUBSCRIPTIONS}/s", json={**BODY, "source": "shop-3", "target": "shops"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/target")
    answer = client.post(f"{URL}/shops/checks", json={"role": "target"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/role")


@pytest.mark.parametrize(
    ("capture", "pointer"),
    [
        ({"kind": "postgres_log"}, "/capture/kind"),
        ({"kind": "triggers"}, "/capture/kind"),
        ({"kind": "query_diff"}, "/capture/kind"),
        ({"origin": "none"}, "/capture/origin"),
        ({"publication": "mine"}, "/capture/publication"),
        ({"slot": "mine"}, "/capture/slot"),
        ({"kind": "postgres_logs", "origin": "none"}, "/capture/origin"),
        ({"kind": "postgres_logs", "publication": "mine"}, "/capture/publication"),
        ({"kind": "postgres_logs", "slot": "mine"}, "/capture/slot"),
        ({"kind": "postgres_logs", "order": "any"}, "/capture/order"),
        ({"kind": "postgres_logs", "gid_pattern": "("}, "/capture/gid_pattern"),
        ({"kind": "postgres_logs", "own_prefix": "penstock"}, "/capture/own_prefix"),
        ({"kind": "postgres_logs", "guard": {"warn_share": 2}}, "/capture/guard/warn_share"),
    ],
)
@pytest.mark.usefixtures("shops")
def test_what_this_source_does_not_have_is_pointed_at(
    client: TestClient, capture: dict[str, Any], pointer: str
) -> None:
    answer = client.put(f"{SUBSCRIPTIONS}/s", json={**BODY, "capture": capture})
    assert (answer.status_code, [error["pointer"] for error in answer.json()["errors"]]) == (422, [pointer])
    assert answer.json()["remedy"]


@pytest.mark.usefixtures("subscribed")
def test_what_was_read_by_a_setting_keeps_it(client: TestClient, app: FastAPI) -> None:
    """Before an engine has it, everything can be changed."""
    given = {"kind": "postgres_logs", "gid_pattern": "^(?P<gtid>.+)@", "own_prefix": "gtid"}
    assert client.patch(f"{SUBSCRIPTIONS}/s", json={"capture": given}).status_code == 200
    with app.state.database.write() as session:
        row = session.exec(select(SubscriptionRow)).one()
        row.epoch = 1
        session.add(row)
    tag = client.get(f"{SUBSCRIPTIONS}/s").headers["ETag"]
    for change, pointer in (
        ({"gid_pattern": "^(?P<gtid>.+)#"}, "/capture/gid_pattern"),
        ({"gid_pattern": None}, "/capture/gid_pattern"),
        ({"own_prefix": None}, "/capture/own_prefix"),
    ):
        put = {**BODY, "capture": {name: value for name, value in {**given, **change}.items() if value is not None}}
        for answer in (
            client.patch(f"{SUBSCRIPTIONS}/s", json={"capture": change}),
            client.put(f"{SUBSCRIPTIONS}/s", json=put),
            client.post(f"{SUBSCRIPTIONS}/s/plans", json=put),
        ):
            assert (answer.status_code, answer.json()["code"]) == (409, "capture_setting_fixed")
            assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert client.get(f"{SUBSCRIPTIONS}/s").headers["ETag"] == tag
    changed = client.patch(f"{SUBSCRIPTIONS}/s", json={"capture": {"order": "strict", "slot_budget_bytes": 2**30}})
    assert changed.json()["capture"] | given | {"order": "strict"} == changed.json()["capture"]


@pytest.mark.usefixtures("subscribed")
def test_its_subscription_reads_transactions_at_whole_numbers(client: TestClient) -> None:
    found = client.get(f"{SUBSCRIPTIONS}/s").json()
    assert (found["consistency"], found["capture"]["kind"]) == ("transactions", "postgres_logs")
    answer = client.post(f"{SUBSCRIPTIONS}/s/freshness-waits", json={"position": "0/16B3748", "timeout_s": 0})
    assert answer.status_code == 422


@pytest.mark.usefixtures("shops")
def test_a_node_with_lost_secrets_is_named(client: TestClient, app: FastAPI) -> None:
    client.patch(f"{URL}/shops", json={"secrets": {"mask_key": None}})
    app.state.secret_box = SecretBox([Fernet.generate_key()])
    answer = client.get(f"{URL}/shops/tables")
    assert (answer.status_code, answer.json()["code"]) == (409, "secrets_unreadable")
    assert "'shop-1' of the node 'n1'" in answer.json()["detail"]


@pytest.mark.usefixtures("subscribed")
def test_a_node_that_is_gone_is_named(client: TestClient, app: FastAPI) -> None:
    """No request removes it; what has is not the server."""
    with app.state.database.write() as session:
        session.delete(require_connection(session, "shop-2"))
    answer = client.get(f"{URL}/shops/tables")
    assert (answer.status_code, answer.json()["code"]) == (409, "node_missing")
    assert "'shop-2' of the node 'n2' of 'shops'" in answer.json()["detail"]
    with app.state.database.write() as session:
        commands = initial_commands(session, app.state.secret_box, {"s": 1}, "x")
    assert [command.kind for command in commands] == ["sync"]
    found = client.get(f"{SUBSCRIPTIONS}/s").json()
    assert (found["state"], found["code"]) == ("failed", "node_missing")
