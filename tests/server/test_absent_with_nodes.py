"""What a source of several nodes does not have is refused as the caller's error, with a remedy: nothing is ignored or fails later."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi.testclient import TestClient

from engine.control.problem import problem_of
from engine.model.fault import EngineFault
from engine.model.subscription import ConnectionSpec
from engine.sources.postgres_logs.source import PartitionedSource
from server.errors import ReportedProblem
from tests.server.conftest import PlayedEngine
from tests.server.test_partitioned_api import BODY, SUBSCRIPTIONS, URL, partitioned, shop

S = f"{SUBSCRIPTIONS}/s"
ORDERS = {"tables": [{"schema": "public", "name": "orders"}]}
INVALID, ABSENT = "invalid_request", "not_with_this_capture"


@dataclass(frozen=True)
class Asked:
    """A request, and the code and the invalid member with which it is refused. `body`: a subscription's members beyond those of BODY where
    the request is a PUT of one."""

    method: str
    path: str
    body: dict[str, Any] | None
    code: str
    pointer: str | None = None


def captured(**settings: Any) -> dict[str, Any]:
    return {"capture": {"kind": "postgres_logs", **settings}}


CASES = {
    "install DDL capture": Asked("PUT", f"{URL}/shops/ddl-capture", None, ABSENT),
    "show triggers": Asked("GET", f"{URL}/shops/change-triggers", None, ABSENT),
    "install triggers": Asked("PUT", f"{URL}/shops/change-triggers", ORDERS, ABSENT),
    "plan triggers": Asked("POST", f"{URL}/shops/change-triggers/plans", ORDERS, ABSENT),
    "remove triggers": Asked("DELETE", f"{URL}/shops/change-triggers", None, ABSENT),
    "begin a cycle": Asked("POST", f"{S}/cycles", None, "cycles_unsupported"),
    "list cycles": Asked("GET", f"{S}/cycles", None, "cycles_unsupported"),
    "advance sequences": Asked("POST", f"{S}/sequences", {}, "sequences_unsupported"),
    "wait for an LSN": Asked("POST", f"{S}/freshness-waits", {"position": "0/16B3748", "timeout_s": 0}, INVALID),
    "tables by queries": Asked("GET", f"{URL}/shops/tables?capture=query_diff", None, INVALID),
    "check queries": Asked("POST", f"{URL}/shops/checks", {"capture": {"kind": "query_diff"}}, INVALID, "/capture"),
    "check a publication": Asked("POST", f"{URL}/shops/checks", captured(publication="mine"), INVALID),
    "create with an origin": Asked("PUT", S, captured(origin="none"), INVALID, "/capture/origin"),
    "create with a publication": Asked("PUT", S, captured(publication="mine"), INVALID, "/capture/publication"),
    "create with a slot": Asked("PUT", S, captured(slot="mine"), INVALID, "/capture/slot"),
    "create with triggers": Asked("PUT", S, {"capture": {"kind": "triggers"}}, "capture_unsupported", "/capture/kind"),
    "create with queries": Asked("PUT", S, {"capture": {"kind": "query_diff"}}, "capture_unsupported", "/capture/kind"),
    "create with one log": Asked(
        "PUT", S, {"capture": {"kind": "postgres_log"}}, "capture_unsupported", "/capture/kind"
    ),
    "create with groups": Asked("PUT", S, {"apply": {"mode": "grouped"}}, "apply_mode_unsupported", "/apply/mode"),
    "plan transactions": Asked(
        "POST", f"{S}/plans", {**BODY, "apply": {"mode": "transactional"}}, "apply_mode_unsupported", "/apply/mode"
    ),
    "change to an origin": Asked("PATCH", S, {"capture": {"origin": "none"}}, INVALID, "/capture/origin"),
    "change to a publication": Asked("PATCH", S, {"capture": {"publication": "mine"}}, INVALID, "/capture/publication"),
    "change to a slot": Asked("PATCH", S, {"capture": {"slot": "mine"}}, INVALID, "/capture/slot"),
    "change to queries": Asked("PATCH", S, {"capture": {"kind": "query_diff"}}, "capture_unsupported", "/capture/kind"),
    "change to transactions": Asked(
        "PATCH", S, {"apply": {"mode": "transactional"}}, "apply_mode_unsupported", "/apply/mode"
    ),
    "as a target": Asked(
        "PUT", f"{SUBSCRIPTIONS}/other", {**BODY, "source": "shop-3", "target": "shops"}, INVALID, "/target"
    ),
}


def refused(call: Callable[[PartitionedSource], object]) -> ReportedProblem:
    """The problem with which the engine answers for such a source."""
    nodes = [{"name": name, "settings": {"database": "shop"}} for name in ("n1", "n2")]
    source = PartitionedSource(ConnectionSpec("shops", "partitioned", {"nodes": json.dumps(nodes)}))
    with pytest.raises(EngineFault) as caught:
        call(source)
    source.close()
    found = problem_of(caught.value)
    return ReportedProblem(found.status, found.code, found.detail, found.remedy)


@pytest.fixture
def subscribed(client: TestClient, engine: PlayedEngine) -> None:
    """The subscription `s` of two nodes, into PostgreSQL."""
    for number in (1, 2, 3):
        assert client.put(f"{URL}/shop-{number}", json=shop(number)).status_code == 201
    mart = {"kind": "postgres", "settings": {"host": "mart", "database": "mart", "user": "penstock"}}
    assert client.put(f"{URL}/mart", json=mart).status_code == 201
    assert client.put(f"{URL}/shops", json=partitioned("shop-1", "shop-2")).status_code == 201
    assert client.put(S, json=BODY).status_code == 201
    engine.answers["ddl_capture"] = refused(lambda source: source.ddl.install())
    engine.answers["change_triggers"] = refused(lambda source: source.triggers.status())


@pytest.mark.usefixtures("subscribed")
@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_with_a_remedy_and_changes_nothing(client: TestClient, name: str) -> None:
    case, before = CASES[name], client.get(S)
    body = {**BODY, **(case.body or {})} if case.method == "PUT" and case.path == S else case.body
    answer = client.request(case.method, case.path, json=body)
    found = answer.json()
    assert (answer.status_code, found["code"]) == (422, case.code)
    assert found["remedy"]
    assert found["detail"]
    if case.pointer is not None:
        assert [error["pointer"] for error in found["errors"]] == [case.pointer]
    assert client.get(S).json() == before.json()


@pytest.mark.usefixtures("subscribed")
def test_partitions_that_no_table_has_are_refused(client: TestClient, engine: PlayedEngine) -> None:
    engine.answers["partitions"] = {"partitions": []}
    (table,) = client.get(f"{S}/tables").json()["items"]
    answer = client.post(f"{S}/tables/{table['id']}/reloads", json={"partitions": ["public.orders_2026"]})
    assert (answer.status_code, answer.json()["code"]) == (409, "table_not_partitioned")
    assert answer.json()["remedy"]


@pytest.mark.usefixtures("subscribed")
def test_what_only_shows_that_it_is_not_there_is_answered(client: TestClient, engine: PlayedEngine) -> None:
    engine.answers["ddl_capture"] = {
        "installed": False,
        "version": None,
        "current": False,
        "install_sql": [],
        "remove_sql": [],
    }
    shown = client.get(f"{URL}/shops/ddl-capture").json()
    assert (shown["installed"], shown["install_sql"]) == (False, [])
    for apply in ({"mode": "auto"}, {"mode": "batch"}, {"visibility": "relaxed"}):
        assert client.patch(S, json={"apply": apply}).status_code == 200
