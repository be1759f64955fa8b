"""Operations in remedies exist in REST and on the command line, and no remedy leaves one in words of REST to a terminal."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from engine.platform.fault_policy import POLICIES
from server.cli.main import app
from server.errors import NotFound
from server.remedies import OPERATIONS, Operation, actions_of, arguments_of, in_commands

REPOSITORY = Path(__file__).parents[3]
CALL = re.compile(r"(?<!`)\b(GET|POST|PUT|PATCH|DELETE) [/…]")
REST_NAMES = {"subscription": "name", "connection": "name", "table": "table_id"}
KNOWN = {"subscription": "shop", "table": "public.orders", "connection": "src"}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.action)
def test_an_action_exists_in_rest_with_its_arguments(operation: Operation) -> None:
    document = json.loads((REPOSITORY / "tests/golden/openapi.json").read_text())
    found = {
        item["operationId"]: {part["name"] for part in item.get("parameters", []) if part["in"] == "path"}
        for path in document["paths"].values()
        for item in path.values()
    }
    assert {REST_NAMES[name] for name in arguments_of(operation)} <= found[operation.operation_id]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.action)
def test_an_action_exists_on_the_command_line_with_its_arguments(operation: Operation) -> None:
    words = operation.command.split()
    command: Any = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    assert not isinstance(command, click.Group) or command.invoke_without_command
    command.make_context("penstock", words, resilient_parsing=False)


def _texts(path: Path) -> Iterator[str]:
    """Literal texts of a module but docstrings; what is filled in is `{x}`."""
    tree = ast.parse(path.read_text())
    documented = [node for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    left_out = {id(part) for node in documented for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            left_out |= {id(part) for part in node.values}
            parts = [part.value if isinstance(part, ast.Constant) else "{x}" for part in node.values]
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.value


def _all_texts() -> list[str]:
    modules = [*(REPOSITORY / "engine").rglob("*.py"), *(REPOSITORY / "server").rglob("*.py")]
    table = REPOSITORY / "server/remedies.py"
    return [text for path in modules if path != table for text in _texts(path) if CALL.search(text)]


def test_no_text_for_people_names_an_operation_that_is_no_action() -> None:
    texts = [*_all_texts(), *(policy.remedy for policy in POLICIES.values())]
    assert sum(1 for text in texts if CALL.search(text)) > 40
    for text in texts:
        shown = in_commands(text, [action.model_dump() for action in actions_of(text, KNOWN)])
        assert not CALL.search(shown), shown
        assert "set desired_state to running" not in shown


def test_help_names_no_operation_of_rest() -> None:
    waiting: list[Any] = [typer.main.get_command(app)]
    seen = 0
    while waiting:
        command = waiting.pop()
        waiting.extend(getattr(command, "commands", {}).values())
        seen += 1
        texts = [command.help or "", *(getattr(part, "help", None) or "" for part in command.params)]
        assert not any(CALL.search(text) for text in texts), command.name
    assert seen > 40


def test_arguments_come_from_the_text_and_from_where_it_is_shown() -> None:
    remedy = POLICIES[next(kind for kind in POLICIES if kind.value == "row_refused")].remedy
    actions = [action.model_dump() for action in actions_of(remedy, KNOWN)]
    of_table = {"subscription": "shop", "table": "public.orders"}
    assert actions == [
        {
            "action": "table.refused_rows",
            "arguments": of_table,
            "command": "penstock refused list public.orders -s shop",
        },
        {"action": "table.retry", "arguments": of_table, "command": "penstock tables retry public.orders -s shop"},
    ]
    assert "'penstock tables retry public.orders -s shop' then" in in_commands(remedy, actions)
    assert "'penstock tables retry TABLE -s SUBSCRIPTION' then" in in_commands(remedy, ())
    text = "GET /api/v1/subscriptions/mart-2.b/tables lists its tables; POST /subscriptions/a/tables/t1/approvals."
    assert in_commands(text, ()) == (
        "'penstock tables -s mart-2.b' lists its tables; 'penstock tables approve t1 -s a'."
    )
    assert actions_of(text, {})[1].arguments == {"subscription": "a", "table": "t1"}
    assert in_commands("Set desired_state to running.", (), {"subscription": "a"}) == (
        "Run 'penstock subscriptions resume a'."
    )
    assert in_commands("POST /subscriptions/{name}/other", ()) == "POST /subscriptions/{name}/other"
    assert actions_of(None, KNOWN) == []


def test_a_problem_has_the_actions_of_its_remedy() -> None:
    problem = NotFound("No such thing.", "GET /api/v1/connections/src/tables lists them.")
    [action] = problem.body("0" * 32)["actions"]
    assert action == {
        "action": "connection.tables",
        "arguments": {"connection": "src"},
        "command": "penstock connections tables src",
    }


def test_a_command_quotes_what_it_is_given_and_names_what_it_lacks() -> None:
    remedy = "POST /subscriptions/{name}/tables/{table_id}/reloads copies it."
    [odd] = actions_of(remedy, {"subscription": "shop", "table": "public.or ders; rm"})
    assert odd.command == "penstock tables reload 'public.or ders; rm' -s shop"
    [unknown] = actions_of(remedy, {})
    assert unknown.command == "penstock tables reload TABLE -s SUBSCRIPTION"
