"""The procedure of a lane's session: it executes a sequence of changes and commits after each unit. Pure.

It is created in the session's temporary schema, so that nothing remains. Each change is one statement whose plan the server caches; the
values are one array of texts, the changes one array of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from engine.model.schema import KeyMode
from engine.targets.postgres.changes import Place, image
from engine.targets.postgres.identifiers import literal
from engine.targets.postgres.origins import STAMP
from engine.targets.postgres.tables import cleared_by_rows
from engine.targets.target_metadata import OWN_SCHEMA

NAME = "pg_temp.penstock_lane"
ROW_MISSING = "PS001"
"""SQLSTATE: a row to change is missing."""
OUT_OF_TURN = "PS002"
"""SQLSTATE: the progress record is not at the end of the previous unit."""
INSERT, UPDATE, DELETE, TRUNCATE = 1, 2, 3, 4
"""Kinds of changes in the procedure's arrays: as `ScannedChanges.op`."""
END, TURN = 0, -1
"""Marks in place of a change: END, the unit ends; TURN, wait until the previous unit is committed."""

_MODIFIER = re.compile(r"\([^)]*\)")
_LINE = re.compile(r"penstock_lane\([^)]*\)[^0-9\n]*([0-9]+)")


@dataclass(frozen=True, slots=True)
class Kind:
    """Changes executed by one statement. `moved`: the key changes; `unset`: columns (by position) that stay unchanged; `many`: the
    statement has many rows, whose values are ordered by column."""

    place: Place
    op: int
    moved: bool = False
    unset: frozenset[int] = frozenset()
    many: bool = False

    @property
    def reads(self) -> list[str]:
        """The columns of `TableChanges.in_order` whose values it uses, in this order."""
        key = [column.name for column in self.place.row_columns]
        if self.op == INSERT:
            return [f"c{i}" for i in self.place.written]
        return {UPDATE: [*key, *(f"c{i}" for i in self._assigned)], DELETE: key}.get(self.op, [])

    @property
    def shareable(self) -> bool:
        """Whether a statement may have many rows: they have a key, which stays the same."""
        if self.op == TRUNCATE or self.moved or self._replaces:
            return False
        return self.place.schema.mode is not KeyMode.BAG

    @property
    def _replaces(self) -> bool:
        """Whether the row is deleted and inserted again: GENERATED ALWAYS AS IDENTITY columns cannot be updated."""
        return self.op == UPDATE and not self.place.always.isdisjoint(self._assigned)

    @property
    def _assigned(self) -> list[int]:
        key = set() if self.moved else set(self.place.key)
        return [i for i in self.place.written if i not in key and i not in self.unset]

    def statement(self) -> str:
        """PL/pgSQL on one line, with the number of values that it uses."""
        if not self.many:
            return f"{self._single()} __penstock_at := __penstock_at + {len(self.reads)};"
        return (
            f"__penstock_many := __penstock_many + 1; __penstock_count := $6[__penstock_many]; {self._joined()}"
            f" __penstock_at := __penstock_at + {len(self.reads)} * __penstock_count;"
        )

    def _single(self) -> str:
        place, names = self.place, self.place.quoted
        keys = len(place.row_columns)
        found = _row(place)
        if self.op == INSERT:
            inserted = ", ".join(_value(n, place.columns[i].type) for n, i in enumerate(place.written))
            return f"INSERT INTO {place.qualified} ({_into(place)}) OVERRIDING SYSTEM VALUE VALUES ({inserted});"
        if self.op == TRUNCATE:
            return _clear(place)
        if self.op == DELETE:
            return f"DELETE FROM {place.qualified} WHERE {found}; {_REQUIRE}"
        values = {i: _value(keys + n, place.columns[i].type) for n, i in enumerate(self._assigned)}
        if self._replaces:
            return f"{_replacement(place, found, values)} {_REQUIRE}"
        changed = [f"{names[i]} = {value}" for i, value in values.items()]
        if not changed:
            return f"PERFORM FROM {place.qualified} WHERE {found}; {_REQUIRE}"
        return f"UPDATE {place.qualified} SET {', '.join(changed)} WHERE {found}; {_REQUIRE}"

    def _joined(self) -> str:
        place, names = self.place, self.place.quoted
        types = {column.name: column.type for column in [*place.row_columns, *place.columns]}
        source, read = _rows([(name, types[name]) for name in self.reads])
        table = place.qualified
        if self.op == INSERT:
            values = ", ".join(read[f"c{i}"] for i in place.written)
            return f"INSERT INTO {table} ({_into(place)}) OVERRIDING SYSTEM VALUE SELECT {values} FROM {source};"
        on_key = " AND ".join(f"t.{names[i]} = {read[f'k{j}']}" for j, i in enumerate(place.key))
        if self.op == DELETE:
            return f"DELETE FROM {table} AS t USING {source} WHERE {on_key}; {_REQUIRE_ALL}"
        changed = [f"{names[i]} = {read[f'c{i}']}" for i in self._assigned]
        if not changed:
            return f"PERFORM FROM {table} AS t, {source} WHERE {on_key}; {_REQUIRE_ALL}"
        return f"UPDATE {table} AS t SET {', '.join(changed)} FROM {source} WHERE {on_key}; {_REQUIRE_ALL}"


