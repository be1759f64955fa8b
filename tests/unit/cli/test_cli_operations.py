"""Commands that change subscriptions, tables and connections, and those that show what happened."""

from __future__ import annotations

import json
from typing import Any

import pytest

from server.cli.exit_codes import ExitCode
from tests.fixtures.stand_in import Run, StandIn

TABLE = {"id": "t1", "schema": "public", "name": "orders", "state": "live", "reason": None}
_T = "/subscriptions/m/tables/t1"


@pytest.mark.parametrize(
    ("arguments", "method", "path", "body"),
    [
        (("subscriptions", "reload", "m"), "POST", "/subscriptions/m/reloads", {}),
        (("subscriptions", "pause", "m"), "PATCH", "/subscriptions/m", {"desired_state": "paused"}),
        (("subscriptions", "resume"), "PATCH", "/subscriptions/m", {"desired_state": "running"}),
        (("tables", "pause", "t1", "-s", "m"), "PATCH", _T, {"desired_state": "paused"}),
        (("tables", "resume", "public.orders", "-s", "m"), "PATCH", _T, {"desired_state": "running"}),
        (
            ("tables", "configure", "t1", "-s", "m", "--set", 'key=["id"]', "--set", "where=null", "--set", "a=b=c"),
            "PATCH",
            _T,
            {"key": ["id"], "where": None, "a": "b=c"},
        ),
        (("tables", "approve", "t1", "-s", "m", "--reason", "why"), "POST", f"{_T}/approvals", {"reason": "why"}),
        (
            ("tables", "add", "public.orders", "-s", "m", "--target", "mart.o", "--set", "insert_only=true"),
            "POST",
            "/subscriptions/m/tables",
            {
                "schema": "public",
                "name": "orders",
                "exact": True,
                "target": {"schema": "mart", "name": "o"},
                "insert_only": True,
            },
        ),
    ],
)
def test_a_command_sends_its_request(
    stand_in: StandIn, run: Run, arguments: tuple[str, ...], method: str, path: str, body: Any
) -> None:
    stand_in.replies["GET", "/subscriptions"] = (200, {"items": [{"name": "m"}]})
    stand_in.replies["GET", "/subscriptions/m/tables"] = (200, {"items": [TABLE]})
    stand_in.replies[method, path] = (200, {**TABLE, "id": "r1"})
    result = run(*arguments)
    assert result.exit_code == ExitCode.DONE, result.stderr
    assert stand_in.requests[-1][:3] == (method, f"/api/v1{path}", body)
    document = json.loads(run(*arguments, "--json").stdout)
    assert document["id"] == "r1"


@pytest.mark.parametrize(
    ("arguments", "path"),
    [(("subscriptions", "delete", "m"), "/subscriptions/m"), (("connections", "delete", "c"), "/connections/c")],
)
def test_a_deletion_is_confirmed(stand_in: StandIn, run: Run, arguments: tuple[str, ...], path: str) -> None:
    stand_in.replies["GET", path] = (200, {"name": "m"})
    stand_in.replies["DELETE", path] = (204, b"")
    refused = run(*arguments)
    assert refused.exit_code == ExitCode.USAGE
    assert "--yes" in refused.stderr
    assert [request[0] for request in stand_in.requests] == ["GET"]
    assert run(*arguments, "--yes").exit_code == ExitCode.DONE
    assert stand_in.requests[-1][0] == "DELETE"


@pytest.mark.parametrize(("answer", "code", "deleted"), [("y\n", ExitCode.DONE, 1), ("n\n", ExitCode.INTERRUPTED, 0)])
def test_a_terminal_is_asked(
    stand_in: StandIn, run: Run, monkeypatch: pytest.MonkeyPatch, answer: str, code: ExitCode, deleted: int
) -> None:
    stand_in.replies["GET", "/connections/c"] = (200, {"name": "c"})
    stand_in.replies["DELETE", "/connections/c"] = (204, b"")
    monkeypatch.setattr("server.cli.options.is_interactive", lambda: True)
    assert run("connections", "delete", "c", given=answer).exit_code == code
    assert sum(1 for request in stand_in.requests if request[0] == "DELETE") == deleted


