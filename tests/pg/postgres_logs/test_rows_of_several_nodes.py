"""Tables of several nodes: a row that comes to a key on one node replaces the row that another node still has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.model.fault import FaultKind
from engine.model.soft_delete import DeleteMode
from engine.model.source import Severity
from engine.model.subscription import ApplyMode, ApplyPolicy, CaptureSpec, ConnectionSpec
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table
from tests.pg.postgres_logs.test_node_copies import run, source_of, spec_of

pytestmark = pytest.mark.pg

ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, state text, note text)"
ROWS = "SELECT id, state, note FROM orders ORDER BY id, state"


@pytest.fixture(params=["duckdb", "postgres"])
def target_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def nodes(pg18: EmbeddedPostgres, database_on: Callable[..., Database]) -> list[Database]:
    """Two nodes: the first one has orders 1 to 6."""
    databases = [database_on(pg18) for _ in range(2)]
    for database in databases:
        database.execute(ORDERS)
    databases[0].execute("INSERT INTO orders SELECT n, 'of n0', repeat('x', 3000) FROM generate_series(1, 6) AS n")
    return databases


@pytest.fixture
def follow(nodes: list[Database], replicate: Callable[..., Replica]) -> Callable[..., Replica]:
    listed = [{"name": f"n{number}", "settings": dict(one.settings)} for number, one in enumerate(nodes)]
    source = ConnectionSpec(
        "shop", "partitioned", {"nodes": json.dumps(listed)}, capture=CaptureSpec("postgres_logs", {})
    )

    def start(*, live: bool = True, apply: ApplyPolicy | None = None, **options: Any) -> Replica:
        return replicate(nodes[0], [table("orders", **options)], source=source, live=live, apply=apply)

    return start


CHANGES = [
    "INSERT INTO orders VALUES (1, 'of n1', 'a')",
    "BEGIN; INSERT INTO orders VALUES (2, 'of n1', 'a'); UPDATE orders SET state = 'changed' WHERE id = 2; COMMIT",
    "BEGIN; INSERT INTO orders VALUES (3, 'of n1', 'a'); DELETE FROM orders WHERE id = 3; COMMIT",
    "BEGIN; INSERT INTO orders VALUES (4, 'of n1', 'a'); UPDATE orders SET id = 40 WHERE id = 4; COMMIT",
    "BEGIN; INSERT INTO orders VALUES (50, 'of n1', 'a'); UPDATE orders SET id = 5 WHERE id = 50; COMMIT",
]
"""Of the second node, each a transaction. The first node still has the rows 1 to 6."""
LEFT = [(1, "of n1"), (2, "changed"), (5, "of n1"), (6, "of n0"), (40, "of n1")]


@pytest.mark.parametrize("mode", [ApplyMode.BATCH, ApplyMode.TRANSACTIONAL])
def test_the_target_has_one_row_for_each_key(
    nodes: list[Database], follow: Callable[..., Replica], mode: ApplyMode
) -> None:
    replica = follow(apply=ApplyPolicy(mode))
    schema = next(entry.schema for entry in replica.pipeline.book.all())
    assert schema is not None
    assert schema.scattered
    run(nodes[1], *CHANGES)
    replica.catch_up()
    assert [row[:2] for row in replica.query(ROWS)] == LEFT
    # It is followed further, on the node that has it now, and where none has it.
    run(nodes[1], "UPDATE orders SET note = 'b' WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    nodes[0].execute("UPDATE orders SET state = 'last' WHERE id = 6")
    replica.catch_up()
    assert [row[:2] for row in replica.query(ROWS)] == [LEFT[0], LEFT[2], (6, "last"), LEFT[4]]
    assert replica.states() == {"orders": "live"}
    assert [row for row in replica.query(ROWS) if row[0] == 6] == [(6, "last", "x" * 3000)]


def test_versions_of_replaced_rows_end(nodes: list[Database], follow: Callable[..., Replica]) -> None:
    replica = follow(history=True)
    run(nodes[1], *CHANGES)
    replica.catch_up()
    assert [row[:2] for row in replica.query(ROWS)] == LEFT
    versions = replica.query("SELECT id, state, _valid_to IS NULL FROM orders__history ORDER BY 1, 3, 2")
    assert [row[:2] for row in versions if row[2]] == LEFT
    ended = [(number, "of n0") for number in range(1, 6)]
    assert [row[:2] for row in versions if not row[2]] == ended


@pytest.mark.parametrize("deletes", DeleteMode)
def test_change_data_tells_rows_that_come_from_those_that_replace_others(
    nodes: list[Database], follow: Callable[..., Replica], deletes: DeleteMode
) -> None:
    replica = follow(staging=True, deletes=deletes)
    run(nodes[1], *CHANGES, "INSERT INTO orders VALUES (60, 'new', 'a')")
    run(nodes[1], "BEGIN; INSERT INTO orders VALUES (70, 'new', 'a'); DELETE FROM orders WHERE id = 70; COMMIT")
    replica.catch_up()
    changed = replica.query("SELECT id, state, _op FROM orders__cd WHERE _op <> 'R' ORDER BY id")
    gone = [(number, None, "D") for number in (3, 4)]
    replaced = [(1, "of n1", "U"), (2, "changed", "U"), (5, "of n1", "U")]
    assert changed == sorted([*gone, *replaced, (40, "of n1", "I"), (60, "new", "I")], key=lambda row: row[0])
    nodes[1].execute("UPDATE orders SET state = 'paid' WHERE id = 60")
    nodes[0].execute("INSERT INTO orders VALUES (80, 'new', 'a')")
    replica.catch_up()
    assert replica.query("SELECT id, _op FROM orders__cd WHERE state IN ('paid', 'new') ORDER BY id, _op") == [
        *[(60, "I"), (60, "U")],
        (80, "I"),
    ]
    for statement in ("DELETE FROM orders WHERE id = 60", "INSERT INTO orders VALUES (60, 'again', 'a')"):
        nodes[1].execute(statement)
        replica.catch_up()
    assert replica.query("SELECT _op FROM orders__cd WHERE id = 60 ORDER BY _position")[-2:] == [("D",), ("I",)]


def test_a_copy_that_finds_a_row_on_two_nodes_parks_its_table(
    nodes: list[Database], follow: Callable[..., Replica]
) -> None:
    nodes[1].execute("INSERT INTO orders VALUES (1, 'of n1', 'a')")
    replica = follow(live=False)
    parked = replica.wait_table("orders", "parked")
    assert parked.code == FaultKind.TABLE_KEY_NOT_UNIQUE.value
    assert "the key (id) has 1 values that several rows of nodes share" in (parked.reason or "")
    assert "on all but one" in (parked.remedy or "")
    nodes[0].execute("DELETE FROM orders WHERE id = 1")
    replica.pipeline.reload("again", [replica.table_id("orders")])
    replica.wait_live("orders")
    replica.assert_equal()


def test_keys_that_could_not_be_compared_are_refused(nodes: list[Database], tmp_path: Path) -> None:
    """At creation; not if one node has the table, nor if it is followed without a key."""
    for database in nodes:
        run(
            database,
            "CREATE TABLE prices (amount numeric PRIMARY KEY)",
            "CREATE TABLE loose (code text NOT NULL, note text, UNIQUE (code) DEFERRABLE)",
            "CREATE TABLE fixed (amount numeric(9, 2) PRIMARY KEY)",
            "CREATE TABLE declared (id int PRIMARY KEY, code text NOT NULL UNIQUE)",
            "ALTER TABLE loose REPLICA IDENTITY FULL; ALTER TABLE declared REPLICA IDENTITY FULL",
        )
    nodes[0].execute("CREATE TABLE alone (amount numeric PRIMARY KEY)")
    refused = [spec_of("prices"), spec_of("loose", key=("code",))]
    fine = [
        *(spec_of("prices", insert_only=True), spec_of("fixed"), spec_of("alone")),
        *(spec_of("declared", key=("code",)), spec_of("loose")),
    ]
    with source_of(nodes, tmp_path / "reader") as source:
        schemas = source.describe(fine)
        assert {name.name for name, schema in schemas.items() if schema.scattered} == {"fixed", "declared"}
        assert len(schemas) == len(fine)
        assert source.describe(refused) == {}
        found = [each for each in source.preflight(refused, None) if each.code == FaultKind.TABLE_COLUMNS_UNFIT.value]
        assert {each.severity for each in found} == {Severity.ERROR}
        text = "; ".join(each.what for each in found)
        assert "public.prices: several nodes have the table, so columns of its key" in text
        assert "the declared key (code) needs a unique index that is not deferrable" in text
        unfit = {each.what for each in source.preflight(fine, None) if each.severity is Severity.ERROR}
        assert not unfit
