"""The table whose rows name a coordinator's own part: it has to be one of the subscription's, and to show the ids."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlmodel import select

from server.db.models.subscription import SubscriptionRow
from tests.server.conftest import PlayedEngine
from tests.server.test_partitioned_api import BODY, MART, SUBSCRIPTIONS, URL, partitioned, shop

S = f"{SUBSCRIPTIONS}/s"
CAPTURE = {"kind": "postgres_logs", "own_table": "public.global_transactions"}
ORDERS = {"schema": "public", "name": "orders"}
OWN = {"schema": "public", "name": "global_transactions"}
POINTERS = ["/capture/own_table"]


def declared(own: dict[str, Any] | None = OWN, **capture: Any) -> dict[str, Any]:
    return {**BODY, "tables": [ORDERS, *([own] if own else [])], "capture": {**CAPTURE, **capture}}


@pytest.fixture
def shops(client: TestClient) -> None:
    for number in (1, 2):
        assert client.put(f"{URL}/shop-{number}", json=shop(number)).status_code == 201
    for name in ("mart", "mart-2"):
        assert (
            client.put(f"{URL}/{name}", json={**MART, "settings": {"path": f"/data/{name}.duckdb"}}).status_code == 201
        )
    body = partitioned("shop-1", "shop-2", secrets={"mask_key": "hidden-key"})
    assert client.put(f"{URL}/shops", json=body).status_code == 201


@pytest.fixture
def subscribed(client: TestClient, shops: None) -> None:
    answer = client.put(S, json=declared())
    assert (answer.status_code, answer.json()["capture"]) == (201, answer.json()["capture"] | CAPTURE)


UNFIT = {
    "absent": (None, "is none of the subscription's tables"),
    "filtered": ({**OWN, "where": "id > 5"}, "has a condition"),
    "left out": ({**OWN, "exclude_columns": ["gtid"]}, "has the column gtid left out"),
    "not included": ({**OWN, "include_columns": ["id"]}, "has the column gtid left out"),
    "masked": ({**OWN, "mask": {"gtid": {"method": "hash"}}}, "has the column gtid masked"),
}


@pytest.mark.usefixtures("subscribed")
@pytest.mark.parametrize("case", UNFIT)
def test_a_table_that_does_not_show_the_ids_is_refused(client: TestClient, engine: PlayedEngine, case: str) -> None:
    """When it is created, changed, planned and checked; and nothing changes."""
    own, why = UNFIT[case]
    before, body = client.get(S).json(), declared(own)
    engine.answers["preflight"] = {"findings": []}
    answers = [
        client.put(f"{SUBSCRIPTIONS}/other", json={**body, "target": "mart-2"}),
        client.put(S, json=body),
        client.patch(S, json={"tables": body["tables"]}),
        client.post(f"{S}/plans", json=body),
        client.post(f"{URL}/shops/checks", json={"tables": body["tables"], "capture": body["capture"]}),
    ]
    for answer in answers:
        found = answer.json()
        assert (answer.status_code, found["code"]) == (422, "own_table_unfit")
        assert why in found["detail"]
        assert "public.global_transactions" in found["detail"]
        assert found["remedy"]
        assert [error["pointer"] for error in found["errors"]] == POINTERS
    assert client.get(S).json() == before
    assert client.get(f"{SUBSCRIPTIONS}/other").status_code == 404


@pytest.mark.usefixtures("shops")
def test_a_column_that_is_shown_may_have_neighbours_that_are_not(client: TestClient, engine: PlayedEngine) -> None:
    engine.answers["preflight"] = {"findings": []}
    own = {**OWN, "exclude_columns": ["note"], "mask": {"actor": {"method": "hash"}}, "rename": {"id": "no"}}
    assert client.put(S, json=declared({**own, "insert_only": True})).status_code == 201
    other = {**declared({**OWN, "exclude_columns": ["gtid"]}, own_column="id"), "target": "mart-2"}
    assert client.put(f"{SUBSCRIPTIONS}/other", json=other).status_code == 201
    checked = {"tables": [{"schema": "public", "name": "global_*"}], "capture": CAPTURE}
    assert client.post(f"{URL}/shops/checks", json=checked).status_code == 200
    assert client.post(f"{URL}/shops/checks", json={"capture": CAPTURE}).status_code == 200
    _, payload = engine.asked[-1]
    assert payload["capture"]["settings"] == {
        "order": "causal",
        "own_table": "public.global_transactions",
        "own_column": "gtid",
    }


@pytest.mark.usefixtures("subscribed")
def test_a_change_of_the_table_alone_cannot_hide_them(client: TestClient) -> None:
    tables = {table["name"]: table["id"] for table in client.get(f"{S}/tables").json()["items"]}
    own = f"{S}/tables/{tables['global_transactions']}"
    before = client.get(own).json()
    for answer in (
        client.delete(own),
        client.patch(own, json={"exclude_columns": ["gtid"]}),
        client.patch(own, json={"mask": {"gtid": {"method": "null"}}}),
        client.patch(own, json={"where": "id > 5"}),
        client.post(f"{own}/plans", json={"where": "id > 5"}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (422, "own_table_unfit")
        assert answer.json()["remedy"]
    assert client.get(own).json() == before
    assert client.patch(own, json={"exclude_columns": ["note"]}).status_code == 200
    assert client.delete(f"{S}/tables/{tables['orders']}").status_code == 204


@pytest.mark.usefixtures("subscribed")
def test_it_stays_once_an_engine_has_read_by_it(client: TestClient, app: Any) -> None:
    assert client.patch(S, json={"capture": {"own_column": "id"}}).status_code == 200
    assert client.patch(S, json={"capture": {"own_column": None}}).status_code == 200
    with app.state.database.write() as session:
        row = session.exec(select(SubscriptionRow)).one()
        row.epoch = 1
        session.add(row)
    for change, pointer in (
        ({"own_table": "public.orders"}, "/capture/own_table"),
        ({"own_table": None}, "/capture/own_table"),
        ({"own_column": "id"}, "/capture/own_column"),
        ({"own_table": None, "own_prefix": "gtid"}, "/capture/own_prefix"),
    ):
        answer = client.patch(S, json={"capture": change})
        assert (answer.status_code, answer.json()["code"]) == (409, "capture_setting_fixed")
        assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


@pytest.mark.usefixtures("shops")
@pytest.mark.parametrize("capture", [{"own_prefix": "gtid"}, {"own_table": "global_transactions"}])
def test_settings_that_contradict_each_other_are_refused(client: TestClient, capture: dict[str, Any]) -> None:
    answer = client.put(S, json=declared(**capture))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert answer.json()["errors"][0]["pointer"].startswith("/capture")
