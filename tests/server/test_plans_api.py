"""Plans: what a PUT would do, which they never do; and `penstock apply` and `export`, which rest on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi import FastAPI
from fastapi.testclient import TestClient

from engine.model.table_state import TableStateKind
from server.alerts.schemas import AlertChannelPut
from server.cli import apply_command
from server.cli.exit_codes import ExitCode
from server.cli.manifest import DECLARED
from server.connections.schemas import ConnectionPut
from server.subscriptions.schemas import SubscriptionPut
from server.tables import reports
from tests.server.conftest import PlayedEngine, Run
from tests.server.test_subscriptions_api import BODY, ORDERS, URL, outbox

EVENTS = {"schema": "public", "name": "events"}
CONNECTIONS = "/api/v1/connections"

pytestmark = pytest.mark.usefixtures("connections")


def actions(plan: dict[str, Any]) -> list[tuple[str, str]]:
    return [(table["name"], table["action"]) for table in plan["tables"]]


def names(client: TestClient) -> list[str]:
    return [table["name"] for table in client.get(f"{URL}/s").json()["tables"]]


def test_a_plan_says_what_a_put_would_do_and_does_nothing(client: TestClient, app: FastAPI) -> None:
    new = client.post(f"{URL}/s/plans", json=BODY)
    assert (new.status_code, new.json()["result"], actions(new.json())) == (200, "created", [("orders", "added")])
    assert new.json()["etag"] is None
    assert client.get(f"{URL}/s").status_code == 404
    put = client.put(f"{URL}/s", json={**BODY, "tables": [ORDERS, EVENTS]})
    told = outbox(app)
    wanted = {**BODY, "tables": [{**ORDERS, "where": None, "priority": 3}, {**ORDERS, "name": "lines"}]}
    plan = client.post(f"{URL}/s/plans", json={**wanted, "desired_state": "paused"}).json()
    assert actions(plan) == [("events", "removed"), ("lines", "added"), ("orders", "changed")]
    assert plan["fields"] == [{"field": "desired_state", "before": "running", "after": "paused"}]
    assert (plan["result"], plan["etag"]) == ("changed", put.headers["ETag"])
    assert (names(client), outbox(app)) == (["events", "orders"], told)
    assert client.get(f"{URL}/s").headers["ETag"] == put.headers["ETag"]


def test_a_plan_is_refused_as_the_put_would_be(client: TestClient) -> None:
    for body in ({**BODY, "source": "nope"}, {**BODY, "tables": [ORDERS, ORDERS]}):
        refused, plan = client.put(f"{URL}/s", json=body), client.post(f"{URL}/s/plans", json=body)
        assert (plan.status_code, plan.json()["errors"]) == (refused.status_code, refused.json()["errors"])


def test_tables_that_are_left_out_stay_where_that_is_asked_for(client: TestClient, engine: PlayedEngine) -> None:
    engine.answers["discover"] = {"tables": [{"schema": "sales", "name": "a", "key": ["id"], "identity": "default"}]}
    client.put(f"{URL}/s", json={**BODY, "tables": [EVENTS, {"schema": "sales", "name": "*"}]})
    plan = client.post(f"{URL}/s/plans?keep_tables=true", json=BODY).json()
    assert actions(plan) == [("events", "kept"), ("orders", "added"), ("a", "kept")]
    answer = client.put(f"{URL}/s?keep_tables=true", json=BODY)
    assert names(client) == ["events", "orders", "*"]
    assert answer.json()["table_states"] == {"registered": 3}
    again = client.post(f"{URL}/s/plans?keep_tables=true", json=BODY).json()
    assert (again["result"], actions(again)) == ("unchanged", [("events", "kept"), ("a", "kept")])
    client.put(f"{URL}/s", json=BODY)
    assert names(client) == ["orders"]


@pytest.fixture
def live(client: TestClient, app: FastAPI) -> str:
    """The address of a live table."""
    client.put(f"{URL}/s", json=BODY)
    table: str = client.get(f"{URL}/s/tables").json()["items"][0]["id"]
    with app.state.database.write() as session:
        reports.set_state(session, table, TableStateKind.LIVE)
    return f"{URL}/s/tables/{table}"


def test_a_tables_plan_says_what_follows_and_does_nothing(client: TestClient, app: FastAPI, live: str) -> None:
    before, told = client.get(live), outbox(app)
    mapped = {"price": {"map_as": "text"}}
    plan = client.post(f"{live}/plans", json={"columns": mapped, "priority": 9, "desired_state": "running"}).json()
    assert plan["fields"] == [
        {"field": "priority", "before": before.json()["priority"], "after": 9, "effect": "at_once"},
        {"field": "columns", "before": before.json()["columns"], "after": mapped, "effect": "new_copy"},
    ]
    assert (plan["result"], plan["new_start"], plan["etag"]) == ("changed", False, before.headers["ETag"])
    assert (client.get(live).json(), outbox(app)) == (before.json(), told)
    assert client.post(f"{live}/plans", json={"mask": {"a": {"method": "null"}}}).json()["new_start"] is True
    assert client.post(f"{live}/plans", json={"priority": before.json()["priority"]}).json()["result"] == "unchanged"
    assert client.patch(live, json={"priority": 9}, headers={"If-Match": plan["etag"]}).status_code == 200
    assert client.patch(live, json={"priority": 8}, headers={"If-Match": plan["etag"]}).status_code == 412


def test_a_tables_plan_depends_on_the_policy_for_schema_changes(client: TestClient, live: str) -> None:
    client.patch(f"{URL}/s", json={"schema_changes": {"policy": "ask"}})
    (change,) = client.post(f"{live}/plans", json={"rename": {"a": "b"}}).json()["fields"]
    assert change["effect"] == "parks"


@pytest.mark.parametrize(
    "body", [{"where": "pg_sleep(1) is null"}, {"rename": {"a": "x", "b": "x"}}, {"key": []}, {"into_existing": True}]
)
def test_a_tables_plan_is_refused_as_the_patch_would_be(client: TestClient, live: str, body: dict[str, Any]) -> None:
    refused, plan = client.patch(live, json=body), client.post(f"{live}/plans", json=body)
    assert refused.status_code in {409, 422}
    assert (plan.status_code, plan.json()["errors"]) == (refused.status_code, refused.json()["errors"])


def test_the_command_shows_a_tables_plan(client: TestClient, run: Run, live: str) -> None:
    table = live.rsplit("/", 1)[1]
    shown = run("tables", "configure", table, "--set", 'mask={"a": {"method": "null"}}', "--plan")
    assert shown.exit_code == 0, shown.output
    assert "new_copy" in shown.output
    assert "The subscription's run starts again." in shown.output
    assert client.get(live).json()["mask"] == {}


def test_a_connections_plan_names_its_secrets_and_never_shows_them(client: TestClient) -> None:
    body = {
        "kind": "postgres",
        "settings": {"host": "h", "database": "d", "user": "u"},
        "secrets": {"password": "x1y2"},
    }
    new = client.post(f"{CONNECTIONS}/new/plans", json=body).json()
    assert (new["result"], new["fields"], new["secrets"], new["etag"]) == ("created", [], ["password"], None)
    assert client.get(f"{CONNECTIONS}/new").status_code == 404
    put = client.put(f"{CONNECTIONS}/new", json=body)
    assert client.post(f"{CONNECTIONS}/new/plans", json=body).json()["result"] == "unchanged"
    changed = client.post(
        f"{CONNECTIONS}/new/plans",
        json={**body, "settings": {**body["settings"], "host": "i"}, "secrets": {"password": "z"}},  # type: ignore[dict-item]
    )
    assert changed.json() == {
        "result": "changed",
        "fields": [{"field": "settings.host", "before": "h", "after": "i"}],
        "secrets": ["password"],
        "etag": put.headers["ETag"],
    }
    assert "x1y2" not in changed.text


def test_what_the_command_line_declares_is_what_put_takes() -> None:
    assert set(DECLARED["connections"]) | {"secrets"} == set(ConnectionPut.model_fields)
    assert set(DECLARED["subscriptions"]) == set(SubscriptionPut.model_fields)
    assert set(DECLARED["alert_channels"]) | {"secrets"} == set(AlertChannelPut.model_fields)


CHANNELS = "/api/v1/alert-channels"
WEBHOOK = {
    "kind": "webhook",
    "settings": {"url": "https://ops.test/hook"},
    "secrets": {"signing_key": "hidden-key-0123456"},
}
MAIL = {"host": "mail.test", "user": "u", "sender": "a@test", "recipients": ["b@test"]}


def test_an_alert_channels_plan_says_what_a_put_would_do_and_does_nothing(client: TestClient) -> None:
    url = f"{CHANNELS}/ops"
    new = client.post(f"{url}/plans", json=WEBHOOK).json()
    assert new == {"result": "created", "fields": [], "secrets": ["signing_key"], "etag": None}
    assert client.get(url).status_code == 404
    tag = client.put(url, json=WEBHOOK).headers["ETag"]
    same = {"kind": "webhook", "settings": WEBHOOK["settings"]}
    for body in (WEBHOOK, same):
        assert client.post(f"{url}/plans", json=body).json()["result"] == "unchanged"
    before = client.get(url)
    body = {**WEBHOOK, "causes": ["fault", "fault"], "secrets": {"signing_key": "other-key-012345678"}}
    plan = client.post(f"{url}/plans", json=body)
    assert plan.json() == {
        "result": "changed",
        "fields": [{"field": "causes", "before": [], "after": ["fault"]}],
        "secrets": ["signing_key"],
        "etag": tag,
    }
    assert "-key-" not in plan.text
    assert (client.get(url).json(), client.get(url).headers["ETag"]) == (before.json(), tag)
    assert client.put(url, json=body, headers={"If-Match": tag}).headers["ETag"] != tag
    assert client.put(url, json=WEBHOOK, headers={"If-Match": tag}).status_code == 412
    assert client.put(f"{CHANNELS}/none", json=WEBHOOK, headers={"If-Match": tag}).status_code == 412


def test_an_alert_channels_plan_names_settings_that_go(client: TestClient) -> None:
    url, mail = f"{CHANNELS}/mail", {"kind": "email", "settings": MAIL, "secrets": {"password": "p"}}
    client.put(url, json=mail)
    body = {"kind": "email", "settings": {**MAIL, "user": None}, "secrets": {"password": None}}
    plan = client.post(f"{url}/plans", json=body).json()
    assert plan["fields"] == [{"field": "settings.user", "before": "u", "after": None}]
    assert plan["secrets"] == ["password"]
    client.put(url, json=body)
    assert client.post(f"{url}/plans", json=body).json()["result"] == "unchanged"


@pytest.mark.parametrize(
    "body", [{"kind": "slack"}, {**WEBHOOK, "settings": {"url": "ftp://x"}}, {**WEBHOOK, "kind": "email"}]
)
def test_an_alert_channels_plan_is_refused_as_the_put_would_be(client: TestClient, body: dict[str, Any]) -> None:
    client.put(f"{CHANNELS}/ops", json=WEBHOOK)
    refused, plan = client.put(f"{CHANNELS}/ops", json=body), client.post(f"{CHANNELS}/ops/plans", json=body)
    assert refused.status_code in {409, 422}
    assert (plan.status_code, plan.json()["code"]) == (refused.status_code, refused.json()["code"])
    assert plan.json().get("errors") == refused.json().get("errors")


def test_apply_makes_alert_channels_with_secrets_of_the_environment(
    client: TestClient, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
alert_channels:
  ops:
    kind: webhook
    settings: {url: "https://ops.test/hook"}
    secrets: {signing_key: "${OPS_KEY}"}
    causes: [fault]
"""
    monkeypatch.delenv("OPS_KEY", raising=False)
    assert "needs the environment variable OPS_KEY" in run("apply", "-", stdin=text).output
    monkeypatch.setenv("OPS_KEY", "hidden-key-0123456")
    dry = run("apply", "-", "--dry-run", stdin=text)
    assert "created alert channel ops" in dry.stdout
    assert client.get(f"{CHANNELS}/ops").status_code == 404
    made = run("apply", "-", stdin=text)
    assert (made.exit_code, "hidden" in made.output) == (0, False)
    assert client.get(f"{CHANNELS}/ops").json()["causes"] == ["fault"]
    (again,) = json.loads(run("apply", "-", "--json", stdin=text).stdout)["results"]
    assert (again["kind"], again["result"], again["fields"]) == ("alert_channel", "unchanged", [])


