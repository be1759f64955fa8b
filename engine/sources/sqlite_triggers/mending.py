"""Settles, when a window is closed, what triggers could not know: which rows REPLACE removed, and what late triggers saw.

A noted row was removed if the next change of its key creates it, or if there is none and the table has no such row now. Keys that other
triggers changed before Penstock's saw the write get their net change instead, from the table.
"""

from __future__ import annotations

import sqlite3

from engine.sources.sqlite.catalog import Structure, quoted
from engine.sources.sqlite_triggers.objects import DELETE, DOUBT, DOUBTFUL, DROPPED, INSERT, UNREADABLE, UPDATE
from engine.sources.sqlite_triggers.recorded import structure_of

_WHERE = "no > :after AND structure = :structure"
_TABLE_THERE = "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = ? COLLATE NOCASE"
_DROP_ALL = f"UPDATE penstock_changes SET op = '{DROPPED}' WHERE {_WHERE} AND {DOUBTFUL}"


def settle_doubts(connection: sqlite3.Connection, after: int) -> None:
    """Settle changes after that number. In a write transaction."""
    found = connection.execute(
        "SELECT DISTINCT c.structure, s.told, t.structure FROM penstock_changes c JOIN penstock_structures s ON s.structure = c.structure"
        f" JOIN penstock_tables t ON t.relation = s.relation WHERE c.no > ? AND c.{DOUBTFUL}",
        [after],
    ).fetchall()
    for number, told, current in found:
        if connection.execute(_TABLE_THERE, [structure_of(told).name]).fetchone() is None:
            connection.execute(
                _DROP_ALL, {"after": after, "structure": number}
            )  # The table is gone, and its rows with it.
            continue
        _Mending(connection, number, structure_of(told), after, current).settle()