_SEEMS_FEW = "r.n + 0 = r.n AND r.n - 0 = r.n"
"""True for every row, which the planner does not know: it expects one row, and uses the key's index for each."""
_RAISE = f"RAISE EXCEPTION USING ERRCODE = '{ROW_MISSING}'"
_REQUIRE = f"IF NOT FOUND THEN {_RAISE}; END IF;"
_REQUIRE_ALL = (
    f"GET DIAGNOSTICS __penstock_found = ROW_COUNT; IF __penstock_found <> __penstock_count THEN {_RAISE}; END IF;"
)


@dataclass(frozen=True, slots=True)
class Procedure:
    """The text that creates the procedure, and the kind (from 1 on) on each of its lines."""

    sql: str
    kinds: tuple[Kind, ...]
    lines: dict[int, int]

    def kind_at(self, context: str | None) -> Kind | None:
        """The kind whose statement failed, from an error's context in any language."""
        found = _LINE.search(context or "")
        number = self.lines.get(int(found[1])) if found else None
        return None if number is None else self.kinds[number - 1]


def procedure(kinds: Sequence[Kind], *, marked: bool = False) -> Procedure:
    """The procedure for these kinds, numbered from 1 on.

    Parameters are referenced by number, so that no column name can conflict: 1 changes and marks, 2 values, 3 and 4 position before and
    after each unit, 5 the first unit's number, 6 rows of each statement of many rows, 7 to 9 subscription, epoch and batch of the
    progress record, 10 the class of the advisory locks that order lanes, 11 lanes, 12 the rest of `last_commit` after each unit. A lane
    holds the lock of its unit from before the unit begins until it is committed. `marked`: for a session with a replication origin.
    """
    lines = [
        "",
        "DECLARE __penstock_at int4 := 0; __penstock_unit int4 := 1; __penstock_many int4 := 0; __penstock_kind int4;"
        " __penstock_count int4; __penstock_found int4;",
        "BEGIN",
        "FOR __penstock_i IN 1..pg_catalog.cardinality($1) LOOP",
        "__penstock_kind := $1[__penstock_i];",
        "IF __penstock_kind > 0 THEN",
    ]
    places: dict[int, int] = {}
    _choose(1, len(kinds), lambda number: kinds[number - 1].statement(), lines, places)
    lines += [
        f"ELSIF __penstock_kind = {END} THEN",
        f"UPDATE {OWN_SCHEMA}.progress AS r SET position = $4[__penstock_unit], batch = $9,"
        " last_commit = pg_catalog.concat_ws(' ', $3[__penstock_unit], $4[__penstock_unit], $12[__penstock_unit])"
        " WHERE r.subscription = $7 AND r.epoch = $8 AND r.position = $3[__penstock_unit];",
        f"IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = '{OUT_OF_TURN}'; END IF;",
        "IF $11 > 1 THEN PERFORM pg_catalog.pg_advisory_lock($10, $5 + __penstock_unit * $11); END IF;",
        f"PERFORM {STAMP};" if marked else "",
        "COMMIT;",
        "IF $11 > 1 THEN PERFORM pg_catalog.pg_advisory_unlock($10, $5 + (__penstock_unit - 1) * $11); END IF;",
        "__penstock_unit := __penstock_unit + 1;",
        "ELSE",
        "PERFORM pg_catalog.pg_advisory_xact_lock_shared($10, $5 + (__penstock_unit - 1) * $11 - 1);",
        "END IF;",
        "END LOOP;",
        "END",
    ]
    body = "\n".join(lines)
    tag = "$penstock$"
    while tag in body:
        tag = f"$penstock{len(tag)}$"
    types = "int4[], text[], text[], text[], int4, int4[], text, int8, int8, int4, int4, text[]"
    sql = f"CREATE OR REPLACE PROCEDURE {NAME}({types}) LANGUAGE plpgsql AS {tag}{body}{tag}"
    return Procedure(sql, tuple(kinds), places)


