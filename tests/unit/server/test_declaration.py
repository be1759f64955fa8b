"""What declared tables mean: patterns, precedence, names on the target. And further small pure functions."""

from __future__ import annotations

import base64
import json
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.connectors import CONNECTIONS
from engine.model.identity import TableName
from engine.model.masks import Mask, MaskMethod
from engine.model.quarantine import RefusedPolicy
from engine.model.soft_delete import DeleteMode
from engine.model.table_options import TableOptions
from server.db.models.table import TableRow
from server.declarations.table_body import TableBody, preflight_specs
from server.declarations.table_declaration import OccupiedPlaces, check_targets, declare_table, resolve_tables
from server.declarations.table_options import (
    OPTION_NAMES,
    TableOptionsBody,
    declared_options,
    options_of,
    stored_options,
    table_spec,
)
from server.error_handlers import json_pointer
from server.errors import InvalidRequest
from server.paging import PageRequest, PageTokenInvalid, _parse
from server.tables.schemas import TablePatch, TableView

DUCK = CONNECTIONS["duckdb"]
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda name: "*" not in name
)


def body(**given_fields: Any) -> TableBody:
    return TableBody.model_validate({"schema": "public", "name": "a", **given_fields})


@given(st.lists(st.tuples(names, names), max_size=30))
def test_every_declared_table_is_meant_once_or_all_are_refused(tables: list[tuple[str, str]]) -> None:
    bodies = [body(schema=schema, name=name) for schema, name in tables]
    folded = {(DUCK.fold(schema), DUCK.fold(name)) for schema, name in tables}
    reserved = any(DUCK.fold(schema) in DUCK.own_schemas for schema, _ in tables)
    if len(folded) == len(tables) and not reserved:
        assert [table.source for table in resolve_tables(bodies, [], DUCK, "s")] == tables
    else:
        with pytest.raises(InvalidRequest):
            resolve_tables(bodies, [], DUCK, "s")


@given(names, st.sets(names, min_size=1, max_size=10))
def test_a_pattern_means_the_tables_of_its_schema(schema: str, found: set[str]) -> None:
    if DUCK.fold(schema) in DUCK.own_schemas or len({DUCK.fold(name) for name in found}) < len(found):
        return
    discovered = [{"schema": schema, "name": name, "key": ["id"]} for name in found]
    discovered.append({"schema": schema + "x", "name": "other", "key": []})
    tables = resolve_tables([body(schema=schema, name="*")], discovered, DUCK, "s")
    assert {table.name for table in tables} == found
    assert all(table.from_pattern and table.schema == schema for table in tables)


def test_a_pattern_takes_what_its_name_says_but_for_what_it_leaves_out_and_for_what_was_removed() -> None:
    found = ["order", "order_1", "order_2", "order_2_old", "orders", "x_order_1"]
    discovered = [{"schema": "public", "name": name, "key": ["id"]} for name in found]

    def meant(name: str, *, kept_out: tuple[str, ...] = (), **more: Any) -> list[str]:
        out = [("public", each) for each in kept_out]
        return [t.name for t in resolve_tables([body(name=name, **more)], discovered, DUCK, "s", out)]

    assert meant("order_*") == ["order_1", "order_2", "order_2_old"]
    assert meant("*order*1") == ["order_1", "x_order_1"]
    assert meant("order_*", exclude=["*_old", "order_1"]) == ["order_2"]
    assert meant("order_*", kept_out=("order_2",)) == ["order_1", "order_2_old"]
    assert meant("nothing_*") == []
    named = body(name="order_1", key=["id"])
    assert [
        t.options.key
        for t in resolve_tables([named, body(name="order_*")], discovered, DUCK, "s", [("public", "order_1")])
    ] == [
        ("id",),
        (),
        (),
    ]


def test_a_name_with_an_asterisk_in_it_can_be_declared_exactly() -> None:
    (table,) = resolve_tables([body(name="a*", exact=True)], [{"schema": "public", "name": "ab", "key": []}], DUCK, "s")
    assert (table.name, table.from_pattern) == ("a*", False)
    with pytest.raises(ValidationError, match="only a pattern"):
        body(name="a*", exact=True, exclude=["b"])


def test_two_patterns_may_not_put_one_name_twice_into_one_schema() -> None:
    discovered = [{"schema": schema, "name": "t", "key": ["id"]} for schema in ("a", "b")]
    with pytest.raises(InvalidRequest, match=r"'b\.t' and 'a\.t' would be the same table"):
        resolve_tables([body(schema=s, name="*", target={"schema": "all"}) for s in ("a", "b")], discovered, DUCK, "s")


def test_case_is_ignored_of_ascii_letters_only() -> None:
    assert DUCK.fold("ÄB") == "Äb"
    assert CONNECTIONS["postgres"].fold("AB") == "AB"
    taken = OccupiedPlaces({(DUCK.fold("public"), DUCK.fold("Orders")): "public.Orders"}, [])
    with pytest.raises(InvalidRequest) as refused:
        check_targets([declare_table(body(name="orders"), "", "s")], DUCK, taken)
    assert refused.value.errors[0].pointer == ""


