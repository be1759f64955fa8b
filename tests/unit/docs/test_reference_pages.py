"""The reference pages say what the code says."""

from __future__ import annotations

import os

import pytest

from docs import generate
from engine.model import values
from engine.model.fault import FaultKind
from engine.model.schema import Column
from engine.model.subscription_state import SubscriptionState
from engine.model.table_state import TableStateKind
from engine.model.values import Kind, value_type
from engine.platform.fault_policy import Action
from server.cli.exit_codes import ExitCode


@pytest.mark.parametrize("name", sorted(generate.PAGES))
def test_page_is_up_to_date(name: str) -> None:
    path = generate.FOLDER / name
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(generate.PAGES[name](), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == generate.PAGES[name](), "run python docs/generate.py"


def test_the_type_table_shows_every_kind_of_value() -> None:
    shown = {value_type(Column("v", source, 1)).kind for _, source, _ in generate.TYPES}
    assert shown == set(Kind)


def test_the_type_table_names_every_type_with_a_rule_of_its_own() -> None:
    named = " ".join(label for label, _, _ in generate.TYPES)
    spelled = {"bool": "boolean", "int2": "smallint", "int4": "integer", "int8": "bigint", "bpchar": "char(n)"}
    spelled |= {"float4": "real", "float8": "double precision"}
    for name in values._FIXED:
        assert spelled.get(name, name) in named


def test_every_state_and_exit_code_has_a_meaning() -> None:
    assert set(generate.SUBSCRIPTION_MEANINGS) == set(SubscriptionState)
    assert set(generate.TABLE_MEANINGS) == set(TableStateKind)
    assert set(generate.EXIT_MEANINGS) == set(ExitCode)
    assert set(generate.ACTION_MEANINGS) == set(Action)


def test_the_command_line_page_has_a_command_of_every_group() -> None:
    page = generate.cli_page()
    for heading in ("penstock apply", "penstock ticket", "penstock tables reload", "penstock bench run"):
        assert f"\n## {heading}\n" in page


def test_the_fault_table_has_every_kind() -> None:
    page = generate.faults_page()
    for kind in FaultKind:
        assert f"| `{kind.value}` |" in page


def test_no_page_holds_a_path_of_this_machine() -> None:
    for render in generate.PAGES.values():
        assert str(generate.FOLDER.parent) not in render()
