"""Random tables, and changes of whole ones and of their partitions. As in `ddl_changes`, each does to the model what it does. Pure."""

from __future__ import annotations

import random

from tests.chaos.ddl_model import WIDTH, Column, Identity, Leaf, Table, exchanged, quoted
from tests.chaos.ddl_rows import Change, insert_many, insert_rows
from tests.chaos.ddl_types import BIGINT, INT, literal, some_type

SHAPES = ("key", "pair", "full", "full_with_key", "index", "key_and_index", "partitioned", "partitioned")
_OTHER = "_b"
"""Suffix of a run's schema: the one to which tables are moved."""
_LABELS = ("low", "high", "it''s")


def other_schema(home: str) -> str:
    return home + _OTHER


def new_table(rng: random.Random, label: str, home: str) -> tuple[Table, list[str]]:
    """A table that is not there yet, and what makes its enum."""
    enum = f"{quoted(home)}.{label}_enum"
    table = Table(label, home, home, label, enum=enum, labels=_LABELS, exists=False)
    listed = ", ".join(f"'{each}'" for each in _LABELS)
    return table, [f"CREATE TYPE {enum} AS ENUM ({listed})", *create(rng, table)]


def create(rng: random.Random, table: Table) -> list[str]:
    """A table of any shape where there is none, and some rows."""
    if table.exists:
        return []
    shape = rng.choice(SHAPES)
    table.exists, table.partitioned, table.identity = True, shape == "partitioned", Identity.DEFAULT
    table.index, table.index_columns, table.key = None, [], []
    table.leaves, table.detached = [], []
    table.columns = [Column("id", rng.choice((INT, BIGINT)), not_null=True, counts=True)]
    if shape == "pair":
        table.columns.append(Column("part", INT, not_null=True))
    for _ in range(rng.randint(2, 6)):
        column = Column(table.fresh("c"), some_type(rng, table.enum), not_null=rng.random() < 0.2)
        column.default = literal(rng, column.type, table.labels) if rng.random() < 0.2 else None
        table.columns.append(column)
    if shape not in ("full", "index"):
        table.key = ["part", "id"] if shape == "pair" else ["id"]
        table.key_name = table.fresh(f"{table.label}_key")
    made = [_created(table), *_identified(table, shape), *_first_leaves(rng, table)]
    for _ in range(rng.randrange(3)):
        made += insert_many(rng, table)
    return made


def _created(table: Table) -> str:
    parts = [
        f"{c.sql} {c.type.sql}{' NOT NULL' if c.not_null else ''}{f' DEFAULT {c.default}' if c.default else ''}"
        for c in table.columns
    ]
    if table.key:
        parts.append(f"CONSTRAINT {table.key_name} PRIMARY KEY ({', '.join(map(quoted, table.key))})")
    by = ' PARTITION BY RANGE ("id")' if table.partitioned else ""
    return f"CREATE TABLE {table.sql} ({', '.join(parts)}){by}"


def _identified(table: Table, shape: str) -> list[str]:
    made = []
    if shape in ("index", "key_and_index"):
        table.index, table.index_columns = table.fresh(f"{table.label}_u"), ["id"]
        table.identity = Identity.INDEX
        made.append(f'CREATE UNIQUE INDEX {table.index} ON {table.sql} ("id")')
    if shape.startswith("full"):
        table.identity = Identity.FULL
    if table.identity is not Identity.DEFAULT:
        index = f" {table.index}" if table.index else ""
        made.append(f"ALTER TABLE {table.sql} REPLICA IDENTITY {table.identity.value}{index}")
    return made


