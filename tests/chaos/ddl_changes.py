"""Random changes of a table's columns, key and storage as it is modelled.

Each function does to the model what its statements do to the table; it returns none, and has done nothing, where it does not fit. Pure.
"""

from __future__ import annotations

import random

from tests.chaos.ddl_model import Column, Identity, Table
from tests.chaos.ddl_rows import Change
from tests.chaos.ddl_types import (
    BIGINT,
    BOOLEAN,
    INT,
    SMALL,
    TEXT,
    ColumnType,
    Kind,
    changed,
    literal,
    others,
    some_type,
    wider,
)

_MOST_COLUMNS = 12
_COMPUTED: tuple[tuple[ColumnType, str], ...] = (
    (ColumnType(Kind.TIMESTAMPTZ), "clock_timestamp()"),
    (INT, "(random() * 1000)::int"),
    (TEXT, "gen_random_uuid()::text"),
    (ColumnType(Kind.NUMERIC, 12, 4), "random()::numeric(12,4)"),
)
_MADE_OF = {Kind.INT: (INT, "{c} * 2"), Kind.BOOLEAN: (BOOLEAN, "NOT {c}"), Kind.TEXT: (INT, "length({c})")}


def _alter(table: Table, *what: str) -> str:
    return f"ALTER TABLE {table.sql} {', '.join(what)}"


def _new_column(rng: random.Random, table: Table, kind: ColumnType | None = None) -> Column | None:
    if len(table.columns) >= _MOST_COLUMNS:
        return None
    name = table.fresh(rng.choice(("c", "c", "C", "col ", "ü")))
    return Column(name, kind or some_type(rng, table.enum))


def _added(table: Table, column: Column, more: str = "") -> list[str]:
    table.columns.append(column)
    table.structure += 1
    return [_alter(table, f"ADD COLUMN {column.sql} {column.type.sql}{more}")]


def add_column(rng: random.Random, table: Table) -> list[str]:
    column = _new_column(rng, table)
    return [] if column is None else _added(table, column)


def add_with_default(rng: random.Random, table: Table) -> list[str]:
    """Existing rows get the value without a rewrite; sometimes the default is dropped at once, and they keep it."""
    column = _new_column(rng, table)
    if column is None:
        return []
    column.default = literal(rng, column.type, table.labels)
    column.not_null = rng.random() < 0.4
    null = " NOT NULL" if column.not_null else ""
    added = _added(table, column, f" DEFAULT {column.default}{null}")
    if rng.random() < 0.3:
        added += _without_default(table, column)
    return added


def add_computed(rng: random.Random, table: Table) -> list[str]:
    """The table is rewritten, each row with a different value."""
    kind, default = rng.choice(_COMPUTED)
    column = _new_column(rng, table, kind)
    if column is None:
        return []
    column.default = default
    added = _added(table, column, f" DEFAULT {default}")
    if rng.random() < 0.3:
        added += _without_default(table, column)
    return added


def add_serial(rng: random.Random, table: Table) -> list[str]:
    column = _new_column(rng, table, BIGINT)
    if column is None:
        return []
    column.not_null, column.default = True, "nextval"
    table.columns.append(column)
    table.structure += 1
    return [_alter(table, f"ADD COLUMN {column.sql} bigserial")]


def add_generated(rng: random.Random, table: Table) -> list[str]:
    bases = [c for c in table.free if c.type.kind in _MADE_OF]
    if not bases:
        return []
    base = rng.choice(bases)
    kind, made = _MADE_OF[base.type.kind]
    column = _new_column(rng, table, kind)
    if column is None:
        return []
    column.base = base.name
    return _added(table, column, f" GENERATED ALWAYS AS ({made.format(c=base.sql)}) STORED")


def drop_column(rng: random.Random, table: Table) -> list[str]:
    """Usually a column on which nothing depends."""
    whole = [c for c in table.columns if not (table.partitioned and c.counts)]
    choice = table.free or [c for c in table.columns if c.base]
    column = rng.choice(whole if rng.random() < 0.1 and whole else choice) if choice else None
    if column is None:
        return []
    table.drop_column(column.name)
    return [_alter(table, f"DROP COLUMN {column.sql} CASCADE")]


