"""The commands against a small fake server: what they send, print, and exit with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from server.cli.exit_codes import ExitCode
from tests.fixtures.stand_in import Broken, Run, StandIn, a_problem

_SUBSCRIPTIONS = (200, {"items": [{"name": "mart", "source": "a", "target": "b", "state": "running"}]})


def test_status_shows_reasons_and_follows_pages(stand_in: StandIn, run: Run) -> None:
    health = {"status": "failed", "word": "failed", "reason": "It [broke]", "remedy": "Mend it"}
    failed = {"name": "x", "source": "a", "target": "b", "state": "failed", "health": health}
    pages = iter([(200, {"items": [failed], "next_page_token": "p2"}), _SUBSCRIPTIONS])
    stand_in.replies["GET", "/subscriptions"] = lambda _: next(pages)
    result = run("status")
    assert result.exit_code == 0
    assert "mart" in result.stdout
    assert "It [broke]" in result.stderr
    assert "Mend it" in result.stderr
    assert stand_in.requests[1][1].endswith("?page_token=p2")


def test_the_ledger_is_printed_as_a_table_or_as_csv(stand_in: StandIn, run: Run) -> None:
    counts = dict.fromkeys(("retained", "filtered", "quarantined", "rolled_back", "known", "held", "parked"), 0)
    line = {"batch": 7, "epoch": 1, "end": "0/50", "committed_at": "2026-01-01T00:00:00Z", "table_id": "t1"}
    lines = [{**line, "captured": 5, "applied": 4, "netted": 1, **counts}]
    stand_in.replies["GET", "/subscriptions"] = _SUBSCRIPTIONS
    stand_in.replies["GET", "/subscriptions/mart/ledger"] = (200, {"lines": lines})
    table = {"id": "t1", "schema": "public", "name": "orders"}
    stand_in.replies["GET", "/subscriptions/mart/tables"] = (200, {"items": [table]})
    shown = run("ledger", "--batches", "3")
    assert shown.exit_code == 0, shown.output
    assert "public.orders" in shown.stdout
    assert "parked" not in shown.stdout
    assert any(request[1].endswith("/ledger?batches=3") for request in stand_in.requests)
    exported = run("ledger", "--csv").stdout.splitlines()
    assert exported[0].startswith("batch,epoch,end,committed_at,table_id,captured,retained,applied")
    assert exported[1:] == ["7,1,0/50,2026-01-01T00:00:00Z,t1,5,0,4,1,0,0,0,0,0,0"]
    assert json.loads(run("ledger", "--json").stdout)["lines"] == lines


def test_an_explained_lag_is_printed_with_evidence_and_remedy(stand_in: StandIn, run: Run) -> None:
    cause = {"cause": "target_lock", "share_ms": 900, "share": 0.9, "explanation": "A [lock].", "remedy": "End it."}
    causes = [{**cause, "evidence": {"pid": 7}}]
    stand_in.replies["GET", "/subscriptions"] = _SUBSCRIPTIONS
    explanation = {"lag_ms": 1000, "commit_lag_ms": 500, "causes": causes}
    stand_in.replies["GET", "/subscriptions/mart/lag/explanation"] = (200, explanation)
    shown = run("lag", "explain")
    assert shown.exit_code == 0, shown.output
    for text in ("target_lock", "90%", "A [lock]. (pid: 7)", "End it."):
        assert text in shown.stdout
    assert json.loads(run("lag", "explain", "--json").stdout) == {"subscription": "mart", **explanation}


def test_status_says_what_the_server_judged_and_not_the_state(stand_in: StandIn, run: Run) -> None:
    why = "No engine is connected: whether changes are applied is not known."
    health = {"status": "unknown", "word": "no_engine", "reason": why, "remedy": "Start one."}
    gone = {"name": "x", "source": "a", "target": "b", "state": "running", "health": health}
    well = {**gone, "name": "y", "health": {"status": "running", "word": "running", "reason": "All is well."}}
    stand_in.replies["GET", "/subscriptions"] = (200, {"items": [gone, well]})
    result = run("status")
    assert "no engine" in result.stdout
    assert why in result.stderr
    assert "All is well" not in result.stderr


def test_a_live_table_that_is_not_followed_is_not_called_live(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["GET", "/subscriptions"] = _SUBSCRIPTIONS
    common = {"schema": "public", "state": "live", "copied": {}}
    followed = {**common, "name": "a", "id": "t1", "health": {"status": "running", "following": True}}
    left = {**common, "name": "b", "id": "t2", "health": {"status": "unknown", "following": False}}
    stand_in.replies["GET", "/subscriptions/mart/tables"] = (200, {"items": [followed, left]})
    lines = run("tables").stdout.splitlines()
    assert ["not followed" in line for line in lines if "public." in line] == [False, True]


def test_token_comes_from_option_environment_or_home(
    stand_in: StandIn, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in.replies["GET", "/subscriptions"] = _SUBSCRIPTIONS
    (tmp_path / "admin.token").write_text("from-file\n")
    run("status")
    monkeypatch.setenv("PENSTOCK_TOKEN", "from-environment")
    run("status")
    run("status", "--token", "from-option")
    sent = [request[3] for request in stand_in.requests]
    assert sent == ["Bearer from-file", "Bearer from-environment", "Bearer from-option"]


def test_no_server_is_said_kindly(run: Run) -> None:
    result = run("status", "--json", url="http://127.0.0.1:9")
    assert result.exit_code == ExitCode.NO_SERVER
    assert json.loads(result.stdout)["code"] == "no_server"
    assert "penstock up" in result.stderr


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (504, "freshness_timeout", ExitCode.TIMEOUT),
        (409, "freshness_unreachable", ExitCode.UNREACHABLE),
        (503, "freshness_unavailable", ExitCode.PIPELINE),
        (422, "invalid_request", ExitCode.REFUSED),
        (401, "unauthenticated", ExitCode.REFUSED),
        (503, "engine_unavailable", ExitCode.PIPELINE),
    ],
)
def test_problem_becomes_an_exit_code(stand_in: StandIn, run: Run, status: int, code: str, exit_code: ExitCode) -> None:
    problem = a_problem(status, code, errors=[{"pointer": "/position", "detail": "not a position"}])
    stand_in.replies["POST", "/subscriptions/mart/freshness-waits"] = (status, problem)
    result = run("wait", "0/1", "-s", "mart", "--json")
    assert result.exit_code == exit_code
    assert json.loads(result.stdout) == problem
    for text in ("A title", "What happened [here].", "/position", "Do this.", "trace abc"):
        assert text in result.stderr


_TABLE = {"id": "t1", "schema": "public", "name": "orders", "target": {"schema": "p", "name": "o"}, "state": "live"}


def test_tables_lists_what_there_is(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["GET", "/subscriptions"] = _SUBSCRIPTIONS
    stand_in.replies["GET", "/subscriptions/mart/tables"] = (200, {"items": [_TABLE]})
    shown = run("tables")
    assert shown.exit_code == 0
    assert "public.orders" in shown.stdout
    assert json.loads(run("tables", "--json").stdout) == {"subscription": "mart", "tables": [_TABLE]}


@pytest.mark.parametrize(("given", "wanted"), [([], "keep"), (["--drop-target"], "drop")])
def test_tables_remove(stand_in: StandIn, run: Run, given: list[str], wanted: str) -> None:
    stand_in.replies["GET", "/subscriptions/mart/tables"] = (200, {"items": [_TABLE]})
    stand_in.replies["GET", "/subscriptions/mart/tables/t1"] = (200, _TABLE)
    stand_in.replies["DELETE", "/subscriptions/mart/tables/t1"] = (200, {})
    for name in ("public.orders", "t1"):
        result = run("tables", "remove", name, "-s", "mart", *given)
        assert result.exit_code == 0, result.output
        assert "Removed public.orders; p.o on the target" in result.stdout
        deleted = [request for request in stand_in.requests if request[0] == "DELETE"]
        assert deleted[-1][1].endswith(f"/t1?target_table={wanted}")


def test_tables_shared_lists_the_members_of_each(stand_in: StandIn, run: Run) -> None:
    member = {"subscription": "eu", "source_value": "[eu]", "target": {"schema": "m", "name": "orders__eu"}}
    shared = {"schema": "m", "name": "orders", "source_column": "source", "members": [{**member, "state": "live"}]}
    stand_in.replies["GET", "/connections/mart/shared-tables"] = (200, {"items": [shared]})
    shown = run("tables", "shared", "mart").stdout
    for text in ("m.orders", "source = [eu]", "m.orders__eu", "live"):
        assert text in shown
    assert json.loads(run("tables", "shared", "mart", "--json").stdout) == {"target": "mart", "shared_tables": [shared]}


def test_tables_remove_tells_where_the_rows_are_still_shown(stand_in: StandIn, run: Run) -> None:
    table = {
        **_TABLE,
        "target": {"schema": "m", "name": "orders__eu"},
        "shared_into": {"schema": "m", "name": "orders"},
    }
    stand_in.replies["GET", "/subscriptions/mart/tables"] = (200, {"items": [table]})
    stand_in.replies["GET", "/subscriptions/mart/tables/t1"] = (200, table)
    stand_in.replies["DELETE", "/subscriptions/mart/tables/t1"] = (204, None)
    kept, dropped = (run("tables", "remove", "public.orders", "-s", "mart", *more) for more in ((), ("--drop-target",)))
    assert "m.orders still shows its rows" in " ".join(kept.stdout.split())
    assert "still shows" not in dropped.stdout


@pytest.mark.parametrize(
    ("given", "body", "told"),
    [
        ([], {}, "public.orders is copied again (reload l1)"),
        (["--partition", "p.a", "--partition", "p.b"], {"partitions": ["p.a", "p.b"]}, "p.a, p.b of public.orders is"),
        (["--changed"], {"partitions": "changed"}, "Every differing partition of public.orders is copied again"),
    ],
)
def test_tables_reload(stand_in: StandIn, run: Run, given: list[str], body: dict[str, object], told: str) -> None:
    stand_in.replies["GET", "/subscriptions/mart/tables"] = (200, {"items": [_TABLE]})
    stand_in.replies["POST", "/subscriptions/mart/tables/t1/reloads"] = (202, {"id": "l1", "state": "queued"})
    assert told in run("tables", "reload", "public.orders", "-s", "mart", *given).stdout.replace("\n", " ")
    posted = [request for request in stand_in.requests if request[0] == "POST"]
    assert posted[-1][2] == body


def test_tables_reload_of_named_and_of_differing_partitions_at_once(stand_in: StandIn, run: Run) -> None:
    refused = run("tables", "reload", "t1", "-s", "mart", "--changed", "--partition", "p.a")
    assert refused.exit_code != 0
    assert "not both" in refused.stderr.replace("\n", " ")
    assert not stand_in.requests


def test_tables_partitions(stand_in: StandIn, run: Run) -> None:
    listed = {
        "name": "p.a",
        "bound": "DEFAULT",
        "generation": 7,
        "reason": "asked",
        "loaded_at": None,
        "obstacle": None,
    }
    stand_in.replies["GET", "/subscriptions/mart/tables/t1/partitions"] = (200, {"partitions": [listed]})
    shown = run("tables", "partitions", "t1", "-s", "mart").stdout
    assert all(word in shown for word in ("p.a", "DEFAULT", "7", "asked"))
    assert json.loads(run("tables", "partitions", "t1", "-s", "mart", "--json").stdout) == {"partitions": [listed]}


def test_tables_retry(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["GET", "/subscriptions/mart/tables"] = (200, {"items": [_TABLE]})
    stand_in.replies["POST", "/subscriptions/mart/tables/t1/retries"] = (202, {"id": "l1", "state": "queued"})
    assert "public.orders is copied again (reload l1)" in run("tables", "retry", "public.orders", "-s", "mart").stdout
    problem = a_problem(409, "cause_remains")
    stand_in.replies["POST", "/subscriptions/mart/tables/t1/retries"] = (409, problem)
    refused = run("tables", "retry", "t1", "-s", "mart")
    assert refused.exit_code == ExitCode.REFUSED
    assert "What happened [here]." in refused.stderr
    assert "Do this." in refused.stderr


def test_refused_rows_are_listed_tried_again_and_skipped(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["GET", "/subscriptions/mart/tables"] = (200, {"items": [_TABLE]})
    path = "/subscriptions/mart/tables/t1/refused-rows"
    cause = {"code": "row_refused", "detail": "the target refused a row (SQLSTATE 23514)", "sqlstate": "23514"}
    item = {"id": "r1", "state": "set_aside", "operation": "insert", "key": ["7", None], "values": [], "cause": cause}
    stand_in.replies["GET", path] = (200, {"items": [item]})
    shown = run("refused", "list", "public.orders", "-s", "mart").stdout
    assert all(word in shown for word in ("set_aside", "insert", "7, NULL", "23514", "r1"))
    assert json.loads(run("refused", "list", "t1", "-s", "mart", "--json").stdout) == {"refused_rows": [item]}
    outcome = {"done": ["r1"], "rows_set_aside": 2}
    stand_in.replies["POST", f"{path}/retries"] = (200, outcome)
    assert "1 rows are in the table; 2 are in quarantine." in run("refused", "retry", "t1", "-s", "mart").stdout
    stand_in.replies["POST", f"{path}/r1/skips"] = (200, outcome)
    said = run("refused", "skip", "t1", "--row", "r1", "-s", "mart").stdout
    assert "1 rows are skipped; 2 are in quarantine." in said


def test_tables_remove_of_one_that_is_not_there(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["GET", "/subscriptions/mart/tables"] = (200, {"items": []})
    result = run("tables", "remove", "public.nope", "-s", "mart")
    assert result.exit_code != 0
    assert "'mart' has no table 'public.nope'" in result.stderr


def test_wait_sends_position_tables_and_timeout(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["GET", "/subscriptions"] = _SUBSCRIPTIONS
    answer = {"id": "w1", "status": "satisfied", "position": "0/5", "applied": "0/9", "waited_ms": 12.0}
    stand_in.replies["POST", "/subscriptions/mart/freshness-waits"] = (200, answer)
    result = run("wait", "0/5", "-t", "orders", "-t", '"a.b".c', "--timeout", "1500ms")
    assert result.exit_code == 0
    assert "0/5" in result.stdout
    assert stand_in.requests[-1][2] == {
        "timeout_ms": 1500,
        "position": "0/5",
        "tables": [{"schema": "public", "name": "orders"}, {"schema": "a.b", "name": "c"}],
    }


def test_wait_for_now_sends_no_position(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["POST", "/subscriptions/mart/freshness-waits"] = (200, {"status": "satisfied"})
    assert run("wait", "-s", "mart", "--json").exit_code == 0
    assert stand_in.requests[-1][2] == {"timeout_ms": 30_000}


@pytest.mark.parametrize(
    "arguments", [("wait", "--timeout", "soon", "-s", "m"), ("tables",), ("query", "x", "--max-rows", "0")]
)
def test_wrong_usage(stand_in: StandIn, run: Run, arguments: tuple[str, ...]) -> None:
    stand_in.replies["GET", "/subscriptions"] = (200, {"items": []})
    assert run(*arguments).exit_code == ExitCode.USAGE


def test_query_prints_rows_as_they_are(stand_in: StandIn, run: Run) -> None:
    answer = {
        "columns": [{"name": "[n]", "type": "INTEGER"}],
        "rows": [["[red]x"], [None]],
        "position": "0/1",
        "ran_on": "target",
    }
    stand_in.replies["POST", "/subscriptions/m/queries"] = (200, answer)
    result = run("query", "select 1", "-s", "m", "--fresh", "latest", "--timeout", "2s")
    assert "[n]" in result.stdout
    assert "[red]x" in result.stdout
    freshness = {"mode": "latest", "timeout_ms": 2000}
    assert stand_in.requests[-1][2] == {"sql": "select 1", "freshness": freshness, "timeout_ms": 30_000}


def test_parameters_of_a_query_are_sent_apart_from_its_text(stand_in: StandIn, run: Run) -> None:
    answer = {"columns": [], "rows": [], "position": "0/1", "ran_on": "target"}
    stand_in.replies["POST", "/subscriptions/m/queries"] = (200, answer)
    assert run("query", "select $1, $2", "-s", "m", "--param", "4'2", "--param", "").exit_code == ExitCode.DONE
    body = stand_in.requests[-1][2]
    assert (body["sql"], body["parameters"]) == ("select $1, $2", ["4'2", ""])


@pytest.mark.parametrize("form", ["csv", "arrow", "parquet"])
def test_an_export_that_breaks_off_fails_and_leaves_no_file(
    stand_in: StandIn, run: Run, tmp_path: Path, form: str
) -> None:
    stand_in.replies["POST", "/subscriptions/m/queries"] = (200, Broken(b"a,b\r\n1,2\r\n"))
    printed = run("query", "select 1", "-s", "m", "--format", form)
    assert printed.exit_code == ExitCode.PIPELINE
    assert "is not all" in printed.stderr
    place = tmp_path / "rows"
    place.write_text("older")
    assert run("query", "select 1", "-s", "m", "--format", form, "-o", str(place)).exit_code == ExitCode.PIPELINE
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"rows": "older"}
    stand_in.replies["POST", "/subscriptions/m/queries"] = (422, a_problem(422, "answer_cut"))
    assert run("query", "select 1", "-s", "m", "--format", form, "--max-rows", "1").exit_code == ExitCode.REFUSED
    stand_in.replies["POST", "/subscriptions/m/queries"] = (200, b"a\r\n")
    assert run("query", "select 1", "-s", "m", "--format", form, "-o", str(place), "--time-limit", "5m").exit_code == 0
    assert stand_in.requests[-1][2]["timeout_ms"] == 300_000
    assert place.read_bytes() == b"a\r\n"


@pytest.mark.parametrize(
    ("form", "accept"),
    [("arrow", "application/vnd.apache.arrow.stream"), ("parquet", "application/vnd.apache.parquet")],
)
def test_bytes_do_not_go_to_a_terminal(
    stand_in: StandIn, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, accept: str
) -> None:
    stand_in.replies["POST", "/subscriptions/m/queries"] = (200, b"PAR1")
    monkeypatch.setattr("server.cli.data_commands.prints_to_terminal", lambda: True)
    refused = run("query", "select 1", "-s", "m", "--format", form)
    assert refused.exit_code == ExitCode.USAGE
    assert f"{form.capitalize()} is binary; name a file with --output" in refused.stderr
    assert not stand_in.requests
    place = tmp_path / "rows.parquet"
    assert run("query", "select 1", "-s", "m", "--format", form, "--output", str(place)).exit_code == ExitCode.DONE
    assert place.read_bytes() == b"PAR1"
    assert stand_in.headers["Accept"] == accept


@pytest.mark.parametrize("arguments", [(), ("--format", "json"), ("--format", "csv", "--json")])
def test_a_file_is_not_promised_for_what_is_printed(
    stand_in: StandIn, run: Run, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    refused = run("query", "select 1", "-s", "m", "--output", str(tmp_path / "rows"), *arguments)
    assert refused.exit_code == ExitCode.USAGE
    assert "--output is for --format csv, arrow and parquet" in refused.stderr
    assert not stand_in.requests


def test_sequences_are_shown_and_the_exit_code_tells_whether_all_stand_right(stand_in: StandIn, run: Run) -> None:
    row = {"schema": "public", "name": "t", "column": "[id]", "source_sequence": {"schema": "public", "name": "s"}}
    values = {"source_value": {"last_value": 700, "is_called": True}, "target_sequence": {"schema": "x", "name": "y"}}
    moved = {"value_before": {"last_value": 1, "is_called": False}, "value_after": values["source_value"]}
    good = row | values | moved | {"outcome": "advanced", "remedy": None}
    none = {"target_sequence": None, "value_before": None, "value_after": None}
    bare = good | none | {"outcome": "no_sequence_on_target", "remedy": "ALTER it."}
    stand_in.replies["POST", "/subscriptions/m/sequences"] = (200, {"complete": False, "sequences": [good, bare]})
    shown = run("sequences", "-s", "m", "-t", "t", "--margin", "5")
    assert shown.exit_code == ExitCode.DIFFERENT
    for text in ("[id]", "public.s", "700", "1 (next)", "x.y", "advanced", "–"):
        assert text in shown.stdout
    assert "no_sequence_on_target" in shown.stderr
    assert "ALTER it." in shown.stderr
    assert stand_in.requests[-1][2] == {"margin": 5, "tables": [{"schema": "public", "name": "t"}]}
    stand_in.replies["POST", "/subscriptions/m/sequences"] = (200, {"complete": True, "sequences": [good]})
    assert run("sequences", "-s", "m", "--json").exit_code == 0


def test_ddl_capture_shows_what_it_would_run_and_says_what_is_there(stand_in: StandIn, run: Run) -> None:
    absent = {
        "installed": False,
        "version": None,
        "current": False,
        "install_sql": ["CREATE [x]"],
        "remove_sql": ["DROP"],
    }
    present = absent | {"installed": True, "version": 1, "current": True}
    stand_in.replies["GET", "/connections/shop/ddl-capture"] = (200, absent)
    shown = run("ddl-capture", "show", "shop").stdout
    assert "not installed" in shown
    assert "BEGIN;\nCREATE [x];\nCOMMIT;" in shown
    assert "DROP" not in shown
    stand_in.replies["PUT", "/connections/shop/ddl-capture"] = (200, present)
    assert "installed, version 1" in run("ddl-capture", "install", "shop").stdout
    stand_in.replies["DELETE", "/connections/shop/ddl-capture"] = (200, absent)
    assert "not installed" in run("ddl-capture", "remove", "shop").stdout
    stand_in.replies["GET", "/connections/shop/ddl-capture"] = (200, present | {"current": False})
    outdated = run("ddl-capture", "show", "shop").stdout
    assert "outdated" in outdated
    assert "CREATE [x]" in outdated
    assert "DROP" in outdated


def test_apply_says_what_it_does(stand_in: StandIn, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "penstock.yaml"
    file.write_text("connections: {a: {kind: duckdb}, b: {kind: duckdb}}\nsubscriptions: {s/1: {source: a}}\n")
    new = {"result": "created", "fields": [], "secrets": [], "etag": None}
    change = {"field": "settings.path", "before": "x", "after": "y"}
    stand_in.replies["POST", "/connections/a/plans"] = (200, new)
    stand_in.replies["POST", "/connections/b/plans"] = (
        200,
        {"result": "changed", "fields": [change], "secrets": ["password"], "etag": '"1"'},
    )
    for path in ("/connections/a", "/connections/b", "/subscriptions/s%2F1"):
        stand_in.replies["PUT", path] = lambda body: (200, body)
    result = run("apply", str(file), "--json")
    assert result.exit_code == 0, result.stderr
    assert [(r["name"], r["result"], r["fields"]) for r in json.loads(result.stdout)["results"]] == [
        ("a", "created", []),
        ("b", "changed", ["settings", "secrets"]),
        ("s/1", "created", []),
    ]
    put = [path for method, path, *_ in stand_in.requests if method == "PUT"]
    assert put == [
        "/api/v1/connections/a",
        "/api/v1/connections/b",
        "/api/v1/subscriptions/s%2F1?keep_tables=true",
    ]
    shown = run("apply", str(file), "--dry-run")
    assert "settings.path: x → y" in shown.stdout
    assert "secret password is set" in shown.stdout
    assert len([path for method, path, *_ in stand_in.requests if method == "PUT"]) == 3


def test_apply_without_a_file(run: Run, tmp_path: Path) -> None:
    result = run("apply", str(tmp_path / "none.yaml"))
    assert result.exit_code == ExitCode.USAGE
    assert "No such file" in result.stderr


def test_token_is_revoked_by_name(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["GET", "/tokens"] = (200, {"items": [{"id": "t1", "name": "ci", "role": "viewer"}]})
    stand_in.replies["DELETE", "/tokens/t1"] = (200, {})
    assert run("token", "revoke", "ci").exit_code == 0
    assert stand_in.requests[-1][:2] == ("DELETE", "/api/v1/tokens/t1")
    assert run("token", "revoke", "other").exit_code == ExitCode.USAGE


def test_settings_of_a_token(stand_in: StandIn, run: Run) -> None:
    token = {"id": "t1", "name": "ci", "role": "viewer", "settings": {"penstock.freshness": "latest"}}
    stand_in.replies["GET", "/tokens"] = (200, {"items": [token]})
    stand_in.replies["PATCH", "/tokens/t1"] = (200, token)
    stand_in.replies["POST", "/tokens"] = (201, {**token, "token": "pst_x"})
    given = ("--set", "penstock.freshness=latest", "--set", "search_path=a=b")
    changed = run("token", "configure", "ci", *given, "--reset", "work_mem")
    assert "SQL sessions of ci begin with: penstock.freshness=latest." in changed.stdout
    settings = {"penstock.freshness": "latest", "search_path": "a=b"}
    assert stand_in.requests[-1][:3] == ("PATCH", "/api/v1/tokens/t1", {"settings": {**settings, "work_mem": None}})
    assert run("token", "create", "bi", *given).stdout.strip() == "pst_x"
    assert stand_in.requests[-1][2] == {"name": "bi", "role": "viewer", "settings": settings}
    assert "penstock.freshness=latest" in run("token", "list").stdout
    for wrong in ((), ("--set", "x"), ("--set", "=x"), ("--set", "a=1", "--reset", "a")):
        assert run("token", "configure", "ci", *wrong).exit_code == ExitCode.USAGE


_STAGES = ("capture_ms", "seal_ms", "compute_ms", "apply_ms", "total_ms")


def _ticket(state: str, **more: Any) -> dict[str, Any]:
    done = state == "applied"
    return {
        "id": "tk1",
        "name": None,
        "state": state,
        "position": "0/55" if done else None,
        "times": {"captured_at": "2026-05-04T10:00:00Z" if done else None},
        "durations": dict.fromkeys(_STAGES, 250.0 if done else None),
        "throughput": None,
        "reason": None,
        "remedy": None,
        **more,
    }


def test_a_ticket_is_made_and_waited_for(stand_in: StandIn, run: Run) -> None:
    answers = iter([_ticket("under_way"), _ticket("applied")])
    stand_in.replies["POST", "/subscriptions/m/tickets"] = (202, _ticket("pending"))
    stand_in.replies["GET", "/subscriptions/m/tickets/tk1"] = lambda _: (200, next(answers))
    result = run("ticket", "-s", "m", "--name", "before", "--wait")
    assert result.exit_code == 0
    assert stand_in.requests[0][2] == {"name": "before"}
    for text in ("tk1", "applied", "0/55", "compute", "250 ms"):
        assert text in result.stdout
    at_once = run("ticket", "-s", "m", "--json")
    assert (at_once.exit_code, json.loads(at_once.stdout)) == (0, _ticket("pending"))


@pytest.mark.parametrize(("state", "exit_code"), [("pending", ExitCode.TIMEOUT), ("lost", ExitCode.PIPELINE)])
def test_a_ticket_that_does_not_arrive_is_told_by_exit_code(
    stand_in: StandIn, run: Run, state: str, exit_code: ExitCode
) -> None:
    found = _ticket(state, reason="It was [missed].", remedy="Make another.")
    stand_in.replies["POST", "/subscriptions/m/tickets"] = (202, found)
    stand_in.replies["GET", "/subscriptions/m/tickets/tk1"] = (200, found)
    result = run("ticket", "-s", "m", "--wait", "--timeout", "1ms")
    assert result.exit_code == exit_code
    assert "It was [missed]." in result.stderr


def test_tickets_are_compared_and_listed(stand_in: StandIn, run: Run) -> None:
    throughput = {
        "since": "tk0",
        "seconds": 99.0,
        "log_bytes": 1 << 32,
        "transactions": None,
        "commands": 3960,
        "log_gib_per_hour": 145.454,
        "commands_per_second": 40.0,
        "transactions_per_second": None,
    }
    found = _ticket("applied", throughput=throughput)
    stand_in.replies["GET", "/subscriptions/m/tickets/tk1"] = (200, found)
    result = run("ticket", "show", "tk1", "-s", "m", "--since", "tk0")
    assert stand_in.requests[-1][1].endswith("/tickets/tk1?since=tk0")
    for text in ("145.45", "40.00", "–", "99.0 s"):
        assert text in result.stdout
    stand_in.replies["GET", "/subscriptions/m/tickets"] = (200, {"items": [found]})
    assert json.loads(run("ticket", "list", "-s", "m", "--json").stdout) == {"subscription": "m", "tickets": [found]}
    assert "tk1" in run("ticket", "list", "-s", "m").stdout
    assert run("ticket", "-s", "m", "--since", "tk0").exit_code == ExitCode.USAGE


_SAMPLE = {
    "state": "running",
    "reason": None,
    "remedy": None,
    "connection": "sample",
    "transactions": 1200,
    "transactions_per_second": 5.0,
    "target_path": "/data/sample.duckdb",
}


def test_sample_start_waits_until_it_runs(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["PUT", "/sample-source"] = (202, {**_SAMPLE, "state": "starting"})
    stand_in.replies["GET", "/sample-source"] = (200, _SAMPLE)
    result = run("sample", "start")
    assert result.exit_code == 0, result.output
    assert "5 transactions a second, 1,200 so far" in result.stdout
    assert json.loads(run("sample", "show", "--json").stdout) == _SAMPLE


def test_sample_that_failed_says_why(stand_in: StandIn, run: Run) -> None:
    failed = {**_SAMPLE, "state": "failed", "reason": "It [broke]", "remedy": "Start it again."}
    stand_in.replies["PUT", "/sample-source"] = (202, failed)
    result = run("sample", "start")
    assert result.exit_code == ExitCode.PIPELINE
    assert "It [broke]" in result.stderr


def test_sample_remove(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["DELETE", "/sample-source"] = (204, None)
    stand_in.replies["GET", "/sample-source"] = (200, {**_SAMPLE, "state": "absent"})
    result = run("sample", "remove")
    assert (result.exit_code, result.stdout) == (0, "sample source: absent\n")


def test_console_prints_a_link_that_signs_in(stand_in: StandIn, run: Run, tmp_path: Path) -> None:
    stand_in.replies["GET", "/subscriptions"] = _SUBSCRIPTIONS
    (tmp_path / "admin.token").write_text("a+b/c\n")
    assert run("console").stdout == f"{stand_in.url}/#token=a%2Bb%2Fc\n"
    assert json.loads(run("console", "--json").stdout) == {"url": f"{stand_in.url}/#token=a%2Bb%2Fc"}


# What was skipped, and what could not be carried out

_WAITS, _VERIFICATIONS = "/subscriptions/m/freshness-waits", "/subscriptions/m/verifications"
_PARKED = {"schema": "public", "name": "[lines]", "state": "parked", "reason": "a [row]"}
_COMPARED = {"schema": "public", "name": "t", "equal": True, "source_rows": 3, "target_rows": 3, "differing": []}
_DIFFERENT = {**_COMPARED, "equal": False}
_AWAY = {"status": 502, "code": "source_unreachable", "detail": "No [route].", "remedy": "Mend it."}


def test_wait_tells_of_tables_that_it_left_out(stand_in: StandIn, run: Run) -> None:
    receipt = {
        "left_out": [_PARKED],
        "exceptions": [
            {"schema": "public", "name": "t", "kind": "rows_set_aside", "rows": 7},
            {"schema": "public", "name": "u", "kind": "insert_only", "rows": None},
        ],
    }
    answer = {"status": "satisfied", "position": "0/5", "applied": "0/9", "waited_ms": 12.0, "receipt": receipt}
    stand_in.replies["POST", _WAITS] = (200, answer)
    shown = run("wait", "-s", "m")
    assert shown.exit_code == 0
    assert "public.[lines] was not waited for: it is parked: a [row]" in shown.stderr
    assert "public.t: without 7 quarantined rows" in shown.stderr
    assert "public.u: without its updates and deletes" in shown.stderr
    strict = run("wait", "-s", "m", "--all-tables", "--json")
    assert strict.exit_code == ExitCode.UNREACHABLE
    assert json.loads(strict.stdout) == answer
    assert "public.[lines]" in strict.stderr
    stand_in.replies["POST", _WAITS] = (200, {**answer, "receipt": {"left_out": [], "exceptions": []}})
    whole = run("wait", "-s", "m", "--all-tables")
    assert (whole.exit_code, whole.stderr) == (0, "")


def test_wait_at_its_deadline_says_how_far_the_target_is_behind(stand_in: StandIn, run: Run) -> None:
    stale = {"wanted": "0/9", "position": "0/5", "seconds_behind": 12.0}
    answer = {"status": "stale", "position": "0/5", "applied": "0/5", "waited_ms": 12.0, "receipt": {}, "stale": stale}
    stand_in.replies["POST", _WAITS] = (200, answer)
    shown = run("wait", "-s", "m", "--on-timeout", "stale", "--refuse-early")
    asked = stand_in.requests[-1][2]
    assert (shown.exit_code, asked["on_timeout"], asked["refuse_early"]) == (ExitCode.TIMEOUT, "stale", True)
    assert "the target is 12.0 s behind: it shows 0/5, not yet 0/9" in " ".join(shown.stderr.split())


def test_query_may_be_answered_late_or_by_the_source(stand_in: StandIn, run: Run) -> None:
    stale = {"wanted": None, "position": "0/5", "seconds_behind": None}
    rows = {
        "columns": [{"name": "n", "type": "int"}],
        "rows": [[1]],
        "position": "0/5",
        "ran_on": "source",
        "stale": stale,
    }
    stand_in.replies["POST", "/subscriptions/m/queries"] = (200, rows)
    shown = run(
        "query", "-s", "m", "--fresh", "latest", "--on-timeout", "source", "--on-unavailable", "source", "SELECT 1"
    )
    asked = stand_in.requests[-1][2]["freshness"]
    assert (asked["on_timeout"], asked["on_unavailable"]) == ("source", "source")
    assert "on the source" in shown.stderr
    assert "an unknown time behind" in " ".join(shown.stderr.split())


@pytest.mark.parametrize(
    ("complete", "blocked", "code"),
    [(True, False, ExitCode.DONE), (False, False, ExitCode.TIMEOUT), (False, True, ExitCode.UNREACHABLE)],
)
def test_a_scheduler_sees_by_the_exit_code_whether_a_table_is_complete(
    stand_in: StandIn, run: Run, complete: bool, blocked: bool, code: ExitCode
) -> None:
    answer = {
        "complete": complete,
        "until": "0/9",
        "until_position": "0/9",
        "complete_to": {"position": "0/5", "time": None},
        "estimate_ms": 1500,
        "blocked": blocked,
        "reason": "it is [late]",
        "remedy": "Wait.",
        "exceptions": [],
    }
    stand_in.replies["GET", "/subscriptions/m/tables/t1/completeness"] = (200, answer)
    shown = run("completeness", "t1", "-s", "m", "--until", "2026-01-31T06:00:00+01:00")
    assert shown.exit_code == code
    assert stand_in.requests[-1][1].endswith("completeness?until=2026-01-31T06%3A00%3A00%2B01%3A00")
    assert ("not complete" in shown.stdout, "it is [late]" in shown.stderr, "1.5 s" in shown.stderr) == (
        not complete,
        True,
        True,
    )


def test_wait_is_patient_where_that_is_asked_for(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["POST", _WAITS] = (200, {"status": "satisfied"})
    run("wait", "-s", "m", "--patient")
    assert stand_in.requests[-1][2] == {"timeout_ms": 30_000, "on_unreachable": "wait"}


def _ended(state: str, *tables: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "v1", "state": state, "position": "0/9", "tables": list(tables), "left_out": [], **more}


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize(
    ("ended", "exit_code", "told"),
    [
        (_ended("succeeded", _COMPARED), ExitCode.DONE, ""),
        (_ended("succeeded", _COMPARED, left_out=[_PARKED]), ExitCode.DONE, "was not compared: it is parked: a [row]"),
        (_ended("succeeded", _COMPARED, _DIFFERENT), ExitCode.DIFFERENT, ""),
        (_ended("failed", _COMPARED, problem=_AWAY), ExitCode.PIPELINE, "No [route].\n→ Mend it."),
        (_ended("failed", _COMPARED, _DIFFERENT, problem=_AWAY), ExitCode.DIFFERENT, "No [route]."),
        (_ended("failed", problem={**_AWAY, "status": 504}), ExitCode.TIMEOUT, "No [route]."),
        (_ended("failed", problem=None), ExitCode.PIPELINE, ""),
        (_ended("cancelled", _COMPARED), ExitCode.UNREACHABLE, "was cancelled"),
        (_ended("succeeded"), ExitCode.UNREACHABLE, "Nothing was compared"),
        (_ended("running", _COMPARED), ExitCode.TIMEOUT, "v1 has not ended in time"),
    ],
)
def test_each_end_of_a_verification_has_its_exit_code_and_reason(
    stand_in: StandIn, run: Run, ended: dict[str, Any], exit_code: ExitCode, told: str, form: tuple[str, ...]
) -> None:
    stand_in.replies["POST", _VERIFICATIONS] = (202, {"id": "v1", "state": "running"})
    stand_in.replies["GET", f"{_VERIFICATIONS}/v1"] = (200, ended)
    result = run("verify", "-s", "m", "--timeout", "500ms", *form)
    assert result.exit_code == exit_code
    assert told in result.stderr
    if form:
        assert json.loads(result.stdout) == ended


def test_verify_by_checksum_says_how_each_table_was_compared(stand_in: StandIn, run: Run) -> None:
    by_checksum = {"method": "checksum", "ranges": 40, "ranges_different": 1, "bytes_from_source": 2048}
    by_rows = {"method": "rows", "by_rows_because": "no [key]", "sample": 0.25}
    ended = _ended("succeeded", {**_COMPARED, **by_checksum}, {**_COMPARED, **by_rows})
    stand_in.replies["POST", _VERIFICATIONS] = (202, ended)
    result = run("verify", "-s", "m", "--method", "checksum", "--sample", "0.25", "--budget", "0.3")
    assert stand_in.requests[-1][2] == {"method": "checksum", "sample": 0.25, "budget": 0.3}
    assert "rows, a sample of 25 %" in " ".join(result.stdout.split())
    assert "checksum, 1 of 40 ranges differ" in " ".join(result.stdout.split())
    assert "2 KiB" in result.stdout
    assert "compared by rows because of no [key]" in result.stderr


@pytest.mark.parametrize(("equal", "exit_code"), [(True, ExitCode.DONE), (False, ExitCode.DIFFERENT)])
def test_verify_with_repair_says_what_it_wrote_and_ends_by_what_is_true_now(
    stand_in: StandIn, run: Run, *, equal: bool, exit_code: ExitCode
) -> None:
    repaired = {
        **_COMPARED,
        "equal": equal,
        "differing": [{"key": ["7"], "kind": "different", "columns": ["a", "b"]}],
        "repaired": {"inserted": 1, "updated": 2, "deleted": 3},
        "not_repaired": None if equal else "a [row] was refused",
    }
    stand_in.replies["POST", _VERIFICATIONS] = (202, _ended("succeeded", repaired))
    result = run("verify", "-s", "m", "--repair", "apply")
    assert stand_in.requests[-1][2] == {"repair": "apply"}
    assert result.exit_code == exit_code
    assert "repaired: 1 inserted, 2 updated, 3 deleted" in result.stdout
    assert ("different ['7'] in a, b" in result.stderr) is not equal
    assert ("was not repaired: a [row] was refused" in result.stderr) is not equal
    assert run("verify", "-s", "m", "--repair", "always").exit_code == ExitCode.USAGE


def test_verify_of_all_tables_wants_all_of_them(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["POST", _VERIFICATIONS] = (202, _ended("succeeded", _COMPARED, left_out=[_PARKED]))
    assert run("verify", "-s", "m", "--all-tables").exit_code == ExitCode.UNREACHABLE
    stand_in.replies["POST", _VERIFICATIONS] = (202, _ended("succeeded", _COMPARED))
    assert run("verify", "-s", "m", "--all-tables").exit_code == ExitCode.DONE


def test_kinds_of_connections_show_what_can_be_left_out(stand_in: StandIn, run: Run) -> None:
    paper = {
        "kind": "paper",
        "source": True,
        "target": False,
        "captures": [{"kind": "ledger"}, {"kind": "diff"}],
        "settings": {"properties": {"shelf": {}, "lamp": {}}, "required": ["shelf"]},
    }
    stand_in.replies["GET", "/connection-kinds"] = (200, {"items": [paper]})
    assert run("connections", "kinds").stdout.splitlines()[1].split("  ")[-1].strip() == "shelf, [lamp]"
    assert json.loads(run("connections", "kinds", "--json").stdout) == [paper]