def _first_leaves(rng: random.Random, table: Table) -> list[str]:
    if not table.partitioned:
        return []
    table.leaves = [table.new_leaf() for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.7:
        table.leaves.append(Leaf(table.fresh(f"{table.label}_p"), None))
    return [f"CREATE TABLE {table.leaf_sql(leaf)} PARTITION OF {table.sql} {_range(leaf)}" for leaf in table.leaves]


def _range(leaf: Leaf) -> str:
    return "DEFAULT" if leaf.low is None else f"FOR VALUES FROM ({leaf.low}) TO ({leaf.low + WIDTH})"


def drop(rng: random.Random, table: Table) -> list[str]:
    del rng
    if table.moved or table.fixed:
        return []
    table.exists, table.fixed = False, True
    return [f"DROP TABLE {table.sql}"]


def make_anew(rng: random.Random, table: Table) -> list[str]:
    dropped = drop(rng, table)
    return [*dropped, *create(rng, table)] if dropped else []


def rename(rng: random.Random, table: Table) -> list[str]:
    """To another name, or back to the first one."""
    del rng
    if table.fixed:
        return []
    before, table.moved = table.sql, True
    table.name = table.fresh(f"{table.label}_n") if table.name == table.label else table.label
    return [f"ALTER TABLE {before} RENAME TO {quoted(table.name)}"]


def move(rng: random.Random, table: Table) -> list[str]:
    """To another schema, or back."""
    del rng
    if table.fixed:
        return []
    before, table.moved = table.sql, True
    table.schema = other_schema(table.home) if table.schema == table.home else table.home
    return [f"ALTER TABLE {before} SET SCHEMA {quoted(table.schema)}"]


def exchange(one: Table, other: Table) -> tuple[list[str], Table, Table] | None:
    """Both swap their names: the statements, and then the table of each name. None if they cannot."""
    held = one.moved or other.moved or one.fixed or other.fixed
    if one.schema != other.schema or held or not (one.exists and other.exists):
        return None
    between = quoted(one.fresh(f"{one.label}_x"))
    statements = [
        f"ALTER TABLE {one.sql} RENAME TO {between}",
        f"ALTER TABLE {other.sql} RENAME TO {quoted(one.name)}",
        f"ALTER TABLE {quoted(one.schema)}.{between} RENAME TO {quoted(other.name)}",
    ]
    return (statements, *exchanged(one, other))


def add_leaf(rng: random.Random, table: Table) -> list[str]:
    """An empty partition."""
    del rng
    if not table.partitioned:
        return []
    table.leaves.append(table.new_leaf())
    leaf = table.leaves[-1]
    return [f"CREATE TABLE {table.leaf_sql(leaf)} PARTITION OF {table.sql} {_range(leaf)}"]


def attach_leaf(rng: random.Random, table: Table) -> list[str]:
    """A table with rows becomes a partition: one made for it, or one that was detached and is as it was."""
    if not table.partitioned:
        return []
    back = [(leaf, version) for leaf, version in table.detached if version == table.structure]
    if back and rng.random() < 0.6:
        leaf = rng.choice(back)[0]
        table.detached = [(each, version) for each, version in table.detached if each is not leaf]
        made = []
    else:
        leaf = table.new_leaf()
        like = "INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING CONSTRAINTS"
        made = [f"CREATE TABLE {table.leaf_sql(leaf)} (LIKE {table.sql} {like})"]
        made += insert_rows(rng, table, table.leaf_sql(leaf), leaf, rng.randint(1, 8))
    table.leaves.append(leaf)
    return [*made, f"ALTER TABLE {table.sql} ATTACH PARTITION {table.leaf_sql(leaf)} {_range(leaf)}"]


def detach_leaf(rng: random.Random, table: Table) -> list[str]:
    """Its rows leave the table with it; sometimes it comes back at once."""
    if not table.leaves:
        return []
    leaf = rng.choice(table.leaves)
    detached = f"ALTER TABLE {table.sql} DETACH PARTITION {table.leaf_sql(leaf)}"
    if rng.random() < 0.3:
        return [detached, f"ALTER TABLE {table.sql} ATTACH PARTITION {table.leaf_sql(leaf)} {_range(leaf)}"]
    table.leaves = [each for each in table.leaves if each is not leaf]
    table.detached.append((leaf, table.structure))
    return [detached]


def drop_leaf(rng: random.Random, table: Table) -> list[str]:
    if len(table.leaves) < 2:
        return []
    leaf = rng.choice(table.leaves)
    table.leaves = [each for each in table.leaves if each is not leaf]
    return [f"DROP TABLE {table.leaf_sql(leaf)}"]


def truncate_leaf(rng: random.Random, table: Table) -> list[str]:
    if not table.leaves:
        return []
    return [f"TRUNCATE {table.leaf_sql(rng.choice(table.leaves))}"]


TABLES: tuple[tuple[int, Change], ...] = (
    (3, rename),
    (3, move),
    (2, make_anew),
    (1, drop),
)
LEAVES: tuple[tuple[int, Change], ...] = (
    (3, add_leaf),
    (4, attach_leaf),
    (4, detach_leaf),
    (2, drop_leaf),
    (4, truncate_leaf),
)
"""With weights."""


def rewrite(rng: random.Random, table: Table) -> list[str]:
    """Rewrite the table unchanged, outside a transaction."""
    if table.key and not table.partitioned and rng.random() < 0.4:
        return [f"CLUSTER {table.sql} USING {table.key_name}"]
    if table.leaves and rng.random() < 0.3:
        return [f"VACUUM FULL {table.leaf_sql(rng.choice(table.leaves))}"]
    return [f"VACUUM FULL {table.sql}"]
