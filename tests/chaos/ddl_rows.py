"""Random changes of rows of a table as it is modelled. Each function returns its statements, or none where nothing fits. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.chaos.ddl_model import FAR, Column, Leaf, Table
from tests.chaos.ddl_types import changed, value

Change = Callable[[random.Random, Table], list[str]]

_UNIDENTIFIED = 0.1
"""How often an update or delete is tried that the source refuses, since nothing identifies the rows."""


def insert_rows(rng: random.Random, table: Table, into: str, leaf: Leaf | None, count: int) -> list[str]:
    """One INSERT. `leaf`: the partition whose numbers the rows get."""
    columns = [c for c in table.stored if c.counts or c.not_null or c.name in table.key or rng.random() > 0.15]
    if not columns:
        return [f"INSERT INTO {into} DEFAULT VALUES"]
    rows = ", ".join(f"({', '.join(_value(rng, table, leaf, c) for c in columns)})" for _ in range(count))
    return [f"INSERT INTO {into} ({_listed(columns)}) VALUES {rows}"]


def _value(rng: random.Random, table: Table, leaf: Leaf | None, column: Column) -> str:
    if column.counts:
        return str(table.number(leaf))
    if column.default is not None and rng.random() < 0.4:
        return "DEFAULT"
    if not column.not_null and column.name not in table.key and rng.random() < 0.15:
        return "NULL"
    return value(rng, column.type, table.labels)


def _listed(columns: list[Column]) -> str:
    return ", ".join(column.sql for column in columns)


def _make_condition(rng: random.Random, table: Table) -> str:
    """A condition that about a quarter of the rows meet, the same ones whenever it is asked."""
    column = rng.choice(table.columns).sql if table.columns else "'x'"
    return f"(hashtext(coalesce({column}::text, '')) & 3) = {rng.randrange(4)}"


def _identified(rng: random.Random, table: Table) -> bool:
    return table.followed or rng.random() < _UNIDENTIFIED


def _place(rng: random.Random, table: Table) -> tuple[str, Leaf | None] | None:
    """Where rows may be inserted, mostly through the root; None where no partition takes any."""
    if not table.partitioned:
        return table.sql, None
    ranged = [leaf for leaf in table.leaves if leaf.low is not None] or table.leaves
    if not ranged:
        return None
    leaf = rng.choice(ranged)
    return (table.leaf_sql(leaf) if rng.random() < 0.2 else table.sql), leaf


def insert(rng: random.Random, table: Table) -> list[str]:
    place = _place(rng, table)
    return [] if place is None else insert_rows(rng, table, *place, rng.choice((1, 1, 1, 2, 4)))


def insert_many(rng: random.Random, table: Table) -> list[str]:
    place = _place(rng, table)
    return [] if place is None else insert_rows(rng, table, *place, rng.randint(10, 40))


def insert_again(rng: random.Random, table: Table) -> list[str]:
    """Rows that are there already once more, where nothing tells them apart."""
    if table.key or table.index is not None or table.partitioned or not table.stored:
        return []
    listed = _listed(table.stored)
    condition = _make_condition(rng, table)
    return [f"INSERT INTO {table.sql} ({listed}) SELECT {listed} FROM {table.sql} WHERE {condition} LIMIT 5"]


def update(rng: random.Random, table: Table) -> list[str]:
    """Some columns of some rows; what is not named stays, large values too."""
    columns = [c for c in table.stored if not c.counts and c.name not in table.key]
    if not columns or not _identified(rng, table):
        return []
    chosen = rng.sample(columns, min(len(columns), rng.choice((1, 1, 2))))
    settings = ", ".join(f"{c.sql} = {_new_value(rng, table, c)}" for c in chosen)
    where = "" if rng.random() < 0.15 else f" WHERE {_make_condition(rng, table)}"
    return [f"UPDATE {table.sql} SET {settings}{where}"]


def _new_value(rng: random.Random, table: Table, column: Column) -> str:
    roll = rng.random()
    if roll < 0.5:
        return changed(column.type, column.sql, table.labels)
    if roll < 0.6 and not column.not_null:
        return "NULL"
    return value(rng, column.type, table.labels)


def update_key(rng: random.Random, table: Table) -> list[str]:
    """Give some rows another unused number, or change the rest of their key."""
    counted = table.counted
    if counted is None or not _identified(rng, table) or (table.partitioned and table.catch_all is None):
        return []
    beside = [c for c in table.stored if c.name in table.key and not c.counts]
    name, condition = counted.sql, _make_condition(rng, table)
    ways = [
        f"{name} = -{name} WHERE {condition}",
        f"{name} = {name} + sign({name}) * {FAR} WHERE {condition} AND abs({name}) < {FAR}",
        f"{name} = {name} - sign({name}) * {FAR} WHERE {condition} AND abs({name}) BETWEEN {FAR} AND {2 * FAR}",
    ]
    ways += [f"{c.sql} = {changed(c.type, c.sql, table.labels)} WHERE {condition}" for c in beside]
    # A row that goes back into a range has to find its partition there.
    return [f"UPDATE {table.sql} SET {rng.choice(ways[:2] if table.partitioned else ways)}"]


def delete(rng: random.Random, table: Table) -> list[str]:
    if not _identified(rng, table):
        return []
    where = "" if rng.random() < 0.1 else f" WHERE {_make_condition(rng, table)}"
    return [f"DELETE FROM {table.sql}{where}"]


def truncate(rng: random.Random, table: Table) -> list[str]:
    del rng
    return [f"TRUNCATE {table.sql}"]


ROWS: tuple[tuple[int, Change], ...] = (
    (30, insert),
    (10, insert_many),
    (4, insert_again),
    (30, update),
    (10, update_key),
    (12, delete),
    (2, truncate),
)
"""With weights."""