def test_a_waiting_change_is_shown_and_not_approved_unseen(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["GET", _T] = (200, {**TABLE, "reason": "ALTER TABLE x"})
    result = run("tables", "approve", "t1", "-s", "m")
    assert result.exit_code == ExitCode.USAGE
    assert "ALTER TABLE x" in result.stderr
    assert [request[0] for request in stand_in.requests] == ["GET"]


def test_a_check_with_an_error_fails_and_shows_commands(stand_in: StandIn, run: Run) -> None:
    remedy = "PUT /connections/{name}/ddl-capture, as a superuser of the source."
    action = {"action": "ddl_capture.install", "arguments": {"connection": "c"}}
    finding = {"severity": "error", "code": "x", "what": "It is [so].", "remedy": remedy, "sql": ["GRANT a"]}
    answer = {"ok": False, "findings": [{**finding, "actions": [action]}]}
    stand_in.replies["POST", "/connections/c/checks"] = (200, answer)
    result = run("connections", "check", "c", "-t", "public.orders", "--role", "source")
    assert result.exit_code == ExitCode.DIFFERENT
    assert stand_in.requests[-1][2] == {"role": "source", "tables": [{"schema": "public", "name": "orders"}]}
    assert "'penstock ddl-capture install c', as a superuser" in result.stdout
    assert "It is [so]." in result.stdout
    assert json.loads(run("connections", "check", "c", "--json").stdout) == answer
    assert stand_in.requests[-1][2] == {}
    run("connections", "check", "c", "--publication", "theirs", "--slot", "their_slot")
    assert stand_in.requests[-1][2] == {"capture": {"publication": "theirs", "slot": "their_slot"}}
    run("connections", "check", "c", "--capture", "query_diff")
    assert stand_in.requests[-1][2] == {"capture": {"kind": "query_diff"}}
    declared = {"kind": "query_diff", "tables": {"public.totals": {"key": ["id"]}}}
    run("connections", "check", "c", "--capture", json.dumps(declared))
    assert stand_in.requests[-1][2] == {"capture": declared}
    assert run("connections", "check", "c", "--capture", "{").exit_code == ExitCode.USAGE


EVENT = {
    "id": "7",
    "at": "2026-05-04T10:00:00Z",
    "severity": "warning",
    "kind": "parked",
    "subscription": "m",
    "subject": "public.orders",
    "detail": "It is parked.",
    "remedy": "POST /subscriptions/{name}/tables/{table_id}/reloads copies the table again.",
    "actions": [{"action": "table.reload", "arguments": {"subscription": "m", "table": "public.orders"}}],
}


def test_events_are_printed_the_newest_last_with_commands(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["GET", "/events"] = (200, {"items": [{**EVENT, "id": "8", "detail": "Later."}, EVENT]})
    result = run("events", "-s", "m", "--severity", "warning")
    assert result.exit_code == 0
    assert result.stdout.index("It is parked.") < result.stdout.index("Later.")
    assert "'penstock tables reload public.orders -s m' copies the table again." in result.stdout
    assert "subscription=m&severity=warning" in stand_in.requests[-1][1]
    shown = json.loads(run("events", "--json", "--limit", "1").stdout)
    assert [item["id"] for item in shown["events"]] == ["8"]


def test_events_are_followed_from_the_newest_known_one(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["GET", "/events"] = (200, {"items": [EVENT]})
    other = {**EVENT, "id": "8", "kind": "other"}
    new = {**EVENT, "id": "9", "detail": "New."}
    text = "".join(f"event: event\ndata: {json.dumps(item)}\nid: {item['id']}\n\n" for item in (other, new))
    body = f': connected\n\nevent: changed\ndata: {{"subscription": "m"}}\n\n{text}'
    stand_in.replies["GET", "/events/stream"] = (200, body.encode())
    result = run("events", "--follow", "--json", "--kind", "parked")
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ["7", "9"]
    assert stand_in.headers["Last-Event-ID"] == "7"


def test_batches_engines_and_connections_are_listed(stand_in: StandIn, run: Run) -> None:
    batch = {"batch": 3, "committed_at": "t", "end": "0/1", "transactions": 2, "net_rows": 9, "mode": "batch"}
    batch |= {"path": "driver", "seconds": {"job": 0.5, "capture_age": 9.0}}
    engine = {"name": "e", "version": "1", "connected": False, "subscriptions": ["m"], "seen_at": "t"}
    connection = {"name": "c", "kind": "postgres", "settings": {"host": "h"}}
    table = {"schema": "public", "name": "orders", "key": ["id"], "rows_estimate": 5}
    table["problems"] = [{"severity": "info", "code": "view", "what": "It is a view.", "remedy": "None needed."}]
    stand_in.replies["GET", "/subscriptions/m/batches"] = (200, {"items": [batch, batch]})
    stand_in.replies["GET", "/engines"] = (200, {"items": [engine]})
    stand_in.replies["GET", "/connections"] = (200, {"items": [connection]})
    stand_in.replies["GET", "/connections/c/tables"] = (200, {"items": [table]})
    assert "500 ms" in run("batches", "-s", "m").stdout
    assert len(json.loads(run("batches", "-s", "m", "--limit", "1", "--json").stdout)["batches"]) == 1
    assert "not connected" in run("engines").stdout
    assert "host=h" in run("connections", "list").stdout
    shown = run("connections", "tables", "c", "--capture", "query_diff").stdout
    assert ("public.orders" in shown, "It is a view." in shown) == (True, True)
    assert "capture=query_diff" in stand_in.requests[-1][1]