@pytest.mark.parametrize(
    ("operations", "insert_only", "followed"),
    [
        ((), False, ["delete", "insert", "truncate", "update"]),
        ((), True, ["insert", "truncate"]),
        (("insert",), False, ["insert"]),
        (("insert",), True, ["insert"]),
    ],
)
def test_consent_to_inserts_limits_what_is_followed(
    operations: tuple[str, ...], insert_only: bool, followed: list
) -> None:
    options = TableOptions(operations=frozenset(operations), insert_only=insert_only)
    made = table_spec("t1", TableName("s", "n"), TableName("s", "n"), options)
    assert made.operations == set(followed)


def test_an_option_that_is_declared_is_stored_and_comes_back() -> None:
    """In the row there is a column for each, of its name and with its default."""
    columns = TableRow.__table__.columns  # type: ignore[attr-defined]
    assert set(OPTION_NAMES) <= {column.name for column in columns}
    assert stored_options(TableOptions()) == {
        name: TableRow.model_fields[name].get_default(call_default_factory=True) for name in OPTION_NAMES
    }
    every = TableOptions(
        key=("a", "b"),
        operations=frozenset({"insert", "truncate"}),
        where="x",
        insert_only=True,
        map_as={"a": "text"},
        into_existing=True,
        include_columns=("a*", "b"),
        exclude_columns=("ab",),
        mask={"a": Mask(MaskMethod.HASH), "b": Mask(MaskMethod.CONSTANT, "x")},
        rename={"a": "c"},
        priority=7,
        refused_rows=RefusedPolicy.SET_ASIDE,
    )
    others = TableOptions(deletes=DeleteMode.MARK, history=True)
    for each in fields(TableOptions):
        default = getattr(TableOptions(), each.name)
        assert any(getattr(options, each.name) != default for options in (every, others))
    for options in (every, others):
        row = SimpleNamespace(**stored_options(options))
        assert options_of(row) == options
        assert TableOptionsBody.model_validate(declared_options(options)).options == options


@pytest.mark.parametrize(
    "other",
    [
        {"insert_only": True},
        {"into_existing": True},
        {"refused_rows": "set_aside"},
        {"shared_into": {"name": "all", "source_value": "eu"}},
    ],
)
def test_deletes_are_not_marked_together_with(other: dict[str, Any]) -> None:
    body(name="orders", **other)
    with pytest.raises(ValidationError, match="deletes"):
        body(name="orders", deletes="mark", **other)


@pytest.mark.parametrize("other", [{"insert_only": True}, {"into_existing": True}, {"refused_rows": "set_aside"}])
def test_history_is_not_kept_together_with(other: dict[str, Any]) -> None:
    body(name="orders", **other)
    with pytest.raises(ValidationError, match="history"):
        body(name="orders", history=True, **other)


def test_a_history_table_needs_a_name_of_its_own() -> None:
    tables = [body(name="orders", history=True), body(name="orders__history")]
    with pytest.raises(InvalidRequest, match=r"'public\.orders \(history\)'.* would be the same table"):
        resolve_tables(tables, [], DUCK, "s")
    with pytest.raises(InvalidRequest, match="longer than 63 bytes"):
        resolve_tables([body(name="o" * 60, history=True)], [], DUCK, "s")
    assert len(resolve_tables([body(name="o" * 54, history=True), body(name="orders__history")], [], DUCK, "s")) == 2


def test_rest_takes_changes_and_shows_every_option() -> None:
    rest = {*OPTION_NAMES} - {"map_as"} | {"columns"}
    for body in (TableBody, TablePatch, TableView):
        assert rest <= body.model_fields.keys(), body


def test_preflight_leaves_patterns_out() -> None:
    specs = preflight_specs([body(), body(name="*"), body(name="b", target={"schema": "x"})])
    assert [(spec.source.name, spec.target.schema) for spec in specs] == [("a", "public"), ("b", "x")]


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_impossible_names(name: str) -> None:
    with pytest.raises(ValidationError):
        body(name=name)


@given(st.lists(st.one_of(st.text(), st.integers()), max_size=5), st.text(max_size=12))
def test_page_tokens_come_back(key: list[Any], filters: str) -> None:
    token = PageRequest(10, None, filters).token(key)
    assert token.replace("-", "").replace("_", "").isalnum()
    assert _parse(token, filters) == key
    with pytest.raises(PageTokenInvalid):
        _parse(token, filters + "x")


@given(st.binary(max_size=40))
def test_any_other_token_is_refused(noise: bytes) -> None:
    token = base64.urlsafe_b64encode(noise).decode().rstrip("=")
    with pytest.raises(PageTokenInvalid):
        _parse(token, "filters")


def test_made_up_keys_are_refused() -> None:
    request = PageRequest(10, _parse(PageRequest(10, None, "f").token(["a", 1]), "f"), "f")
    assert request.behind(str, int) == ("a", 1)
    for types in ((str,), (int, int), (str, str)):
        with pytest.raises(PageTokenInvalid):
            request.behind(*types)


@given(st.lists(st.one_of(st.text(), st.integers(0, 99)), max_size=5))
def test_json_pointers_are_read_back(parts: list[Any]) -> None:
    pointer = json_pointer(parts)
    read = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    assert read == [str(part) for part in parts]
    json.dumps(pointer)