def drop_and_add(rng: random.Random, table: Table) -> list[str]:
    """Another column with the name of a dropped one."""
    if not table.free:
        return []
    old = rng.choice(table.free)
    table.drop_column(old.name)
    kind = old.type if rng.random() < 0.5 else some_type(rng, table.enum)
    return [_alter(table, f"DROP COLUMN {old.sql} CASCADE"), *_added(table, Column(old.name, kind))]


def rename_column(rng: random.Random, table: Table) -> list[str]:
    if not table.columns:
        return []
    column = rng.choice(table.columns)
    before = column.sql
    table.rename_column(column.name, table.fresh("r"))
    return [f"ALTER TABLE {table.sql} RENAME COLUMN {before} TO {column.sql}"]


def swap_columns(rng: random.Random, table: Table) -> list[str]:
    """Two columns exchange their names; of the same type, where there are such."""
    columns = list(table.stored)
    rng.shuffle(columns)
    pairs = [(a, b) for a in columns for b in columns if a.name < b.name]
    pairs.sort(key=lambda pair: pair[0].type != pair[1].type)
    if not pairs:
        return []
    one, other = pairs[0] if rng.random() < 0.7 else rng.choice(pairs)
    first, second = one.name, other.name
    statements = []
    for column, name in ((one, table.fresh("s")), (other, first), (one, second)):
        before = column.sql
        table.rename_column(column.name, name)
        statements.append(f"ALTER TABLE {table.sql} RENAME COLUMN {before} TO {column.sql}")
    return statements


def _retyped(table: Table, column: Column, kind: ColumnType, using: str | None) -> list[str]:
    what = [f"ALTER COLUMN {column.sql} DROP DEFAULT"] if column.default is not None else []
    made = f" USING {using}" if using is not None else ""
    what.append(f"ALTER COLUMN {column.sql} TYPE {kind.sql}{made}")
    column.type, column.default = kind, None
    table.structure += 1
    return [_alter(table, *what)]


def widen(rng: random.Random, table: Table) -> list[str]:
    found = [(c, kind) for c in table.free for kind in wider(c.type)]
    if not found:
        return []
    column, kind = rng.choice(found)
    return _retyped(table, column, kind, None)


def change_type(rng: random.Random, table: Table) -> list[str]:
    found = [(c, *other) for c in table.free for other in others(c.type, c.sql)]
    counted = table.counted
    if counted is not None and not table.partitioned and rng.random() < 0.3:
        column, kind, using = counted, INT if counted.type == BIGINT else BIGINT, counted.sql
    elif found:
        column, kind, using = rng.choice(found)
    else:
        return []
    return _retyped(table, column, kind, using)


def change_values(rng: random.Random, table: Table) -> list[str]:
    """The same type, and other values in it; of a key, too."""
    if table.counted is not None and not table.partitioned and rng.random() < 0.2:
        return _retyped(table, table.counted, table.counted.type, f"-{table.counted.sql}")
    if not table.free:
        return []
    column = rng.choice(table.free)
    return _retyped(table, column, column.type, changed(column.type, column.sql, table.labels))


def set_not_null(rng: random.Random, table: Table) -> list[str]:
    nullable = [c for c in table.free if not c.not_null]
    if not nullable or not table.followed:
        return []
    column = rng.choice(nullable)
    column.not_null = True
    value = literal(rng, column.type, table.labels)
    return [
        f"UPDATE {table.sql} SET {column.sql} = {value} WHERE {column.sql} IS NULL",
        _alter(table, f"ALTER COLUMN {column.sql} SET NOT NULL"),
    ]


def drop_not_null(rng: random.Random, table: Table) -> list[str]:
    held = [c for c in table.free if c.not_null]
    if not held:
        return []
    column = rng.choice(held)
    column.not_null = False
    return [_alter(table, f"ALTER COLUMN {column.sql} DROP NOT NULL")]


def set_default(rng: random.Random, table: Table) -> list[str]:
    if not table.free:
        return []
    column = rng.choice(table.free)
    if column.default is not None:
        return _without_default(table, column)
    column.default = literal(rng, column.type, table.labels)
    return [_alter(table, f"ALTER COLUMN {column.sql} SET DEFAULT {column.default}")]


def _without_default(table: Table, column: Column) -> list[str]:
    column.default = None
    return [_alter(table, f"ALTER COLUMN {column.sql} DROP DEFAULT")]


