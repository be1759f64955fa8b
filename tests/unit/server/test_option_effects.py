"""When a changed option of a table takes effect, and what it costs."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from engine.model.masks import Mask, MaskMethod
from engine.model.subscription import SchemaPolicy
from engine.model.table_options import TableOptions
from engine.model.table_state import TableStateKind
from server.tables.effects import OptionEffect, effect_of, needs_new_start

LIVE, APPLY = TableStateKind.LIVE, SchemaPolicy.APPLY
NEW_COPY, IN_PLACE, AT_ONCE = OptionEffect.NEW_COPY, OptionEffect.IN_PLACE, OptionEffect.AT_ONCE
PARKS, NEXT_RELOAD = OptionEffect.PARKS, OptionEffect.NEXT_RELOAD


def effect(before: dict[str, Any], after: dict[str, Any], *, on: str | None = None, **where: Any) -> OptionEffect:
    (option,) = after if on is None else (on,)
    named = "columns" if option == "map_as" else option
    state, policy = where.get("state", LIVE), where.get("policy", APPLY)
    return effect_of(named, TableOptions(**before), TableOptions(**after), state, policy)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ({"key": ("a",)}, NEW_COPY),
        ({"where": "a > 1"}, NEW_COPY),
        ({"insert_only": True}, NEW_COPY),
        ({"deletes": "mark"}, NEW_COPY),
        ({"history": True}, NEW_COPY),
        ({"map_as": {"a": "text"}}, NEW_COPY),
        ({"mask": {"a": Mask(MaskMethod.NULL)}}, NEW_COPY),
        ({"rename": {"a": "b"}}, IN_PLACE),
        ({"include_columns": ("a",)}, IN_PLACE),
        ({"exclude_columns": ("a",)}, IN_PLACE),
        ({"into_existing": True}, NEXT_RELOAD),
        ({"operations": frozenset({"insert"})}, NEW_COPY),
        ({"operations": frozenset({"insert", "update", "delete", "truncate"})}, AT_ONCE),
        ({"priority": 2}, AT_ONCE),
        ({"refused_rows": "set_aside"}, AT_ONCE),
    ],
)
def test_effect_of_each_option(after: dict[str, Any], expected: OptionEffect) -> None:
    assert effect({}, after) is expected
    assert effect({}, after, state=TableStateKind.REGISTERED) is AT_ONCE
    assert effect({}, after, state=TableStateKind.PARKED) is (AT_ONCE if expected is AT_ONCE else NEXT_RELOAD)


def test_every_option_has_a_case() -> None:
    (mark,) = [each for each in test_effect_of_each_option.pytestmark if each.name == "parametrize"]
    assert {name for after, _ in mark.args[1] for name in after} == {each.name for each in fields(TableOptions)}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"exclude_columns": ("a", "b")}, {"exclude_columns": ("a",)}, NEW_COPY),
        ({"exclude_columns": ("a",)}, {"exclude_columns": ("a", "b")}, IN_PLACE),
        ({"include_columns": ("a", "b")}, {"include_columns": ("b",)}, IN_PLACE),
        ({"include_columns": ("a",)}, {"include_columns": ("a", "b")}, NEW_COPY),
        ({"include_columns": ("a",)}, {"include_columns": ()}, NEW_COPY),
        ({"include_columns": ("a",)}, {"include_columns": ("a",), "exclude_columns": ("b",)}, IN_PLACE),
    ],
)
def test_columns_that_may_come_back_need_a_copy(
    before: dict[str, Any], after: dict[str, Any], expected: OptionEffect
) -> None:
    assert effect(before, after, on="exclude_columns") is expected
    assert effect(before, after, on="include_columns") is expected


@pytest.mark.parametrize(
    ("policy", "copied", "in_place"),
    [(SchemaPolicy.ASK, PARKS, PARKS), (SchemaPolicy.IGNORE, PARKS, NEXT_RELOAD)],
)
def test_a_subscription_that_does_not_follow_changes(
    policy: SchemaPolicy, copied: OptionEffect, in_place: OptionEffect
) -> None:
    assert effect({}, {"where": "a > 1"}, policy=policy) is copied
    assert effect({}, {"rename": {"a": "b"}}, policy=policy) is in_place
    assert effect({}, {"priority": 1}, policy=policy) is AT_ONCE


@pytest.mark.parametrize(
    ("options", "expected"), [(["mask"], True), (["priority", "insert_only"], True), (["rename", "where"], False)]
)
def test_which_options_a_run_takes_at_its_start(options: list[str], expected: bool) -> None:
    assert needs_new_start(options) is expected
