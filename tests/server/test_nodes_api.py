"""Nodes of a source over HTTP, in metrics, and in the words of waits: how far each is, and which one the others wait for."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.link.messages import Assign, Progress
from engine.model.position import Lsn
from engine.model.positions import SeveralLogsForm, first_uncovered
from engine.model.subscription_state import SubscriptionState
from server.freshness.node_progress import node_progress, vector
from server.freshness.subscription_status import SubscriptionStatus
from tests.fixtures.channel import DEADLINE_S, FakeEngine
from tests.server.test_partitioned_api import BODY, MART, partitioned, shop

PATH = "/subscriptions/s/nodes"
NAMES = ("b", "a", "c")
UNKNOWN = {
    "applied": None,
    "read": None,
    "source_end": None,
    "lag_bytes": None,
    "late": False,
    "away": None,
    "at": None,
}
"""A node of which nothing was reported."""
NEAR = {"away": None}
"""Of a node that is read."""


@pytest.fixture
def nodes_of_s(rig: tuple[httpx.Client, FakeEngine, Assign]) -> tuple[httpx.Client, FakeEngine, Assign]:
    """`s`, whose source has the nodes `b`, `a` and `c`, with the engine that runs it."""
    http, engine, _ = rig
    for number in range(1, 4):
        assert http.put(f"/connections/shop-{number}", json=shop(number)).status_code == 201
    body = partitioned("shop-1", "shop-2", "shop-3", names=NAMES)
    assert http.put("/connections/shops", json=body).status_code == 201
    elsewhere = {**MART, "settings": {"path": "/data/other.duckdb"}}
    assert http.put("/connections/other-mart", json=elsewhere).status_code == 201
    assert http.put("/subscriptions/s", json={**BODY, "target": "other-mart"}).status_code == 201
    return http, engine, engine.run("s", applied="0/40")


def report(engine: FakeEngine, assign: Assign, **more: Any) -> None:
    """A report of a merged log that ends at 0/50, of which `0/40` is applied."""
    logs = {
        "applied_of_logs": {"": "0/40", "a": "0/10", "b": "0/20", "c": "0/30"},
        "source_of_logs": {"a": "0/1F", "b": "0/20", "c": "0/29"},
        "read_of_logs": {"a": "0/10", "b": "0/20", "c": "0/29"},
    }
    engine.progress(assign, "0/40", **{"source": "0/50", "captured": "0/50", **logs, **more})
    assert engine.link.flush(DEADLINE_S)


def waited(http: httpx.Client, position: str, **more: Any) -> dict[str, Any]:
    body = {"position": position, "timeout_ms": 20, **more}
    found: dict[str, Any] = http.post("/subscriptions/s/freshness-waits", json=body).json()
    return found


def gauges(http: httpx.Client) -> dict[str, float]:
    """Those of nodes, by name and node."""
    root = str(http.base_url).removesuffix("/api/v1/")
    text = httpx.get(f"{root}/metrics", headers=http.headers, trust_env=False).text
    lines = (line.rpartition(" ") for line in text.splitlines() if line.startswith("penstock_node_"))
    return {f"{name.partition('{')[0]} {name.split(chr(34))[1]}": float(value) for name, _, value in lines}


def test_nodes_are_listed_in_the_order_of_the_connection(nodes_of_s: tuple[httpx.Client, FakeEngine, Assign]) -> None:
    http, engine, assign = nodes_of_s
    before = http.get(PATH).json()
    assert before["items"] == [{"name": name, **UNKNOWN} for name in NAMES]
    assert (before["applied"], before["source_end"]) == (None, None)
    assert gauges(http) == {}
    report(engine, assign, late_logs=["a"])
    found = http.get(PATH).json()
    at = found["items"][0]["at"]
    assert found["items"] == [
        {
            "name": "b",
            "applied": "0/20",
            "read": "0/20",
            "source_end": "0/20",
            "lag_bytes": 0,
            "late": False,
            **NEAR,
            "at": at,
        },
        {
            "name": "a",
            "applied": "0/10",
            "read": "0/10",
            "source_end": "0/1F",
            "lag_bytes": 15,
            "late": True,
            **NEAR,
            "at": at,
        },
        # What is applied is newer than the last check of the end.
        {
            "name": "c",
            "applied": "0/30",
            "read": "0/30",
            "source_end": "0/30",
            "lag_bytes": 0,
            "late": False,
            **NEAR,
            "at": at,
        },
    ]
    assert (found["applied"], found["source_end"]) == ("a=0/10,b=0/20,c=0/30", "a=0/1F,b=0/20,c=0/30")
    assert waited(http, found["applied"])["status"] == "satisfied"
    bytes_and_late = {"a": (15, 1), "b": (0, 0), "c": (0, 0)}
    lags = {f"penstock_node_lag_bytes {name}": lag for name, (lag, _) in bytes_and_late.items()}
    late = {f"penstock_node_late {name}": late for name, (_, late) in bytes_and_late.items()}
    assert gauges(http) == lags | late | {f"penstock_node_away {name}": 0 for name in bytes_and_late}


def test_they_are_listed_page_by_page(nodes_of_s: tuple[httpx.Client, FakeEngine, Assign]) -> None:
    http, engine, assign = nodes_of_s
    report(engine, assign)
    first = http.get(PATH, params={"page_size": 2}).json()
    last = http.get(PATH, params={"page_size": 2, "page_token": first["next_page_token"]}).json()
    assert [[item["name"] for item in page["items"]] for page in (first, last)] == [["b", "a"], ["c"]]
    assert (last["next_page_token"], last["applied"]) == (None, first["applied"])
    assert http.get(PATH, params={"page_token": "nonsense"}).json()["code"] == "page_token_invalid"


def test_a_node_that_was_appended_is_not_known_yet(nodes_of_s: tuple[httpx.Client, FakeEngine, Assign]) -> None:
    http, engine, assign = nodes_of_s
    report(engine, assign)
    assert http.put("/connections/shop-4", json=shop(4)).status_code == 201
    more = partitioned("shop-1", "shop-2", "shop-3", "shop-4", names=(*NAMES, "0"))
    assert http.put("/connections/shops", json=more).status_code == 200
    found = http.get(PATH).json()
    assert [item["name"] for item in found["items"]] == [*NAMES, "0"]
    assert found["items"][-1] == {"name": "0", **UNKNOWN}
    assert found["applied"] is None


def test_a_source_of_one_database_has_none(rig: tuple[httpx.Client, FakeEngine, Assign]) -> None:
    http = rig[0]
    found = http.get("/subscriptions/orders/nodes")
    assert (found.status_code, found.json()) == (
        200,
        {"items": [], "next_page_token": None, "applied": None, "source_end": None},
    )
    assert gauges(http) == {}
    assert http.get("/subscriptions/none/nodes").json()["code"] == "not_found"


def test_a_node_is_late_while_the_subscription_runs_or_cannot_reach_it(
    nodes_of_s: tuple[httpx.Client, FakeEngine, Assign],
) -> None:
    http, engine, assign = nodes_of_s
    report(engine, assign, late_logs=["a"])

    def late() -> list[str]:
        return [item["name"] for item in http.get(PATH).json()["items"] if item["late"]]

    assert late() == ["a"]
    why = {"code": "source_unreachable", "reason": "shops/c: connection failed: refused", "remedy": "Look."}
    engine.state(assign, "starting", **why)
    assert late() == ["c"]
    engine.state(assign, "starting", **{**why, "reason": "shops: connection failed: at /c: refused"})
    assert late() == []
    # The path of a target, not a node.
    engine.state(assign, "starting", code="target_locked", reason="/data/c: another process has it", remedy="Look.")
    assert late() == []
    engine.state(assign, "failed", **{**why, "reason": "shops/c: connection failed: refused"})
    assert late() == []


def test_a_node_that_cannot_be_read_has_the_reason_everywhere(
    nodes_of_s: tuple[httpx.Client, FakeEngine, Assign],
) -> None:
    http, engine, assign = nodes_of_s
    why = {"since": "2026-05-04T10:00:00Z", "code": "source_unreachable", "reason": "connection refused"}
    report(engine, assign, late_logs=["a"], away_logs={"a": why})
    assert [item["away"] for item in http.get(PATH).json()["items"]] == [None, why, None]
    assert [gauges(http)[f"penstock_node_away {name}"] for name in NAMES] == [0, 1, 0]
    health = http.get("/subscriptions/s").json()["health"]
    assert (health["status"], health["word"]) == ("attention", "node_away")
    assert "a (connection refused)" in health["reason"]
    assert waited(http, "70")["detail"].endswith(
        "; changes wait for the log of node a (a cannot be read: connection refused)."
    )
    report(engine, assign)
    assert [item["away"] for item in http.get(PATH).json()["items"]] == [None] * 3
    assert http.get("/subscriptions/s").json()["health"]["word"] != "node_away"


def test_a_wait_that_is_too_long_names_the_nodes(nodes_of_s: tuple[httpx.Client, FakeEngine, Assign]) -> None:
    http, engine, assign = nodes_of_s
    report(engine, assign, late_logs=["a"])
    merged = waited(http, "70")  # 0/46
    assert merged["detail"] == "'s' had applied 64 after 20 ms, not yet 70; changes wait for the log of node a."
    assert (merged["beyond_source"], merged["remedy"].partition(":")[0]) == (False, "Look at the node")
    vectors = waited(http, "a=0/12,b=0/20")
    assert (
        vectors["detail"] == "'s' had applied a=0/10 after 20 ms, not yet a=0/12; changes wait for the log of node a."
    )
    report(engine, assign)
    unread = waited(http, "70")["detail"]
    assert unread.endswith("; the logs of these nodes are not read to their ends: a up to 0/10 of 0/1F.")
    beyond = waited(http, "a=0/12,b=0/99")
    assert "had applied a=0/10,b=0/20" in beyond["detail"]
    assert "which lies beyond a=0/1F,b=0/20, the last known end" in beyond["detail"]
    assert beyond["beyond_source"] is True
    report(
        engine,
        assign,
        read_of_logs={"a": "0/11", "b": "0/21", "c": "0/31"},
        source_of_logs=dict.fromkeys("abc", "0/90"),
    )
    assert waited(http, "70")["detail"] == "'s' had applied 64 after 20 ms, not yet 70."


def test_now_is_not_beyond_the_end_of_the_log(nodes_of_s: tuple[httpx.Client, FakeEngine, Assign]) -> None:
    """It was read on the source, after the last check of the end."""
    http, engine, assign = nodes_of_s
    report(engine, assign, late_logs=["a"])
    engine.now = "0/99"
    now = http.post("/subscriptions/s/freshness-waits", json={"timeout_ms": 300}).json()
    assert now["detail"] == "'s' had applied 64 after 300 ms, not yet 153; changes wait for the log of node a."
    assert (now["beyond_source"], now["remedy"].partition(":")[0]) == (False, "Look at the node")


_positions = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9).map(Lsn))


@given(_positions, _positions, _positions, st.sets(st.sampled_from(NAMES)), st.sampled_from(SubscriptionState))
def test_figures_of_nodes_agree_with_each_other(
    applied: dict[str, Lsn], read: dict[str, Lsn], ends: dict[str, Lsn], late: set[str], state: SubscriptionState
) -> None:
    status = SubscriptionStatus(name="s", form=SeveralLogsForm(), state=state)
    logs = {
        "applied_of_logs": {**applied, "": 1},
        "read_of_logs": read,
        "source_of_logs": ends,
        "late_logs": tuple(late),
    }
    fields = {"subscription": "s", "epoch": 1, "applied": 1, "at": "2026-01-01T00:00:00Z", **logs}
    status.progress = Progress.model_construct(**fields)
    nodes = node_progress(status, NAMES)
    assert [node.name for node in nodes] == list(NAMES)
    for node in nodes:
        assert node.lag_bytes is None or node.lag_bytes >= 0
        assert (node.lag_bytes is None) == (node.name not in applied or node.name not in ends)
        assert node.applied is None or all(at is None or at >= node.applied for at in (node.read, node.end))
        assert node.late == (state is SubscriptionState.RUNNING and node.name in late)
    whole = vector(status.form, {node.name: node.applied for node in nodes})
    assert (whole is None) == (len(applied) < len(NAMES))
    if whole is not None:
        assert first_uncovered(status.applied_marks, status.form.parse(whole)) is None
    assert [node.name for node in node_progress(status)] == sorted(applied)