def drop_key(rng: random.Random, table: Table) -> list[str]:
    """Mostly where something else identifies the rows."""
    if not table.key or (table.identity is Identity.DEFAULT and rng.random() < 0.7):
        return []
    table.key = []
    return [_alter(table, f"DROP CONSTRAINT {table.key_name}")]


def add_key(rng: random.Random, table: Table) -> list[str]:
    if table.key or table.counted is None:
        return []
    return [_alter(table, _key_clause(rng, table))]


def replace_key(rng: random.Random, table: Table) -> list[str]:
    """Another key in the place of the present one; of the same columns now and then."""
    if not table.key or table.counted is None:
        return []
    gone = f"DROP CONSTRAINT {table.key_name}"
    added = _key_clause(rng, table)
    return [_alter(table, gone, added)] if rng.random() < 0.5 else [_alter(table, gone), _alter(table, added)]


def _key_clause(rng: random.Random, table: Table) -> str:
    assert table.counted is not None
    beside = [c for c in table.free if c.not_null and c.type.kind in SMALL]
    columns = [table.counted, *([rng.choice(beside)] if beside and rng.random() < 0.5 else [])]
    rng.shuffle(columns)
    table.key = [c.name for c in columns]
    table.key_name = table.fresh(f"{table.label}_key")
    table.counted.not_null = True
    return f"ADD CONSTRAINT {table.key_name} PRIMARY KEY ({', '.join(c.sql for c in columns)})"


def identify(rng: random.Random, table: Table) -> list[str]:
    """Another replica identity; rarely one that identifies nothing."""
    if table.partitioned:
        return []
    ways = [Identity.FULL, Identity.FULL, Identity.DEFAULT]
    ways += [Identity.INDEX] * 2 if table.index is not None else []
    ways += [Identity.NOTHING] if rng.random() < 0.1 else []
    way = rng.choice([w for w in ways if w is not table.identity] or [Identity.FULL])
    if way is Identity.DEFAULT and not table.key and rng.random() < 0.8:
        return []
    table.identity = way
    index = f" {table.index}" if way is Identity.INDEX else ""
    return [_alter(table, f"REPLICA IDENTITY {way.value}{index}")]


def make_unique(rng: random.Random, table: Table) -> list[str]:
    """A unique index, which may become the replica identity."""
    if table.index is not None or table.counted is None or table.partitioned or not table.counted.not_null:
        return []
    beside = [c for c in table.free if c.not_null and c.type.kind in SMALL]
    columns = [table.counted, *([rng.choice(beside)] if beside and rng.random() < 0.5 else [])]
    table.index, table.index_columns = table.fresh(f"{table.label}_u"), [c.name for c in columns]
    return [f"CREATE UNIQUE INDEX {table.index} ON {table.sql} ({', '.join(c.sql for c in columns)})"]


def drop_unique(rng: random.Random, table: Table) -> list[str]:
    if table.index is None or (table.identity is Identity.INDEX and rng.random() < 0.8):
        return []
    index = table.index
    table.drop_index()
    return [f'DROP INDEX "{table.schema}".{index}']


def add_index(rng: random.Random, table: Table) -> list[str]:
    small = [c for c in table.stored if c.type.kind in SMALL]
    if not small:
        return []
    return [f"CREATE INDEX {table.fresh(f'{table.label}_i')} ON {table.sql} ({rng.choice(small).sql})"]


def add_label(rng: random.Random, table: Table) -> list[str]:
    """The enum gets a value, usable from the next transaction on."""
    added = table.fresh("v")
    table.new_labels += (added,)
    where = rng.choice(("", f" BEFORE '{table.labels[0]}'"))
    return [f"ALTER TYPE {table.enum} ADD VALUE '{added}'{where}"]


COLUMNS: tuple[tuple[int, Change], ...] = (
    (9, add_column),
    (10, add_with_default),
    (5, add_computed),
    (2, add_serial),
    (4, add_generated),
    (10, drop_column),
    (4, drop_and_add),
    (8, rename_column),
    (7, swap_columns),
    (8, widen),
    (8, change_type),
    (5, change_values),
    (4, set_not_null),
    (3, drop_not_null),
    (3, set_default),
    (3, drop_key),
    (5, add_key),
    (4, replace_key),
    (6, identify),
    (3, make_unique),
    (2, drop_unique),
    (2, add_index),
    (3, add_label),
)
"""With weights."""
