"""The command about nodes, against a fake server."""

from __future__ import annotations

import json
from typing import Any

from server.cli.exit_codes import ExitCode
from server.nodes.schemas import NodeView
from tests.fixtures.stand_in import Run, StandIn

NODE: dict[str, Any] = NodeView.model_json_schema()["examples"][0]
UNKNOWN = {**dict.fromkeys(NODE), "name": "n3", "late": False}
LIST = "GET", "/subscriptions/m/nodes"


def test_nodes_are_listed_with_the_one_that_others_wait_for(stand_in: StandIn, run: Run) -> None:
    late = {**NODE, "name": "n2", "late": True, "lag_bytes": 3 * 1024}
    ends = {"applied": "n1=0/16B3748,n2=0/16B3748", "source_end": None}
    stand_in.replies[LIST] = (200, {"items": [NODE, late, UNKNOWN], "next_page_token": None, **ends})
    shown = run("nodes", "-s", "m")
    assert shown.exit_code == ExitCode.DONE, shown.output
    first, second, third = shown.stdout.splitlines()[1:]
    assert first.split() == ["n1", NODE["applied"], NODE["read"], NODE["source_end"], "56", "B", "–", NODE["at"]]
    assert "3 KiB" in second
    assert "others wait for it" in second
    assert third.split() == ["n3", *["–"] * 6]
    assert "which waits accept: n1=0/16B3748,n2=0/16B3748" in shown.stderr
    document = json.loads(run("nodes", "-s", "m", "--json").stdout)
    assert document == {"subscription": "m", **ends, "nodes": [NODE, late, UNKNOWN]}


def test_a_source_of_one_database_says_so(stand_in: StandIn, run: Run) -> None:
    stand_in.replies[LIST] = (200, {"items": [], "next_page_token": None, "applied": None, "source_end": None})
    shown = run("nodes", "-s", "m")
    assert shown.exit_code == ExitCode.DONE, shown.output
    assert shown.stderr.strip() == "The source is one database."
