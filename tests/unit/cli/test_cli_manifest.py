"""The file of `penstock apply`."""

from __future__ import annotations

import pytest

from server.cli.manifest import ManifestError, Resource, parse

_FILE = """
subscriptions:
  mart:
    source: shop
    target: duck
    tables: [{schema: public, name: "*"}]
connections:
  duck: {kind: duckdb, settings: {path: "${HOME_DIR}/x.duckdb"}}
  shop:
    kind: postgres
    settings: {host: db, port: 5432}
    secrets: {password: "a${PASSWORD}$${b}"}
"""


def test_connections_come_first_and_references_are_filled() -> None:
    resources = parse(_FILE, {"HOME_DIR": "/data", "PASSWORD": "${x}"})
    assert [(r.collection, r.name) for r in resources] == [
        ("connections", "duck"),
        ("connections", "shop"),
        ("subscriptions", "mart"),
    ]
    assert resources[0].body == {"kind": "duckdb", "settings": {"path": "/data/x.duckdb"}}
    assert resources[1].body["secrets"] == {"password": "a${x}${b}"}
    assert resources[1].body["settings"]["port"] == 5432


def test_json_and_lists_with_names() -> None:
    text = '{"connections": [{"name": "a", "kind": "duckdb", "settings": {"path": "p"}}]}'
    assert parse(text, {}) == [Resource("connections", "a", {"kind": "duckdb", "settings": {"path": "p"}})]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "sections connections"),
        ("- a", "sections connections"),
        ("connection: {}", "unknown section connection"),
        ("connections: 3", "connections must be a mapping"),
        ("connections: {a: 3}", "connections.a must be a mapping"),
        ("connections: [{kind: duckdb}]", r"connections\[0\] has no name"),
        ("connections: [{name: a}, {name: a}]", "connections.a is declared twice"),
        ("connections: {a: {secrets: {password: '${NOPE}'}}}", "secrets.password needs the environment variable NOPE"),
        ("connections: {a: [", "not valid YAML at line 1"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        parse(text, {})


def test_broken_yaml_does_not_print_the_file() -> None:
    with pytest.raises(ManifestError) as caught:
        parse("connections: {a: {secrets: {password: hunter2, ]", {})
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__