def test_apply_does_not_replace_an_alert_channel_that_changed_since_its_plan(
    client: TestClient, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.put(f"{CHANNELS}/ops", json=WEBHOOK)
    plans_of = apply_command.plans_of

    def overtaken(*given: Any, **more: Any) -> Any:
        plans = plans_of(*given, **more)
        client.put(f"{CHANNELS}/ops", json={**WEBHOOK, "causes": ["slot_risk"]})
        return plans

    monkeypatch.setattr(apply_command, "plans_of", overtaken)
    text = json.dumps({"alert_channels": {"ops": {**WEBHOOK, "repeat_seconds": 600}}})
    assert run("apply", "-", stdin=text).exit_code == ExitCode.REFUSED
    assert client.get(f"{CHANNELS}/ops").json()["repeat_seconds"] == 14_400


def file_of(tables: list[dict[str, Any]], **more: Any) -> str:
    return json.dumps({"subscriptions": {"s": {**BODY, "tables": tables, **more}}})


def test_apply_removes_tables_only_when_told_to_prune(client: TestClient, run: Run) -> None:
    client.put(f"{URL}/s", json={**BODY, "tables": [ORDERS, EVENTS]})
    shown = run("apply", "-", stdin=file_of([ORDERS]))
    assert shown.exit_code == 0, shown.output
    assert "tables kept that the file leaves out: 1; --prune removes them" in shown.stdout
    assert names(client) == ["events", "orders"]
    dry = run("apply", "-", "--prune", "--dry-run", stdin=file_of([ORDERS]))
    assert "removed table public.events; its rows stay on the target" in dry.stdout
    assert "Nothing was changed" in dry.stdout
    assert names(client) == ["events", "orders"]
    assert run("apply", "-", "--prune", stdin=file_of([ORDERS])).exit_code == 0
    assert names(client) == ["orders"]


def test_apply_plans_a_subscription_whose_connections_are_new(client: TestClient, run: Run) -> None:
    text = """
connections:
  lake: {kind: duckdb, settings: {path: lake.duckdb}}
subscriptions:
  n: {source: shop, target: lake, tables: [{schema: public, name: orders}]}
"""
    dry = json.loads(run("apply", "-", "--dry-run", "--json", stdin=text).stdout)
    assert [(r["name"], r["result"]) for r in dry["results"]] == [("lake", "created"), ("n", "created")]
    assert client.get(f"{URL}/n").status_code == 404
    assert run("apply", "-", stdin=text).exit_code == 0
    assert client.get(f"{URL}/n").json()["table_states"] == {"registered": 1}


def test_apply_refuses_what_changed_since_its_plan(
    client: TestClient, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.put(f"{URL}/s", json={**BODY, "tables": [ORDERS, EVENTS]})
    plans_of = apply_command.plans_of

    def overtaken(*given: Any, **more: Any) -> Any:
        plans = plans_of(*given, **more)
        client.put(f"{URL}/s", json={**BODY, "tables": [ORDERS, EVENTS, {**ORDERS, "name": "lines"}]})
        return plans

    monkeypatch.setattr(apply_command, "plans_of", overtaken)
    refused = run("apply", "-", "--prune", stdin=file_of([ORDERS]))
    assert refused.exit_code == ExitCode.REFUSED
    assert names(client) == ["events", "lines", "orders"]


def test_what_is_exported_can_be_applied_and_changes_nothing(
    client: TestClient, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client.put(
        f"{CONNECTIONS}/2.db",
        json={
            "kind": "postgres",
            "settings": {"host": "${h}", "database": "d", "user": "u"},
            "secrets": {"password": "p"},
        },
    )
    tables = [{**ORDERS, "key": ["id"], "columns": {"n": {"map_as": "text"}}, "target": {"name": "o"}}, EVENTS]
    client.put(f"{URL}/s", json={**BODY, "tables": tables, "batch": {"max_age_ms": 700}, "desired_state": "paused"})
    client.put(f"{CHANNELS}/2.db", json={"kind": "email", "settings": MAIL, "secrets": {"password": "q"}})
    client.put(f"{CHANNELS}/ops", json={**WEBHOOK, "causes": ["fault"], "repeat_seconds": 600})
    exported = run("export")
    assert exported.exit_code == 0, exported.output
    document = yaml.safe_load(exported.stdout)
    assert document["connections"]["2.db"]["secrets"] == {"password": "${_2_DB_PASSWORD}"}
    assert document["subscriptions"]["s"]["batch"] == {"max_age_ms": 700}
    assert document["alert_channels"]["2.db"]["secrets"] == {"password": "${ALERT_2_DB_PASSWORD}"}
    assert document["alert_channels"]["ops"] == {
        "kind": "webhook",
        "settings": WEBHOOK["settings"],
        "causes": ["fault"],
        "repeat_seconds": 600,
        "secrets": {"signing_key": "${ALERT_OPS_SIGNING_KEY}"},
    }
    monkeypatch.setenv("ALERT_2_DB_PASSWORD", "q")
    monkeypatch.setenv("ALERT_OPS_SIGNING_KEY", "hidden-key-0123456")
    monkeypatch.setenv("_2_DB_PASSWORD", "p")
    for name, body in document["connections"].items():
        for secret in body.get("secrets", {}):
            monkeypatch.setenv(f"{name.upper().replace('.', '_')}_{secret.upper()}", "secret")
    file = tmp_path / "all.yaml"
    file.write_text(exported.stdout)
    planned = json.loads(run("apply", str(file), "--prune", "--dry-run", "--json").stdout)["results"]
    changes = [(result["name"], result["changes"], result.get("tables", [])) for result in planned]
    assert [change for change in changes if change[1] or change[2]] == []
    assert client.get(f"{CONNECTIONS}/2.db").json()["settings"]["host"] == "${h}"
    assert json.loads(run("export", "--json").stdout) == document
