"""Random structure changes: reproducible, over names that exist, and no more than what is asked for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from copy import deepcopy

import pytest

from tests.chaos.ddl_model import Table
from tests.chaos.ddl_tables import new_table
from tests.chaos.ddl_transactions import Transaction, step

STEPS = 50
_UNDONE = (
    "ADD COLUMN",
    "DROP COLUMN",
    "RENAME COLUMN",
    " TYPE ",
    "TRUNCATE",
    "RENAME TO",
    "ATTACH PARTITION",
    "DETACH PARTITION",
)


def history(seed: int) -> Iterator[tuple[dict[str, Table], Transaction]]:
    """A run in which the source refuses nothing: each transaction with the tables as they were before it."""
    rng = random.Random(seed)
    tables = {label: new_table(rng, label, "home")[0] for label in ("t1", "t2", "t3")}
    for _ in range(STEPS):
        for made in step(rng, tables):
            yield dict(tables), made
            if made.commits:
                tables |= {label: table.committed() for label, table in made.after.items()}
                for table in tables.values():
                    table.moved = table.fixed = False


def statements(seed: int) -> list[str]:
    return [statement.sql for _, made in history(seed) for statement in made.statements]


def test_the_same_seed_makes_the_same_statements() -> None:
    assert statements(1) == statements(1)
    assert statements(1) != statements(2)


def test_every_operation_comes_up() -> None:
    text = "\n".join(sql for seed in range(12) for sql in statements(seed))
    wanted = (
        "ADD COLUMN, DROP COLUMN, RENAME COLUMN, TYPE, USING, SET NOT NULL, DROP NOT NULL, SET DEFAULT, DROP DEFAULT, GENERATED ALWAYS,"
        " bigserial, RENAME TO, SET SCHEMA, DROP TABLE, CREATE TABLE, DROP CONSTRAINT, ADD CONSTRAINT, REPLICA IDENTITY FULL,"
        " REPLICA IDENTITY DEFAULT, REPLICA IDENTITY USING INDEX, REPLICA IDENTITY NOTHING, CREATE UNIQUE INDEX, DROP INDEX,"
        " CREATE INDEX, ATTACH PARTITION, DETACH PARTITION, PARTITION OF, ADD VALUE, TRUNCATE, VACUUM FULL, CLUSTER, SAVEPOINT,"
        " ROLLBACK TO, RELEASE, INSERT, UPDATE, DELETE"
    )
    assert [each for each in wanted.split(", ") if each.strip() not in text] == []


@pytest.mark.parametrize("seed", range(5))
def test_tables_stay_as_they_are_until_a_transaction_is_taken_over(seed: int) -> None:
    rng = random.Random(seed)
    tables = {label: new_table(rng, label, "home")[0] for label in ("t1", "t2", "t3")}
    before = deepcopy(tables)
    for _ in range(20):
        step(rng, tables)
    assert tables == before


@pytest.mark.parametrize("seed", range(5))
def test_two_beside_each_other_touch_different_tables(seed: int) -> None:
    rng = random.Random(seed)
    tables = {label: new_table(rng, label, "home")[0] for label in ("t1", "t2", "t3", "t4")}
    pairs = [made for _ in range(40) if len(made := step(rng, tables)) == 2]
    assert pairs
    assert all(not set(one.after) & set(other.after) for one, other in pairs)


@pytest.mark.parametrize("seed", range(5))
def test_names_of_columns_are_never_given_twice(seed: int) -> None:
    for _, made in history(seed):
        for table in made.after.values():
            names = [column.name for column in table.columns]
            assert len({name.lower() for name in names}) == len(names)
            assert set(table.key) | set(table.index_columns) <= set(names)


def test_savepoints_undo_structures_that_were_sent() -> None:
    """In streamed transactions; some stay open while the catalog is read, and some have no row of a table after that."""
    undone, held = set(), False
    for seed in range(20):
        for _, made in history(seed):
            texts = [statement.sql for statement in made.statements]
            if not made.streamed or not any(text.startswith("ROLLBACK TO") for text in texts):
                continue
            assert "SAVEPOINT streamed_one" in texts or "SAVEPOINT inner_one" in texts
            held |= any(statement.looks for statement in made.statements)
            first = texts.index("SAVEPOINT streamed_one") if "SAVEPOINT streamed_one" in texts else 0
            undone |= {word for word in _UNDONE for text in texts[first:] if word in text}
    assert held
    assert undone == set(_UNDONE)


def test_what_is_undone_restructures_nothing() -> None:
    for seed in range(10):
        for before, made in history(seed):
            since: list[bool] = []
            for statement in made.statements:
                if statement.sql.startswith("SAVEPOINT"):
                    since = []
                elif statement.sql.startswith("ROLLBACK TO"):
                    assert not any(since)
                since.append(bool(statement.restructures))
            assert made.after.keys() <= before.keys()


def test_a_savepoint_that_is_undone_leaves_the_model_alone() -> None:
    undone = 0
    for seed in range(10):
        for before, made in history(seed):
            texts = [statement.sql for statement in made.statements]
            if not texts or texts[0] != "SAVEPOINT inner_one" or texts[-1] != "ROLLBACK TO inner_one":
                continue
            if texts.count("SAVEPOINT inner_one") == 1:
                undone += 1
                assert all(made.after[label] == before[label] for label in made.after)
    assert undone


def test_what_changes_a_structure_says_so() -> None:
    for seed in range(10):
        for _, made in history(seed):
            for statement in made.statements:
                if statement.sql.startswith("ALTER TABLE"):
                    assert statement.restructures or any(s.sql.startswith("ROLLBACK TO") for s in made.statements)
                    assert set(statement.restructures) <= made.restructured <= set(made.after)
