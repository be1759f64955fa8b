"""Commands about freshness goals, against a fake server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from server.cli.exit_codes import ExitCode
from server.goals.schemas import FreshnessGoalView
from tests.fixtures.stand_in import Run, StandIn

EXAMPLE: dict[str, Any] = FreshnessGoalView.model_json_schema()["examples"][0]
TABLE = {"id": "t1", "schema": "public", "name": "orders"}
SPENT = {
    **EXAMPLE,
    "table": TABLE,
    "met": False,
    "budget": {"total_seconds": 3024.0, "used_seconds": 3100.0, "left_seconds": -76.0},
}


def test_goals_are_shown_and_a_spent_budget_has_an_exit_code(stand_in: StandIn, run: Run) -> None:
    stand_in.replies["GET", "/subscriptions"] = (200, {"items": [{"name": "m"}]})
    path = "GET", "/subscriptions/m/freshness-goals"
    stand_in.replies[path] = (200, {"items": [EXAMPLE]})
    shown = run("goals", "show")
    assert shown.exit_code == ExitCode.DONE
    stand_in.replies[path] = (200, {"items": [EXAMPLE, SPENT]})
    answer = run("goals", "show", "--json")
    assert answer.exit_code == ExitCode.DIFFERENT
    assert json.loads(answer.stdout) == {"subscription": "m", "goals": [EXAMPLE, SPENT]}
    stand_in.replies[path] = (200, {"items": []})
    assert "no freshness goal" in run("goals", "show").stdout


def test_the_table_has_goal_and_budget(stand_in: StandIn, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[list[str | None]] = []
    monkeypatch.setattr("server.cli.goal_commands.print_table", lambda _, rows: printed.extend(rows))
    stand_in.replies["GET", "/subscriptions/m/freshness-goals"] = (200, {"items": [EXAMPLE, SPENT]})
    assert run("goals", "show", "-s", "m").exit_code == ExitCode.DIFFERENT
    met, spent = printed
    assert met[:3] == ["m", "99.5 % in 10.0 s over 7 days", "[green]99.871 %[/]"]
    assert met[-1] == "8 min from 2026-05-09T02:10:00Z"
    assert spent[0] == "public.orders"
    assert str(spent[3]).startswith("-76")


@pytest.mark.parametrize(
    ("arguments", "path", "freshness"),
    [
        (("set", "--percent", "99.5"), "", {"goal_percent": 99.5}),
        (
            ("set", "--percent", "99", "--lag", "500ms", "--window", "168h", "--exclude-pauses"),
            "",
            {"goal_percent": 99, "goal_seconds": 0.5, "window_hours": 168, "count_pauses": False},
        ),
        (("set", "--lag", "2s", "--table", "public.orders"), "/tables/t1", {"goal_seconds": 2}),
        (("remove",), "", {"goal_percent": None, "window_hours": None, "count_pauses": None}),
        (("remove", "--table", "t1"), "/tables/t1", None),
    ],
)
def test_a_goal_is_set_and_removed(
    stand_in: StandIn, run: Run, arguments: tuple[str, ...], path: str, freshness: Any
) -> None:
    stand_in.replies["GET", "/subscriptions/m/tables"] = (200, {"items": [TABLE]})
    stand_in.replies["PATCH", f"/subscriptions/m{path}"] = (200, {**TABLE, "name": "m"})
    result = run("goals", *arguments, "-s", "m")
    assert result.exit_code == ExitCode.DONE, result.stderr
    assert stand_in.requests[-1][:3] == ("PATCH", f"/api/v1/subscriptions/m{path}", {"freshness": freshness})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "name what to set"),
        (("--lag", "soon"), "--lag"),
        (("--window", "7x"), "--window"),
        (("--window", "90m"), "full hours"),
    ],
)
def test_what_is_given_wrongly_is_refused_before_any_request(
    stand_in: StandIn, run: Run, arguments: tuple[str, ...], says: str
) -> None:
    result = run("goals", "set", *arguments, "-s", "m")
    assert result.exit_code == ExitCode.USAGE
    assert says in result.stderr
    assert stand_in.requests == []
