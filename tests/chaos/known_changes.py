"""Changes of a client's own two tables, one plain and one partitioned, by what the source's catalog says of them at the time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

MOST_ROWS = 60
RANGE = 100
RANGES = 3
_LABELS = ("good", "fine")

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Known:
    """The tables of the client of this number."""

    number: int

    @property
    def plain(self) -> str:
        return f"known_{self.number}"

    @property
    def ranged(self) -> str:
        return f"ranged_{self.number}"

    @property
    def tables(self) -> tuple[str, str]:
        return self.plain, self.ranged

    @property
    def mood(self) -> str:
        """The enum of the plain table."""
        return f"mood_{self.number}"

    def leaf(self, place: int) -> str:
        return f"{self.ranged}_{place}"


@dataclass(frozen=True, slots=True)
class Change:
    """`statements`, each for itself. `logged`: the log has a record of it for those who follow the table."""

    kind: str
    statements: list[str]
    logged: bool


def create(known: Known) -> str:
    leaves = "".join(f"{_leaf(known, place)};" for place in range(RANGES))
    return (
        f"CREATE TYPE {known.mood} AS ENUM ('good', 'bad');{_plain(known)};"
        f"CREATE TABLE {known.ranged} (id int PRIMARY KEY, v bigint, note text) PARTITION BY RANGE (id);{leaves}"
        f"INSERT INTO {known.plain} SELECT n, n, 'good', 'first' FROM generate_series(1, 20) n;"
        f"INSERT INTO {known.ranged} SELECT n * 9, n, 'first' FROM generate_series(0, 30) n;"
    )


def _plain(known: Known) -> str:
    return f"CREATE TABLE {known.plain} (id int PRIMARY KEY, v int, m {known.mood}, note text)"


def _bounds(place: int) -> str:
    return f"FOR VALUES FROM ({place * RANGE}) TO ({(place + 1) * RANGE})"


def _leaf(known: Known, place: int) -> str:
    return f"CREATE TABLE {known.leaf(place)} PARTITION OF {known.ranged} {_bounds(place)}"


def some_change(rng: random.Random, known: Known, connection: Connection) -> Change:
    """The next one, chosen by weight. Every one of them is possible whatever was done before."""
    if not _is_there(connection, known.plain):
        return Change("made again", [_plain(known)], logged=False)
    (make,) = rng.choices([make for _, make in _CHANGES], [weight for weight, _ in _CHANGES])
    return make(rng, known, connection)


def _insert(rng: random.Random, known: Known, connection: Connection) -> Change:
    del connection
    # A key that comes again is a change of its row.
    statements = [
        f"INSERT INTO {known.plain} (id, v) SELECT n, {rng.randint(1, 999)} FROM generate_series(1, {MOST_ROWS}) n"
        f" WHERE random() < 0.2 ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v"
    ]
    return Change("insert", statements, logged=True)


def _update(rng: random.Random, known: Known, connection: Connection) -> Change:
    del connection
    return Change(
        "update", [f"UPDATE {known.plain} SET v = {rng.randint(1, 999)} WHERE id % 3 = {rng.randrange(3)}"], logged=True
    )


def _delete(rng: random.Random, known: Known, connection: Connection) -> Change:
    del connection
    return Change("delete", [f"DELETE FROM {known.plain} WHERE id % 5 = {rng.randrange(5)}"], logged=True)


def _truncate(rng: random.Random, known: Known, connection: Connection) -> Change:
    del connection
    again = f"INSERT INTO {known.plain} (id, v) VALUES (1, {rng.randint(1, 999)})"
    return Change("truncate", [f"TRUNCATE {known.plain}", *([again] if rng.random() < 0.5 else [])], logged=True)


def _made_again(rng: random.Random, known: Known, connection: Connection) -> Change:
    del connection
    rows = f"INSERT INTO {known.plain} (id, v) SELECT n, {rng.randint(1, 999)} FROM generate_series(1, {rng.randint(1, 20)}) n"
    steps = [f"DROP TABLE {known.plain}", _plain(known), rows]
    return Change("made again", ["; ".join(steps)] if rng.random() < 0.5 else steps, logged=False)


def _type_using(rng: random.Random, known: Known, connection: Connection) -> Change:
    """To another type, or to the same with other values."""
    now = _types(connection, known.plain)["v"]
    other = rng.choice(("integer", "bigint"))
    statement = f"ALTER TABLE {known.plain} ALTER v TYPE {other} USING (v + {rng.randint(1, 9)}) % 1000"
    return Change("type using" if other != now else "same type using", [statement], logged=False)


def _column(rng: random.Random, known: Known, connection: Connection) -> Change:
    columns = _types(connection, known.plain)
    if "extra" in columns:
        return Change("column dropped", [f"ALTER TABLE {known.plain} DROP COLUMN extra"], logged=False)
    statement = f"ALTER TABLE {known.plain} ADD COLUMN extra int DEFAULT {rng.randint(1, 9)}"
    return Change("column added", [statement], logged=False)


def _renamed(rng: random.Random, known: Known, connection: Connection) -> Change:
    del rng
    old, new = ("note", "remark") if "note" in _types(connection, known.plain) else ("remark", "note")
    return Change("column renamed", [f"ALTER TABLE {known.plain} RENAME COLUMN {old} TO {new}"], logged=False)


def _label(rng: random.Random, known: Known, connection: Connection) -> Change:
    del rng
    sql = "SELECT enumlabel FROM pg_enum WHERE enumtypid = %s::regtype ORDER BY enumsortorder LIMIT 1"
    row = connection.execute(sql, [known.mood]).fetchone()
    assert row is not None
    other = _LABELS[row[0] == _LABELS[0]]
    return Change("label renamed", [f"ALTER TYPE {known.mood} RENAME VALUE '{row[0]}' TO '{other}'"], logged=False)


def _ranged_rows(rng: random.Random, known: Known, connection: Connection) -> Change:
    places = _attached(connection, known)
    low = (rng.choice(places) if places else 0) * RANGE
    if not places:
        return _attach_all(known, connection, places)
    values = f"SELECT {low} + n, {rng.randint(1, 999)} FROM generate_series(0, {RANGE - 1}, 7) n"
    statement = f"INSERT INTO {known.ranged} (id, v) {values} ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v"
    return Change("rows of a partition", [statement], logged=True)


def _moved(rng: random.Random, known: Known, connection: Connection) -> Change:
    """Rows move from one partition to another by their key."""
    places = _attached(connection, known)
    if len(places) < 2:
        return _attach_all(known, connection, places)
    one, other = rng.sample(places, 2)
    by, free = (
        (other - one) * RANGE,
        f"NOT EXISTS (SELECT 1 FROM {known.ranged} b WHERE b.id = a.id + {(other - one) * RANGE})",
    )
    where = f"id >= {one * RANGE} AND id < {(one + 1) * RANGE} AND id % 2 = {rng.randrange(2)} AND {free}"
    return Change("rows moved", [f"UPDATE {known.ranged} a SET id = id + {by}, v = v + 1 WHERE {where}"], logged=True)


def _truncate_leaf(rng: random.Random, known: Known, connection: Connection) -> Change:
    places = _attached(connection, known)
    if not places:
        return _attach_all(known, connection, places)
    return Change("leaf truncated", [f"TRUNCATE {known.leaf(rng.choice(places))}"], logged=False)


def _truncate_root(rng: random.Random, known: Known, connection: Connection) -> Change:
    del rng, connection
    return Change("root truncated", [f"TRUNCATE {known.ranged}"], logged=True)


def _detach(rng: random.Random, known: Known, connection: Connection) -> Change:
    """For longer, or to be attached again at once with other rows."""
    places = _attached(connection, known)
    if not places:
        return _attach_all(known, connection, places)
    leaf = known.leaf(place := rng.choice(places))
    away = f"ALTER TABLE {known.ranged} DETACH PARTITION {leaf}"
    if rng.random() < 0.5:
        return Change("detached", [away], logged=False)
    back = f"ALTER TABLE {known.ranged} ATTACH PARTITION {leaf} {_bounds(place)}"
    return Change("away and back", [away, f"UPDATE {leaf} SET v = v + 1", back], logged=False)


def _attach(rng: random.Random, known: Known, connection: Connection) -> Change:
    del rng
    return _attach_all(known, connection, _attached(connection, known))


def _attach_all(known: Known, connection: Connection, places: list[int]) -> Change:
    away = [place for place in range(RANGES) if place not in places]
    statements = [
        f"ALTER TABLE {known.ranged} ATTACH PARTITION {known.leaf(place)} {_bounds(place)}"
        if _is_there(connection, known.leaf(place))
        else _leaf(known, place)
        for place in away
    ]
    return Change("attached", statements or [f"TRUNCATE {known.ranged}"], logged=not statements)


def _drop_leaf(rng: random.Random, known: Known, connection: Connection) -> Change:
    places = _attached(connection, known)
    if not places:
        return _attach_all(known, connection, places)
    place = rng.choice(places)
    return Change("leaf made again", [f"DROP TABLE {known.leaf(place)}", _leaf(known, place)], logged=False)


def _is_there(connection: Connection, table: str) -> bool:
    row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [table]).fetchone()
    return row is not None and bool(row[0])


def _types(connection: Connection, table: str) -> dict[str, str]:
    sql = (
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
    )
    return dict(connection.execute(sql, [table]).fetchall())


def _attached(connection: Connection, known: Known) -> list[int]:
    """Places of the partitions that are attached."""
    sql = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass"
    names = {row[0] for row in connection.execute(sql, [known.ranged])}
    return [place for place in range(RANGES) if known.leaf(place) in names]


_CHANGES: tuple[tuple[int, Callable[[random.Random, Known, Connection], Change]], ...] = (
    (12, _insert),
    (12, _update),
    (6, _delete),
    (5, _truncate),
    (4, _made_again),
    (6, _type_using),
    (4, _column),
    (3, _renamed),
    (3, _label),
    (10, _ranged_rows),
    (8, _moved),
    (6, _truncate_leaf),
    (4, _truncate_root),
    (6, _detach),
    (6, _attach),
    (3, _drop_leaf),
)
"""With weights."""