class _Mending:
    """The doubtful changes of one structure in one window."""

    def __init__(self, connection: sqlite3.Connection, number: int, table: Structure, after: int, current: int) -> None:
        """`current`: the number of the table's present structure."""
        self._connection = connection
        self._table = table
        self._given = {"after": after, "structure": number}
        self._current = current
        self._olds = [f"o{place + 1}" for place in table.key_places]
        self._news = [f"c{place + 1}" for place in table.key_places]

    def settle(self) -> None:
        if self._connection.execute(
            f"SELECT 1 FROM penstock_changes WHERE {_WHERE} AND op IN ('i', 'u', 'e')", self._given
        ).fetchone():
            self._settle_late()
        self._settle_noted()

    def _settle_noted(self) -> None:
        """Let noted rows be deletes, or drop them."""
        columns = ", ".join(f"{old} AS k{n}" for n, old in enumerate(self._olds))
        news = ", ".join(f"{new} AS k{n}" for n, new in enumerate(self._news))
        keys = ", ".join(f"k{n}" for n in range(len(self._olds)))
        # Keys are equal by their bytes; storage classes differ in columns without affinity only, which no key has.
        events = (
            f"SELECT no, 0 AS side, op, {columns} FROM penstock_changes WHERE {_WHERE} AND op IN ('U', 'D', 'd')"
            f" UNION ALL SELECT no, 1, op, {news} FROM penstock_changes WHERE {_WHERE} AND op IN ('I', 'U')"
        )
        present = " AND ".join(
            f"p.{quoted(name)} = e.k{n} AND p.{quoted(name)} IS e.k{n} COLLATE BINARY"
            for n, name in enumerate(self._table.key)
        )
        self._connection.execute("DROP TABLE IF EXISTS temp.penstock_removed")
        self._connection.execute(
            f"CREATE TEMP TABLE penstock_removed AS SELECT no FROM (SELECT no, op, {keys}, lead(side) OVER (PARTITION BY {keys} ORDER BY"
            f" no, side) AS next FROM ({events})) AS e WHERE op = '{DOUBT}' AND (next = 1 OR (next IS NULL AND NOT EXISTS (SELECT 1 FROM"
            f" main.{quoted(self._table.name)} AS p WHERE {present})))",
            self._given,
        )
        self._connection.execute(
            f"UPDATE penstock_changes SET op = CASE WHEN no IN (SELECT no FROM temp.penstock_removed) THEN '{DELETE}' ELSE '{DROPPED}' END"
            f" WHERE {_WHERE} AND op = '{DOUBT}'",
            self._given,
        )
        self._connection.execute("DROP TABLE temp.penstock_removed")

    def _settle_late(self) -> None:
        olds, news = ", ".join(self._olds), ", ".join(self._news)
        late = self._rows(f"SELECT {news} FROM penstock_changes WHERE {_WHERE} AND op IN ('i', 'u')")
        late |= self._rows(f"SELECT {olds} FROM penstock_changes WHERE {_WHERE} AND op IN ('u', 'e')")
        for key in sorted(late, key=repr):
            if self._current != self._given["structure"] or not self._settle_key(key):
                # The copy that follows has all of the window.
                self._connection.execute(f"UPDATE penstock_changes SET op = '{DROPPED}' WHERE {_WHERE}", self._given)
                self._connection.execute(
                    "INSERT INTO penstock_changes (structure, op) VALUES (?, ?)", [self._current, UNREADABLE]
                )
                return

    def _rows(self, query: str) -> set[tuple[object, ...]]:
        return set(self._connection.execute(query, self._given).fetchall())

    def _settle_key(self, key: tuple[object, ...]) -> bool:
        """Let the key have its net change. False if the changes do not tell it."""
        given = {**self._given, **{f"k{n}": value for n, value in enumerate(key)}}
        old = " AND ".join(f"{column} IS :k{n}" for n, column in enumerate(self._olds))
        new = " AND ".join(f"{column} IS :k{n}" for n, column in enumerate(self._news))
        rows = self._connection.execute(
            f"SELECT no, op, op NOT IN ('I', 'i') AND {old}, op NOT IN ('D', 'd', 'e') AND {new} FROM penstock_changes"
            f" WHERE {_WHERE} AND op NOT IN ('{DROPPED}', '{UNREADABLE}') AND (({old}) OR ({new}))",
            given,
        ).fetchall()
        last = max(no for no, op, *_ in rows if op != DOUBT)
        noted = [no for no, op, *_ in rows if op == DOUBT]
        # Late triggers write later than what they saw, so only notes after all of them tell the rest.
        if any(no < last for no in noted) or any(op in "Uu" and bool(left) != bool(came) for _, op, left, came in rows):
            return False
        created = sum(op in "Ii" for _, op, *_ in rows)
        deleted = sum(op in "De" for _, op, *_ in rows)
        present = " AND ".join(
            f"p.{quoted(name)} = :k{n} AND p.{quoted(name)} IS :k{n} COLLATE BINARY"
            for n, name in enumerate(self._table.key)
        )
        table = f"main.{quoted(self._table.name)} AS p WHERE {present}"
        there = bool(self._connection.execute(f"SELECT EXISTS (SELECT 1 FROM {table})", given).fetchone()[0])
        before = there - created + deleted + (bool(noted) and not there)
        if before not in {0, 1}:
            return False
        numbers = [(no,) for no, *_ in rows]
        self._connection.executemany(f"UPDATE penstock_changes SET op = '{DROPPED}' WHERE no = ?", numbers)
        if there:
            width = range(1, len(self._table.columns) + 1)
            values = ", ".join(f"p.{quoted(name)}" for name in self._table.names)
            targets = ", ".join(f"{side}{n}" for side in "oc" for n in width)
            op = UPDATE if before else INSERT
            self._connection.execute(
                f"INSERT INTO penstock_changes (structure, op, {targets}) SELECT :structure, '{op}', {values}, {values} FROM {table}",
                given,
            )
        elif before:
            targets = ", ".join(self._olds)
            values = ", ".join(f":k{n}" for n in range(len(key)))
            self._connection.execute(
                f"INSERT INTO penstock_changes (structure, op, {targets}) VALUES (:structure, '{DELETE}', {values})",
                given,
            )
        return True
