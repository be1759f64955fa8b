"""Queries over HTTP: formats, freshness, refusals."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.link.answer_frames import AnswerEnd
from engine.link.message import Problem
from engine.link.messages import Assign, Demand, Now
from engine.link.queries import Query
from engine.model.target import TARGET_TYPE
from tests.fixtures.channel import ADMIN, DEADLINE_S, FakeEngine
from tests.fixtures.waiting import wait_until

_QUERIES = "/subscriptions/orders/queries"
PARQUET = "application/vnd.apache.parquet"
EXPORTS = ["text/csv", "application/vnd.apache.arrow.stream", PARQUET]


Rig = tuple[httpx.Client, FakeEngine, Assign]


def test_rows_come_as_json_unless_something_else_is_wanted(rig: Rig) -> None:
    client, engine, _ = rig
    answer = client.post(_QUERIES, json={"sql": "select n from t", "max_rows": 7, "timeout_ms": 1234})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["Penstock-Position"] == "0/100"
    assert answer.json() == {
        "columns": [{"name": "n", "type": "int64"}],
        "rows": [[1], [2], [3]],
        "position": "0/100",
        "ran_on": "target",
        "truncated": False,
    }
    command = engine.seen(Query)
    assert (command.sql, command.max_rows, command.timeout_ms) == ("select n from t", 7, 1234)
    assert engine.count(Now) == 0


def test_positions_have_the_form_of_their_source(rig: Rig) -> None:
    """So that they can be waited for."""
    client, engine, _ = rig
    client.put("/connections/windows", json={"kind": "duckdb", "settings": {"path": "/tmp/windows.duckdb"}})
    body = {"source": "shop", "target": "windows", "tables": [{"schema": "public", "name": "t"}]}
    body |= {"capture": {"kind": "triggers"}, "desired_state": "running"}
    assert client.put("/subscriptions/windows", json=body).status_code == 201
    engine.run("windows")
    path = "/subscriptions/windows/queries"
    answer = client.post(path, json={"sql": "s"})
    assert (answer.json()["position"], answer.headers["Penstock-Position"]) == ("w0.256", "w0.256")
    parquet = client.post(path, json={"sql": "s"}, headers={"Accept": PARQUET}).content
    assert pq.read_schema(io.BytesIO(parquet)).metadata[b"penstock.position"] == b"w0.256"


def test_parameters_reach_the_engine_as_text_and_types_are_those_of_the_target(rig: Rig) -> None:
    client, engine, _ = rig
    field = pa.field("n", pa.int64(), metadata={TARGET_TYPE: b"BIGINT"})
    engine.rows = pa.table([pa.array([1])], schema=pa.schema([field]))
    body = {"sql": "select $1", "parameters": ["x", 2**64, True, None]}
    answer = client.post(_QUERIES, json=body).json()
    assert answer["columns"] == [{"name": "n", "type": "int64", "target_type": "BIGINT"}]
    assert engine.seen(Query).parameters == ("x", str(2**64), "true", None)
    assert "18446744073709551616" not in repr(engine.seen(Query))


@pytest.mark.parametrize("wrong", [[1.5], [["x"]], [{}], "x", ["x"] * 1001])
def test_parameters_of_other_forms_are_refused(rig: Rig, wrong: Any) -> None:
    client, engine, _ = rig
    answer = client.post(_QUERIES, json={"sql": "select $1", "parameters": wrong})
    assert (answer.status_code, engine.count(Query)) == (422, 0)
    assert answer.json()["errors"][0]["pointer"].startswith("/parameters")


def test_rows_come_as_csv_and_as_arrow(rig: Rig) -> None:
    client, engine, _ = rig
    engine.rows = pa.table({"a": ["x", None, ""], "b": [1, 2, 3]})
    csv = client.post(_QUERIES, json={"sql": "s"}, headers={"Accept": "text/csv"})
    assert csv.text == 'a,b\r\nx,1\r\n,2\r\n"",3\r\n'
    accept = {"Accept": "text/html;q=0.9, application/vnd.apache.arrow.stream, */*;q=0.1"}
    arrow = client.post(_QUERIES, json={"sql": "s"}, headers=accept)
    assert arrow.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert pa.ipc.open_stream(io.BytesIO(arrow.content)).read_all() == engine.rows
    none = client.post(_QUERIES, json={"sql": "s"}, headers={"Accept": "image/png"})
    assert none.status_code == 406
    assert none.json()["code"] == "not_acceptable"


def test_rows_come_as_parquet_with_position_and_receipt_in_the_metadata(rig: Rig) -> None:
    client, engine, _ = rig
    engine.rows = pa.table({"a": ["x", None, ""], "b": [1, 2, 3]})
    body = {"sql": "s", "freshness": {"mode": "position", "position": "0/50"}}
    answer = client.post(_QUERIES, json=body, headers={"Accept": PARQUET})
    assert (answer.status_code, answer.headers["content-type"]) == (200, PARQUET)
    found = pq.read_table(io.BytesIO(answer.content))
    assert found.equals(engine.rows)
    assert found.schema.metadata[b"penstock.position"] == b"0/100"
    receipt = json.loads(found.schema.metadata[b"penstock.receipt"])
    assert receipt == client.post(_QUERIES, json=body).json()["receipt"]


def test_a_column_that_parquet_has_no_type_for_is_named(rig: Rig) -> None:
    client, engine, _ = rig
    engine.rows = pa.table({"pause": pa.array([(1, 2, 3)], pa.month_day_nano_interval())})
    refused = client.post(_QUERIES, json={"sql": "s"}, headers={"Accept": PARQUET})
    assert (refused.status_code, refused.json()["code"]) == (422, "parquet_unsupported")
    assert "'pause'" in refused.json()["detail"]
    assert client.post(_QUERIES, json={"sql": "s"}).status_code == 200


def test_values_that_json_numbers_cannot_hold_are_strings(rig: Rig) -> None:
    client, engine, _ = rig
    engine.rows = pa.table(
        {
            "i": pa.array([2**63 - 1]),
            "d": pa.array([decimal.Decimal("1.50")]),
            "f": pa.array([1.5]),
            "nan": pa.array([float("nan")]),
            "t": pa.array([datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)]),
            "b": pa.array([b"\xff\x00"]),
            "none": pa.array([None], pa.int32()),
        }
    )
    answer = client.post(_QUERIES, json={"sql": "s"})
    assert answer.json()["rows"] == [[2**63 - 1, "1.50", 1.5, "NaN", "2026-01-02T03:04:05Z", "ff00", None]]


def test_the_latest_is_waited_for_before_the_query_runs(rig: Rig) -> None:
    client, engine, assign = rig
    engine.now = "0/90"
    with ThreadPoolExecutor(1) as pool:
        body = {"sql": "s", "freshness": {"mode": "latest", "timeout_ms": 10_000}}
        waiting = pool.submit(client.post, _QUERIES, json=body)
        engine.seen(Demand)
        assert engine.count(Query) == 0
        engine.progress(assign, "0/95")
        answer = waiting.result(DEADLINE_S).json()
    assert answer["position"] == "0/100"
    assert answer["receipt"]["position"] == "0/90"


def test_arrow_has_the_receipt_in_the_metadata_of_its_schema(rig: Rig) -> None:
    client, engine, _ = rig
    engine.rows = pa.table({"n": [1]}).replace_schema_metadata({"kept": "too"})
    body = {"sql": "s", "freshness": {"mode": "position", "position": "0/50"}}
    answer = client.post(_QUERIES, json=body, headers={"Accept": "application/vnd.apache.arrow.stream"})
    found = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
    assert found.equals(engine.rows)
    assert found.schema.metadata[b"kept"] == b"too"
    receipt = json.loads(found.schema.metadata[b"penstock.receipt"])
    assert receipt == client.post(_QUERIES, json=body).json()["receipt"]


def test_an_answer_older_than_asked_for_is_never_given(rig: Rig) -> None:
    client, engine, _ = rig
    engine.position = "0/4F"
    body = {"sql": "s", "freshness": {"mode": "position", "position": "0/50"}}
    answer = client.post(_QUERIES, json=body)
    assert answer.status_code == 502
    assert answer.json()["code"] == "answer_too_old"


def _table(assign: Assign, name: str) -> str:
    return next(table.table for table in assign.tables if table.source.name == name)


def _fresh(mode: str, **more: Any) -> dict[str, Any]:
    position = {"position": "0/50"} if mode == "position" else {}
    return {"sql": "s", "freshness": {"mode": mode, "timeout_ms": 10_000, **position, **more}}


@pytest.mark.parametrize("mode", ["latest", "position"])
def test_a_table_of_the_statement_that_does_not_follow_is_named_with_the_remedy(rig: Rig, mode: str) -> None:
    client, engine, assign = rig
    engine.now = "0/40"
    engine.table(assign, _table(assign, "orders"), "parked", reason="a value does not fit", remedy="Mend it.")
    assert engine.link.flush(DEADLINE_S)
    engine.refusal_of_queries = Problem(
        status=409,
        code="freshness_unreachable",
        detail="table public.orders is parked",
        remedy="Reload it.",
        tables=(_table(assign, "orders"),),
    )
    answer = client.post(_QUERIES, json=_fresh(mode))
    assert (answer.status_code, answer.json()["code"]) == (409, "freshness_unreachable")
    assert answer.json()["detail"] == "Table public.orders is parked: a value does not fit."
    assert answer.json()["remedy"] == "Mend it; or send on_unavailable 'include' for the rows that are there."
    assert answer.json()["tables"] == [{"schema": "public", "name": "orders", "state": "parked"}]
    assert engine.seen(Query).following


@pytest.mark.parametrize("mode", ["latest", "position"])
def test_tables_that_do_not_follow_are_included_and_listed_where_that_is_wanted(rig: Rig, mode: str) -> None:
    client, engine, assign = rig
    engine.now = "0/40"
    orders, lines = _table(assign, "orders"), _table(assign, "lines")
    engine.table(assign, orders, "paused")
    assert engine.link.flush(DEADLINE_S)
    engine.read_tables, engine.not_following = [orders, lines], [orders]
    answer = client.post(_QUERIES, json=_fresh(mode, on_unavailable="include"))
    receipt = answer.json()["receipt"]
    assert [(line["name"], line["state"]) for line in receipt["left_out"]] == [("orders", "paused")]
    assert [line["name"] for line in receipt["tables"]] == ["lines"]
    assert not engine.seen(Query).following


def test_other_tables_than_those_of_the_statement_are_not_waited_for(rig: Rig) -> None:
    client, engine, assign = rig
    engine.now = "0/40"
    orders, lines = _table(assign, "orders"), _table(assign, "lines")
    engine.table(assign, lines, "copying")
    assert engine.link.flush(DEADLINE_S)
    engine.read_tables = [orders]
    answer = client.post(_QUERIES, json=_fresh("latest"))
    assert [line["name"] for line in answer.json()["receipt"]["tables"]] == ["orders"]


def test_a_table_that_is_about_to_follow_is_waited_for(rig: Rig) -> None:
    client, engine, assign = rig
    engine.now = "0/40"
    lines = _table(assign, "lines")
    engine.table(assign, lines, "reloading")
    assert engine.link.flush(DEADLINE_S)
    engine.read_tables = [lines]
    engine.refusal_of_queries = Problem(
        status=409, code="table_not_ready", detail="not complete yet", remedy="Wait.", tables=(lines,)
    )
    late = client.post(_QUERIES, json=_fresh("latest", timeout_ms=100))
    assert (late.status_code, late.json()["code"]) == (504, "freshness_timeout")
    asked = engine.count(Query)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.post, _QUERIES, json=_fresh("latest"))
        wait_until(lambda: engine.count(Query) > asked)
        engine.refusal_of_queries = None
        engine.table(assign, lines, "live")
        answer = waiting.result(DEADLINE_S)
    assert [line["name"] for line in answer.json()["receipt"]["tables"]] == ["lines"]


def test_rows_as_they_are_are_refused_only_where_a_table_needs_its_user(rig: Rig) -> None:
    client, engine, assign = rig
    assert client.post(_QUERIES, json={"sql": "s"}).status_code == 200
    command = engine.seen(Query)
    assert (command.following, command.available) == (False, True)
    assert client.post(_QUERIES, json=_fresh("any", on_unavailable="include")).status_code == 200
    assert not engine.seen(Query).available
    orders = _table(assign, "orders")
    engine.table(assign, orders, "paused")
    assert engine.link.flush(DEADLINE_S)
    engine.refusal_of_queries = Problem(
        status=409, code="freshness_unreachable", detail="paused", remedy="Resume it.", tables=(orders,)
    )
    refused = client.post(_QUERIES, json={"sql": "s"})
    assert (refused.status_code, refused.json()["code"]) == (409, "freshness_unreachable")
    assert refused.json()["tables"] == [{"schema": "public", "name": "orders", "state": "paused"}]


@pytest.mark.parametrize("mode", ["any", "latest"])
def test_old_rows_are_named_in_every_format(rig: Rig, mode: str) -> None:
    client, engine, assign = rig
    engine.now = "0/40"
    orders, lines = _table(assign, "orders"), _table(assign, "lines")
    engine.read_tables, engine.not_following = [orders, lines], [lines, orders]
    body = _fresh(mode, on_unavailable="include")
    assert [one["name"] for one in client.post(_QUERIES, json=body).json()["left_out"]] == ["lines", "orders"]
    for accept in EXPORTS:
        answer = client.post(_QUERIES, json=body, headers={"Accept": accept})
        assert answer.headers["Penstock-Left-Out"] == "public.lines,public.orders"
    engine.not_following = []
    assert "Penstock-Left-Out" not in client.post(_QUERIES, json=body).headers


def test_a_deadline_on_freshness_is_a_timeout(rig: Rig) -> None:
    client, engine, _ = rig
    body = {"sql": "s", "freshness": {"mode": "position", "position": "0/60", "timeout_ms": 30}}
    answer = client.post(_QUERIES, json=body)
    assert answer.status_code == 504
    assert answer.json()["code"] == "freshness_timeout"
    assert engine.count(Query) == 0


@pytest.mark.parametrize("accept", ["application/json", *EXPORTS])
def test_at_the_deadline_the_rows_that_are_there_say_how_old_they_are(rig: Rig, accept: str) -> None:
    client, engine, assign = rig
    long_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=100)
    engine.progress(assign, "0/50", lag_seconds=20.0, at=long_ago)
    assert engine.link.flush(DEADLINE_S)
    engine.position, engine.now = "0/50", "0/90"
    engine.read_tables, engine.not_following = [_table(assign, "lines")], [_table(assign, "lines")]
    for mode in ("latest", "position"):
        body = _fresh(mode, on_timeout="stale", timeout_ms=30)
        body["freshness"] |= {"position": "0/90"} if mode == "position" else {}
        answer = client.post(_QUERIES, json=body, headers={"Accept": accept})
        assert answer.status_code == 200
        assert (answer.headers["Penstock-Stale"], answer.headers["Penstock-Position"]) == ("true", "0/50")
        assert 120 <= float(answer.headers["Penstock-Seconds-Behind"]) < 200
        assert answer.headers["Penstock-Left-Out"] == "public.lines"
        if accept == "application/json":
            stale = answer.json()["stale"]
            # Under load, "now" may not have been read in time.
            assert (stale["wanted"] in {"0/90", None if mode == "latest" else "0/90"}, stale["position"]) == (
                True,
                "0/50",
            )
            assert 120 <= stale["seconds_behind"] < 200
    in_time = client.post(_QUERIES, json=_fresh("position", on_timeout="stale"), headers={"Accept": accept})
    assert "Penstock-Stale" not in in_time.headers


def test_where_nothing_is_known_of_now_stale_rows_say_so(rig: Rig) -> None:
    """The source is away: the query waits until its deadline, and answers with what is there."""
    client, engine, assign = rig
    engine.progress(assign, "0/50", lag_seconds=None)
    assert engine.link.flush(DEADLINE_S)
    engine.refusal_of_now = Problem(status=502, code="source_unreachable", detail="away", remedy="Start it.")
    failed = client.post(_QUERIES, json=_fresh("latest", timeout_ms=200))
    assert (failed.status_code, failed.json()["code"]) == (502, "source_unreachable")
    answer = client.post(_QUERIES, json=_fresh("latest", timeout_ms=200, on_timeout="stale"))
    assert answer.json()["stale"] == {"wanted": None, "position": "0/100", "seconds_behind": None}
    assert answer.headers["Penstock-Seconds-Behind"] == "unknown"


def test_a_table_that_needs_its_user_is_refused_also_with_stale_rows(rig: Rig) -> None:
    client, engine, _ = rig
    client.post(_QUERIES, json=_fresh("position", position="0/90", on_timeout="stale", timeout_ms=0))
    assert (engine.seen(Query).following, engine.seen(Query).available) == (False, True)
    body = _fresh("position", position="0/90", on_timeout="stale", timeout_ms=0, on_unavailable="include")
    client.post(_QUERIES, json=body)
    assert not engine.seen(Query).available


def test_at_the_deadline_the_source_answers_where_that_is_wanted(rig: Rig) -> None:
    client, engine, assign = rig
    engine.now, engine.read_tables = "0/90", [_table(assign, "orders")]
    answer = client.post(_QUERIES, json=_fresh("latest", on_timeout="source", timeout_ms=30))
    assert (answer.status_code, answer.json()["ran_on"]) == (200, "source")
    receipt = answer.json()["receipt"]
    assert (receipt["answered_by"], receipt["position"]) == ("source", "0/100")
    assert [line["name"] for line in receipt["tables"]] == ["orders"]
    assert engine.seen(Query).on_source
    csv = client.post(
        _QUERIES, json=_fresh("latest", on_timeout="source", timeout_ms=30), headers={"Accept": "text/csv"}
    )
    assert csv.headers["Penstock-Ran-On"] == "source"
    engine.now = "0/40"
    target = client.post(_QUERIES, json=_fresh("latest", on_timeout="source")).json()
    assert (target["ran_on"], target["receipt"]["answered_by"]) == ("target", "target")
    far = client.post(_QUERIES, json=_fresh("position", position="0/999", on_timeout="source", timeout_ms=0))
    assert (far.status_code, far.json()["code"]) == (502, "answer_too_old")


@pytest.mark.parametrize("mode", ["any", "latest", "position"])
@pytest.mark.parametrize("code", ["freshness_unreachable", "table_not_ready", "query_unavailable"])
def test_what_the_target_does_not_have_the_source_answers_where_that_is_wanted(rig: Rig, mode: str, code: str) -> None:
    client, engine, assign = rig
    engine.now = "0/40"
    engine.table(assign, _table(assign, "orders"), "parked")
    assert engine.link.flush(DEADLINE_S)
    tables = () if code == "query_unavailable" else (_table(assign, "orders"),)
    engine.refusal_of_queries = Problem(status=409, code=code, detail="no", remedy="Wait.", tables=tables)
    answer = client.post(_QUERIES, json=_fresh(mode, on_unavailable="source"))
    assert (answer.status_code, answer.json()["ran_on"]) == (200, "source")
    assert answer.json()["receipt"]["answered_by"] == "source"
    assert engine.count(Query) == 2
    engine.refusal_of_queries = Problem(status=422, code="query_invalid", detail="no", remedy="Mend it.")
    invalid = client.post(_QUERIES, json=_fresh(mode, on_unavailable="source"))
    assert (invalid.status_code, invalid.json()["code"]) == (422, "query_invalid")


def test_a_subscription_that_does_not_run_is_queried_on_its_source_where_that_is_wanted(rig: Rig) -> None:
    client, engine, _ = rig
    assert client.patch("/subscriptions/orders", json={"desired_state": "paused"}).status_code == 200
    assert client.post(_QUERIES, json=_fresh("latest")).json()["code"] == "freshness_unreachable"
    assert client.post(_QUERIES, json=_fresh("latest", on_unavailable="source")).json()["ran_on"] == "source"
    engine.knows_sources = False
    old = client.post(_QUERIES, json=_fresh("latest", on_unavailable="source"))
    assert (old.status_code, old.json()["code"]) == (502, "engine_too_old")


def test_a_table_that_was_just_resumed_is_waited_for(rig: Rig) -> None:
    """The engine may refuse it for a moment longer."""
    client, engine, assign = rig
    engine.now = "0/40"
    orders = _table(assign, "orders")
    engine.table(assign, orders, "paused")
    assert engine.link.flush(DEADLINE_S)
    engine.refusal_of_queries = Problem(
        status=409, code="freshness_unreachable", detail="paused", remedy="Resume it.", tables=(orders,)
    )
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.post, _QUERIES, json=_fresh("latest"))
        engine.seen(Query)
        engine.refusal_of_queries = None
        engine.table(assign, orders, "live")
        assert waiting.result(DEADLINE_S).status_code == 200
    engine.refusal_of_queries = Problem(
        status=409, code="freshness_unreachable", detail="paused", remedy="Resume it.", tables=(orders,)
    )
    place = f"/subscriptions/orders/tables/{orders}"
    assert client.patch(place, json={"desired_state": "paused"}).status_code == 200
    assert client.post(_QUERIES, json=_fresh("latest")).json()["code"] == "freshness_unreachable"


def test_a_refusal_is_passed_on_in_the_engines_words(rig: Rig) -> None:
    client, engine, _ = rig
    engine.refusal = Problem(status=422, code="query_refused", detail="This is not one SELECT.", remedy="Send one.")
    answer = client.post(_QUERIES, json={"sql": "drop table t"})
    assert answer.status_code == 422
    assert answer.json()["code"] == "query_refused"
    assert answer.json()["detail"] == "This is not one SELECT."


def test_without_an_engine_there_is_no_answer(rig: Rig) -> None:
    client, engine, _ = rig
    engine.close()
    answer = client.post(_QUERIES, json={"sql": "s"})
    assert answer.status_code == 503
    assert answer.json()["code"] == "engine_unavailable"
    assert answer.json()["remedy"]


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ({}, "invalid_request", "/sql"),
        ({"sql": ""}, "invalid_request", "/sql"),
        ({"sql": "s", "max_rows": 0}, "invalid_request", "/max_rows"),
        ({"sql": "s", "freshness": {"mode": "fresh"}}, "invalid_request", "/freshness/mode"),
        ({"sql": "s", "freshness": {"mode": "position"}}, "invalid_request", "/freshness/position"),
        ({"sql": "s", "freshness": {"position": "0/1"}}, "invalid_request", "/freshness/position"),
        ({"sql": "s", "freshness": {"mode": "position", "position": "x"}}, "invalid_request", "/freshness/position"),
        ({"sql": "s", "freshness": {"on_timeout": "never"}}, "invalid_request", "/freshness/on_timeout"),
    ],
)
def test_wrong_queries_say_what_is_wrong(rig: Rig, body: dict[str, Any], code: str, pointer: str) -> None:
    answer = rig[0].post(_QUERIES, json=body)
    assert answer.status_code == 422
    assert answer.json()["code"] == code
    assert answer.json()["errors"][0]["pointer"] == pointer


def _rows_of(answer: httpx.Response) -> int:
    if answer.headers["content-type"].startswith("text/csv"):
        return answer.text.count("\r\n") - 1
    if answer.headers["content-type"] == PARQUET:
        return int(pq.read_table(io.BytesIO(answer.content)).num_rows)
    return int(pa.ipc.open_stream(io.BytesIO(answer.content)).read_all().num_rows)


def _incompressible(rows: int) -> pa.Table:
    """Rows of 1,000 characters each: a Parquet file of them is large too."""
    text = os.urandom(rows * 500).hex()
    return pa.table({"t": [text[at : at + 1_000] for at in range(0, len(text), 1_000)]})


@pytest.mark.parametrize("accept", EXPORTS)
def test_an_export_has_all_rows_where_no_number_is_given(rig: Rig, accept: str) -> None:
    client, engine, _ = rig
    engine.rows = pa.table({"n": pa.array(range(61_035), pa.int64()), "t": ["some text"] * 61_035})
    answer = client.post(_QUERIES, json={"sql": "s"}, headers={"Accept": accept})
    assert answer.status_code == 200
    assert _rows_of(answer) == 61_035
    command = engine.seen(Query)
    assert (command.max_rows, command.max_bytes) == (None, None)


@pytest.mark.parametrize("accept", EXPORTS)
def test_an_export_that_max_rows_cuts_is_an_error(rig: Rig, accept: str) -> None:
    client, engine, _ = rig
    answer = client.post(_QUERIES, json={"sql": "s", "max_rows": 2}, headers={"Accept": accept})
    assert (answer.status_code, answer.json()["code"]) == (422, "answer_cut")
    assert "max_rows" in answer.json()["remedy"]
    assert _rows_of(client.post(_QUERIES, json={"sql": "s", "max_rows": 3}, headers={"Accept": accept})) == 3
    assert engine.seen(Query).max_rows == 3


@pytest.mark.parametrize("accept", EXPORTS)
def test_a_long_export_that_max_rows_cuts_breaks_off(rig: Rig, accept: str) -> None:
    client, engine, _ = rig
    engine.rows = _incompressible(20_000)
    with pytest.raises(httpx.RemoteProtocolError):
        client.post(_QUERIES, json={"sql": "s", "max_rows": 18_000}, headers={"Accept": accept})


@pytest.mark.parametrize("accept", [*EXPORTS, "application/json"])
@pytest.mark.parametrize("why", ["refused", "broken"])
def test_what_goes_wrong_in_mid_stream_never_looks_like_a_whole_answer(rig: Rig, accept: str, why: str) -> None:
    client, engine, _ = rig
    problem = Problem(status=504, code="query_timeout", detail="It did not end.", remedy="Give it time.")
    engine.answers_end = AnswerEnd(problem=problem) if why == "refused" else None
    small = client.post(_QUERIES, json={"sql": "s"}, headers={"Accept": accept})
    assert (small.status_code, small.json()["code"]) == (
        (504, "query_timeout") if why == "refused" else (503, "engine_unavailable")
    )
    engine.rows = _incompressible(20_000)
    with pytest.raises(httpx.RemoteProtocolError):
        client.post(_QUERIES, json={"sql": "s"}, headers={"Accept": accept})


def test_a_table_cut_in_json_says_so(rig: Rig) -> None:
    client, engine, _ = rig
    engine.rows = pa.table({"n": pa.array(range(20_000), pa.int64())})
    answer = client.post(_QUERIES, json={"sql": "s"})
    assert (len(answer.json()["rows"]), answer.json()["truncated"]) == (10_000, True)
    assert answer.headers["Penstock-Truncated"] == "true"


def test_whoever_hangs_up_ends_the_answer(rig: Rig) -> None:
    """The server does not request rows from the engine that no client receives."""
    client, engine, _ = rig
    engine.rows = pa.table({"t": ["x" * 10_000] * 40_000})
    body = {"sql": "s"}
    with client.stream("POST", _QUERIES, json=body, headers={"Accept": "text/csv"}) as answer:
        next(answer.iter_bytes())
    assert engine.uploaded.wait(DEADLINE_S)
    assert engine.frames_sent < 40


def test_a_client_that_could_not_tell_gets_no_part_of_an_answer(rig: Rig) -> None:
    client, engine, _ = rig
    engine.rows = pa.table({"t": ["x" * 1_000] * 60_000})
    body = b'{"sql": "s"}'
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), DEADLINE_S) as old:
        head = f"POST /api/v1{_QUERIES} HTTP/1.0\r\nAuthorization: Bearer {ADMIN}\r\nAccept: text/csv\r\n"
        old.sendall(
            head.encode() + f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )
        answer = b"".join(iter(lambda: old.recv(65_536), b""))
    assert b" 505 " in answer.splitlines()[0]
    assert b"http_version_not_supported" in answer


def test_large_results_come_whole(rig: Rig) -> None:
    client, engine, _ = rig
    engine.rows = pa.table({"text": ["x" * 1_000_000] * 40})
    accept = {"Accept": "application/vnd.apache.arrow.stream"}
    answer = client.post(_QUERIES, json={"sql": "s"}, headers=accept)
    assert pa.ipc.open_stream(io.BytesIO(answer.content)).read_all() == engine.rows
