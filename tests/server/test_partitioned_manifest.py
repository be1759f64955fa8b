"""Connections that consist of others on the command line: in files of `apply` and `export`, and in lists."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from server.cli.exit_codes import ExitCode
from server.cli.manifest import parse
from tests.server.conftest import PlayedEngine, Run

URL = "/api/v1/connections"
FILE = """
connections:
  all-shops:
    kind: partitioned
    settings:
      nodes:
        - {name: n1, connection: shop-1}
        - {name: n2, connection: shop-2}
  mart: {kind: duckdb, settings: {path: mart.duckdb}}
  shop-1: {kind: postgres, settings: {host: db1, database: shop, user: penstock}}
  shop-2: {kind: postgres, settings: {host: db2, database: shop, user: penstock}, secrets: {password: hidden}}
subscriptions:
  s:
    source: all-shops
    target: mart
    tables: [{schema: public, name: orders}]
    capture: {kind: postgres_logs, order: strict, gid_pattern: "^(?P<gtid>.+)@"}
"""
MORE = """
connections:
  all-shops:
    kind: partitioned
    settings:
      nodes:
        - {name: n1, connection: shop-1}
        - {name: n2, connection: shop-2}
        - {name: n3, connection: shop-3}
  shop-3: {kind: postgres, settings: {host: db3, database: shop, user: penstock}}
"""


def results(run: Run, text: str, *options: str) -> list[tuple[str, str]]:
    shown = run("apply", "-", "--json", *options, stdin=text)
    assert shown.exit_code == 0, shown.output
    return [(result["name"], result["result"]) for result in json.loads(shown.stdout)["results"]]


def test_one_file_makes_the_nodes_and_the_whole(client: TestClient, run: Run) -> None:
    """The whole comes after its nodes, wherever it is in the file; it cannot be planned by the server before they exist."""
    made = [(name, "created") for name in ("mart", "shop-1", "shop-2", "all-shops", "s")]
    assert results(run, FILE, "--dry-run") == made
    assert client.get(URL).json()["items"] == []
    assert results(run, FILE) == made
    assert results(run, FILE) == [(name, "unchanged") for name, _ in made]
    assert client.get("/api/v1/subscriptions/s").json()["capture"]["order"] == "strict"


def test_a_file_adds_a_new_node_to_a_source_in_use(client: TestClient, run: Run) -> None:
    results(run, FILE)
    assert results(run, MORE, "--dry-run") == [("shop-3", "created"), ("all-shops", "changed")]
    shown = run("apply", "-", stdin=MORE)
    assert shown.exit_code == 0, shown.output
    assert "settings.nodes: n1:shop-1 n2:shop-2 → n1:shop-1 n2:shop-2 n3:shop-3" in shown.stdout
    assert [node["name"] for node in client.get(f"{URL}/all-shops").json()["settings"]["nodes"]] == ["n1", "n2", "n3"]
    assert results(run, MORE) == [("shop-3", "unchanged"), ("all-shops", "unchanged")]


def test_a_file_does_not_move_nodes_in_use(client: TestClient, run: Run) -> None:
    results(run, FILE)
    document = yaml.safe_load(FILE)
    nodes = document["connections"]["all-shops"]["settings"]["nodes"]
    nodes.reverse()
    refused = run("apply", "-", stdin=json.dumps({"connections": {"all-shops": document["connections"]["all-shops"]}}))
    assert refused.exit_code == ExitCode.REFUSED
    assert client.get(f"{URL}/all-shops").json()["settings"]["nodes"] == list(reversed(nodes))


def test_a_node_that_nothing_makes_is_refused_before_any_change(client: TestClient, run: Run) -> None:
    text = FILE.replace("connection: shop-2", "connection: shop-9")
    refused = run("apply", "-", stdin=text)
    assert refused.exit_code != 0
    items = [item["name"] for item in client.get(URL).json()["items"]]
    assert "all-shops" not in items


def test_what_is_exported_can_be_applied(client: TestClient, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    results(run, FILE)
    exported = run("export")
    assert exported.exit_code == 0, exported.output
    assert "hidden" not in exported.stdout
    assert list(yaml.safe_load(exported.stdout)["connections"]) == ["all-shops", "mart", "shop-1", "shop-2"]
    monkeypatch.setenv("SHOP_2_PASSWORD", "hidden")
    assert {result for _, result in results(run, exported.stdout)} == {"unchanged"}
    before = client.get("/api/v1/subscriptions/s").json()["capture"]
    client.delete("/api/v1/subscriptions/s")
    for name in ("all-shops", "mart", "shop-1", "shop-2"):
        assert client.delete(f"{URL}/{name}").status_code == 204
    assert {result for _, result in results(run, exported.stdout)} == {"created"}
    assert client.get("/api/v1/subscriptions/s").json()["capture"] == before


def test_lists_show_the_nodes(run: Run) -> None:
    results(run, FILE)
    assert "nodes=n1:shop-1 n2:shop-2" in run("connections", "list").stdout
    kinds = run("connections", "kinds").stdout
    assert "partitioned" in kinds
    assert "postgres_logs" in kinds


@pytest.mark.filterwarnings("ignore:You should not use the 'timeout' argument")
def test_a_check_names_the_capture(run: Run, engine: PlayedEngine) -> None:
    results(run, FILE)
    engine.answers = {"preflight": {"findings": []}}
    assert run("connections", "check", "all-shops", "--capture", "postgres_logs").exit_code == 0
    assert engine.asked[0][1]["capture"] == {"kind": "postgres_logs", "settings": {"order": "causal"}}
    assert run("connections", "check", "all-shops", "--publication", "mine").exit_code != 0
    assert len(engine.asked) == 1


BODIES = st.fixed_dictionaries(
    {"kind": st.just("partitioned")},
    optional={
        "settings": st.none()
        | st.integers()
        | st.dictionaries(
            st.sampled_from(["nodes", "x"]),
            st.none()
            | st.integers()
            | st.lists(
                st.integers() | st.dictionaries(st.sampled_from(["name", "connection"]), st.text() | st.integers())
            ),
        )
    },
)


@given(body=BODIES)
def test_a_body_of_any_shape_is_left_to_the_server(body: dict[str, Any]) -> None:
    plain = {"kind": "duckdb", "settings": {"path": "p"}}
    text = json.dumps({"connections": {"a": body, "b": plain}}).replace("${", "$${")
    assert sorted(resource.name for resource in parse(text, {})) == ["a", "b"]