def _choose(low: int, high: int, body: Callable[[int], str], lines: list[str], places: dict[int, int]) -> None:
    """A decision tree over the numbers `low` to `high`: the time to select a kind is logarithmic in their count."""
    if low > high:
        lines.append("NULL;")
        return
    if low == high:
        lines.append(body(low))
        places[len(lines)] = low
        return
    middle = (low + high) // 2
    lines.append(f"IF __penstock_kind <= {middle} THEN")
    _choose(low, middle, body, lines, places)
    lines.append("ELSE")
    _choose(middle + 1, high, body, lines, places)
    lines.append("END IF;")


def _value(at: int, type_: str) -> str:
    """The value at this offset, cast to its type without length: values that do not fit a column are rejected, not cut."""
    return f"$2[__penstock_at + {at + 1}]::{_plain(type_)}"


def _plain(type_: str) -> str:
    """Type text without its length. Only names of users' types contain quotes, and these have no length."""
    return type_ if '"' in type_ else _MODIFIER.sub("", type_)


def _replacement(place: Place, found: str, values: Mapping[int, str]) -> str:
    """One statement that deletes a row and inserts it with new values, by position; the other columns keep theirs."""
    old = ", ".join(f"{name} AS c{i}" for i, name in enumerate(place.quoted))
    new = ", ".join(values.get(i, f"g.c{i}") for i in place.written)
    return (
        f"WITH g AS (DELETE FROM {place.qualified} WHERE {found} RETURNING {old})"
        f" INSERT INTO {place.qualified} ({_into(place)}) OVERRIDING SYSTEM VALUE SELECT {new} FROM g;"
    )


def _rows(columns: Sequence[tuple[str, str]]) -> tuple[str, dict[str, str]]:
    """Many rows as a FROM item, and the expression of each column. By element: a slice would copy the whole array first."""
    read = [
        f"$2[__penstock_at + {at} * __penstock_count + r.n]::{_plain(type_)} AS {name}"
        for at, (name, type_) in enumerate(columns)
    ]
    series = f"pg_catalog.generate_series(1, __penstock_count) AS r(n) WHERE {_SEEMS_FEW}"
    rows = f"(SELECT {', '.join(read)} FROM {series}) AS u"
    return rows, {name: f"u.{name}" for name, _ in columns}


def _row(place: Place) -> str:
    """The condition that finds the row to change; any one of equal rows."""
    given = [_value(j, column.type) for j, column in enumerate(place.row_columns)]
    if place.schema.mode is not KeyMode.BAG:
        return " AND ".join(f"{place.quoted[i]} = {value}" for i, value in zip(place.key, given, strict=True))
    wanted = f'ROW({", ".join(given)})::pg_catalog.text COLLATE "C"'
    table, names = place.qualified, [place.quoted[i] for i in place.written]
    first = f"SELECT r.ctid, r.tableoid FROM {table} AS r WHERE {image('r', names)} = {wanted} LIMIT 1"
    return f"(ctid, tableoid) = ({first}) AND {image(table, names)} = {wanted}"


def _into(place: Place) -> str:
    return ", ".join(place.quoted[i] for i in place.written)


def _clear(place: Place) -> str:
    return (
        f"IF {cleared_by_rows(place.qualified)} THEN"
        f" DELETE FROM {place.qualified}; ELSE"
        f" UPDATE {OWN_SCHEMA}.tables AS r SET generation = r.generation + 1"
        f" WHERE r.subscription = $7 AND r.table_id = {literal(place.table)};"
        f" TRUNCATE {place.qualified}; END IF;"
    )
