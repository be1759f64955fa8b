"""What a check says of the columns and rows that a table's options choose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.connectors import open_source
from engine.model.masks import MASK_KEY, Mask, MaskMethod
from engine.model.subscription import ConnectionSpec
from tests.fixtures.postgres import Database
from tests.fixtures.replication import table

pytestmark = pytest.mark.pg

HASH, NOTHING = Mask(MaskMethod.HASH), Mask(MaskMethod.NULL)
UNFIT = "table_columns_unfit"


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, set()),
        ({"exclude_columns": ("pass*",)}, {("columns_left_out", "are left out: password")}),
        ({"exclude_columns": ("x*",)}, {("columns_left_out", "none now")}),
        ({"exclude_columns": ("id",)}, {(UNFIT, "key columns cannot be left out: id")}),
        ({"include_columns": ("nome",)}, {(UNFIT, "does not have: nome")}),
        ({"rename": {"nome": "n"}}, {("rename_without_column", "nome")}),
        ({"rename": {"name": "id"}}, {(UNFIT, "one name on the target: id")}),
        ({"mask": {"name": HASH}}, {("columns_masked", "are masked: name")}),
        ({"mask": {"id": NOTHING}}, {(UNFIT, "only be masked by a hash: id")}),
        ({"where": "id > 3"}, set()),
        ({"where": "name = 'x'"}, {(UNFIT, "outside the replica identity")}),
        ({"where": "id > 'three'"}, {(UNFIT, "invalid input syntax for type integer")}),
        ({"where": "id"}, {(UNFIT, "must be type boolean")}),
        ({"where": "id > 3) or (true"}, {(UNFIT, "closed that was not opened")}),
    ],
)
def test_findings(database: Database, options: dict[str, Any], found: set[tuple[str, str]]) -> None:
    database.execute("CREATE TABLE users (id int PRIMARY KEY, name date, password date)")
    source = open_source(ConnectionSpec("shop", "postgres", database.settings, {MASK_KEY: "sixteen characters"}))
    plain = {finding.code for finding in source.preflight([table("users")], None)}
    checked = [f for f in source.preflight([table("users", **options)], None) if f.code not in plain]
    source.close()
    assert {finding.code for finding in checked} == {code for code, _ in found}
    assert all(any(words in finding.what for finding in checked) for _, words in found)
    assert database.execute("SELECT count(*) FROM pg_publication")[0][0] == 0


def test_hashes_without_a_key(database: Database) -> None:
    database.execute("CREATE TABLE users (id int PRIMARY KEY, name text)")
    users = table("users", mask={"name": HASH})
    for secrets, wrong in (({}, True), ({MASK_KEY: "short"}, True), ({MASK_KEY: "sixteen characters"}, False)):
        source = open_source(ConnectionSpec("shop", "postgres", database.settings, secrets))
        found = [
            finding for finding in source.preflight([replace(users, mask_mark=None)], None) if finding.code == UNFIT
        ]
        assert [MASK_KEY in finding.what for finding in found] == [True] * wrong
        source.close()
