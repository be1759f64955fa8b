"""A database without a log of its own: rows in dicts, transactions numbered as they commit. What the fake source reads.

It takes the few statements of the contract suite: integers and texts, single conditions, savepoints.
"""

from __future__ import annotations

import copy
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import sqlglot
from sqlglot import exp

Value = str | None
Row = tuple[Value, ...]
INSERT, UPDATE, DELETE, TRUNCATE = "IUDT"


@dataclass(frozen=True)
class Field:
    """A column: `type` is the canonical name with its modifier, `number` is never used again."""

    name: str
    type: str
    modifier: int
    oid: int
    number: int


@dataclass(frozen=True)
class Structure:
    """A table's structure at one moment."""

    name: str
    relation: int
    fields: tuple[Field, ...]
    key: tuple[str, ...]

    def place(self, name: str) -> int:
        return [each.name for each in self.fields].index(name)


@dataclass
class Table:
    """A table and its committed rows, by a number of our own."""

    structure: Structure
    rows: dict[int, Row] = field(default_factory=dict)
    last_number: int = 0


@dataclass(frozen=True)
class Change:
    """What one statement did to one row."""

    operation: str
    structure: Structure
    old: Row | None = None
    new: Row | None = None


@dataclass(frozen=True)
class Transaction:
    """A committed one; `number` is its position."""

    number: int
    time_us: int
    changes: tuple[Change, ...]


@dataclass
class Reader:
    """The state kept for one reader of the transactions. `application` and `session` are of its current session."""

    confirmed: int
    application: str | None = None
    session: int = 0


class RowsDatabase:
    """Thread-safe; its methods take and give plain values, so that another process may call them through a proxy.

    `stopped`: every call of a source raises ConnectionError, as if the server were away.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.stopped = False
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self.tables: dict[str, Table] = {}
        self.history: dict[int, list[Structure]] = {}
        self.transactions: list[Transaction] = []
        self.open_sessions: set[int] = set()
        self._readers: dict[str, Reader] = {}
        self._snapshots: dict[str, dict[int, Table]] = {}
        self._numbers = itertools.count(1)

    def next_number(self) -> int:
        """For relations, rows, sessions and snapshots."""
        return next(self._numbers)

    def define(self, table: Table) -> None:
        """The table is there, or has another structure now."""
        self.tables[table.structure.name] = table
        self.history.setdefault(table.structure.relation, []).append(table.structure)

    def commit(self, changes: list[Change], apply: Callable[[], None]) -> None:
        with self.lock:
            apply()
            number = len(self.transactions) + 1
            self.transactions.append(Transaction(number, time.time_ns() // 1000, tuple(changes)))
            self._changed.notify_all()

    def session(self) -> RowsSession:
        return RowsSession(self)

    # What a source asks

    def _reached(self) -> None:
        if self.stopped:
            raise ConnectionError("the server is away")

    def identity(self) -> str:
        self._reached()
        return self.name

    def last_number(self) -> int:
        self._reached()
        return len(self.transactions)

    def is_in_use(self) -> bool:
        """Whether a transaction is open."""
        self._reached()
        return bool(self.open_sessions)

    def since(self, after: int, most: int, wait_s: float = 0.0) -> list[Transaction]:
        """Transactions after that number. Waits for one, or for the end of a reader's session."""
        with self._changed:
            self._reached()
            if len(self.transactions) <= after and wait_s > 0:
                self._changed.wait(wait_s)
            return self.transactions[after : after + most]

    def structures(self) -> dict[str, tuple[Structure, int]]:
        """By name, with the number of rows."""
        with self.lock:
            self._reached()
            return {name: (table.structure, len(table.rows)) for name, table in self.tables.items()}

    def structures_of(self, relation: int) -> list[Structure]:
        """All that it ever had, the newest last."""
        with self.lock:
            self._reached()
            return list(self.history.get(relation, ()))

    def row_numbers(self, relation: int) -> list[int]:
        with self.lock:
            self._reached()
            return sorted(row for t in self.tables.values() if t.structure.relation == relation for row in t.rows)

    def take_snapshot(self) -> tuple[str, int]:
        with self.lock:
            self._reached()
            name = f"snapshot-{self.next_number()}"
            self._snapshots[name] = {t.structure.relation: copy.deepcopy(t) for t in self.tables.values()}
            return name, len(self.transactions)

    def drop_snapshot(self, name: str) -> None:
        with self.lock:
            self._snapshots.pop(name, None)

    def read_snapshot(self, name: str, relation: int, low: int, high: int) -> tuple[Structure, list[Row]] | str:
        """Rows numbered from `low` to before `high`; `snapshot` or `table` where that is gone."""
        with self.lock:
            self._reached()
            if name not in self._snapshots:
                return "snapshot"
            table = self._snapshots[name].get(relation)
            if table is None:
                return "table"
            return table.structure, [row for number, row in sorted(table.rows.items()) if low <= number < high]

    def create_reader(self, name: str, confirmed: int) -> bool:
        """A reader of what follows this transaction. False if there is one of this name."""
        with self.lock:
            self._reached()
            if name in self._readers:
                return False
            self._readers[name] = Reader(confirmed)
            return True

    def reader(self, name: str) -> Reader | None:
        with self.lock:
            self._reached()
            return copy.copy(self._readers.get(name))

    def drop_reader(self, name: str) -> None:
        with self.lock:
            self._reached()
            self._readers.pop(name, None)

    def attach(self, name: str, application: str) -> int:
        """The session's number; 0 where another one reads."""
        with self.lock:
            self._reached()
            reader = self._readers[name]
            if reader.session:
                return 0
            reader.session, reader.application = self.next_number(), application
            return reader.session

    def is_attached(self, name: str, session: int) -> bool:
        with self.lock:
            self._reached()
            return name in self._readers and self._readers[name].session == session

    def confirm(self, name: str, session: int, number: int) -> None:
        with self.lock:
            self._reached()
            if self.is_attached(name, session):
                self._readers[name].confirmed = max(self._readers[name].confirmed, number)

    def detach(self, name: str, session: int | None = None) -> None:
        """End this session, or whichever there is."""
        with self.lock:
            reader = self._readers.get(name)
            if reader is not None and session in {None, reader.session}:
                reader.session, reader.application = 0, None
                self._changed.notify_all()


class RowsSession:
    """One connection. Its own work is an overlay over the committed rows until it commits; definitions take effect at once."""

    def __init__(self, database: RowsDatabase) -> None:
        self._database = database
        self._id = database.next_number()
        self._forget()

    def _forget(self) -> None:
        self._changes: list[Change] = []
        self._overlay: dict[tuple[int, int], Row | None] = {}
        self._savepoints: dict[str, tuple[int, dict[tuple[int, int], Row | None]]] = {}
        self._database.open_sessions.discard(self._id)

    def execute(self, statement: str) -> None:
        with self._database.lock:
            self._database.open_sessions.add(self._id)
            if self._savepoint(statement.split()):
                return
            parsed = sqlglot.parse_one(statement, dialect="postgres")
            actions: dict[type[Any], Callable[[Any], None]] = {
                exp.Create: self._create,
                exp.Drop: self._drop,
                exp.Alter: self._alter,
                exp.Insert: self._insert,
                exp.Update: self._update,
                exp.Delete: self._delete,
                exp.TruncateTable: self._truncate,
            }
            actions[type(parsed)](parsed)

    def commit(self) -> None:
        overlay, by_relation = self._overlay, {t.structure.relation: t for t in self._database.tables.values()}

        def apply() -> None:
            for (relation, row), value in overlay.items():
                table = by_relation.get(relation)
                if table is not None and value is None:
                    table.rows.pop(row, None)
                elif table is not None and value is not None:
                    table.rows[row] = value

        self._database.commit(self._changes, apply)
        self._forget()

    def rollback(self) -> None:
        self._forget()

    def _savepoint(self, words: list[str]) -> bool:
        if words[0] == "SAVEPOINT":
            self._savepoints[words[1]] = (len(self._changes), dict(self._overlay))
        elif words[:2] == ["ROLLBACK", "TO"]:
            count, self._overlay = self._savepoints[words[-1]]
            del self._changes[count:]
        elif words[0] != "RELEASE":
            return False
        return True

    # Definitions

    def _create(self, parsed: exp.Create) -> None:
        name = parsed.this.this.name
        fields, key = [], ()
        for definition in parsed.this.expressions:
            if isinstance(definition, exp.ColumnDef):
                fields.append(_field(definition, len(fields) + 1))
                if any(isinstance(c.kind, exp.PrimaryKeyColumnConstraint) for c in definition.constraints):
                    key = (definition.name,)
            elif isinstance(definition, exp.PrimaryKey):
                key = tuple(each.name for each in definition.expressions)
        structure = Structure(name, 16_384 + self._database.next_number(), tuple(fields), key)
        self._database.define(Table(structure, last_number=len(fields)))

    def _drop(self, parsed: exp.Drop) -> None:
        del self._database.tables[_table_name(parsed)]

    def _alter(self, parsed: exp.Alter) -> None:
        table = self._database.tables[_table_name(parsed)]
        for action in parsed.args["actions"]:
            fields = table.structure.fields
            if isinstance(action, exp.ColumnDef):
                table.last_number += 1
                fields = (*fields, _field(action, table.last_number))
                self._reshape(table, fields, lambda row: (*row, None))
            elif isinstance(action, exp.Drop):
                at = table.structure.place(action.find(exp.Identifier).name)
                self._reshape(table, fields[:at] + fields[at + 1 :], lambda row, at=at: row[:at] + row[at + 1 :])
            else:
                raise NotImplementedError(parsed.sql())

    def _reshape(self, table: Table, fields: tuple[Field, ...], reshape: Callable[[Row], Row]) -> None:
        old = table.structure
        table.structure = Structure(old.name, old.relation, fields, old.key)
        self._database.define(table)
        table.rows = {number: reshape(row) for number, row in table.rows.items()}
        for (relation, number), row in self._overlay.items():
            if relation == old.relation and row is not None:
                self._overlay[relation, number] = reshape(row)

    # Rows

    def _visible(self, table: Table) -> dict[int, Row]:
        rows = dict(table.rows)
        for (relation, number), row in self._overlay.items():
            if relation == table.structure.relation:
                rows.pop(number, None)
                if row is not None:
                    rows[number] = row
        return rows

    def _insert(self, parsed: exp.Insert) -> None:
        table = self._database.tables[parsed.this.name]
        for values in parsed.expression.expressions:
            given = [_text(_value(each, {})) for each in values.expressions]
            row = tuple(given + [None] * (len(table.structure.fields) - len(given)))
            self._overlay[table.structure.relation, self._database.next_number()] = row
            self._changes.append(Change(INSERT, table.structure, new=row))

    def _update(self, parsed: exp.Update) -> None:
        table = self._database.tables[parsed.this.name]
        for number, row in self._found(table, parsed):
            new = list(row)
            for assignment in parsed.expressions:
                value = _value(assignment.expression, _named(table.structure, row))
                new[table.structure.place(assignment.this.name)] = _text(value)
            self._overlay[table.structure.relation, number] = tuple(new)
            self._changes.append(Change(UPDATE, table.structure, row, tuple(new)))

    def _delete(self, parsed: exp.Delete) -> None:
        table = self._database.tables[parsed.this.name]
        for number, row in self._found(table, parsed):
            self._overlay[table.structure.relation, number] = None
            self._changes.append(Change(DELETE, table.structure, row))

    def _truncate(self, parsed: exp.TruncateTable) -> None:
        for named in parsed.expressions:
            table = self._database.tables[named.name]
            for number in self._visible(table):
                self._overlay[table.structure.relation, number] = None
            self._changes.append(Change(TRUNCATE, table.structure))

    def _found(self, table: Table, parsed: exp.Update | exp.Delete) -> list[tuple[int, Row]]:
        where = parsed.args.get("where")
        rows = self._visible(table).items()
        return [(n, row) for n, row in rows if where is None or _value(where.this, _named(table.structure, row))]


def _table_name(parsed: exp.Expression) -> str:
    found = parsed.find(exp.Table)
    assert found is not None
    return found.name


def _named(structure: Structure, row: Row) -> dict[str, Any]:
    return {
        each.name: int(value) if value is not None and each.type.startswith("int") else value
        for each, value in zip(structure.fields, row, strict=True)
    }


def _value(expression: exp.Expression, row: dict[str, Any]) -> Any:
    """Of the few forms that the suite's statements have; anything else is an error of the test."""
    match expression:
        case exp.Literal():
            return expression.this if expression.is_string else int(expression.this)
        case exp.Neg():
            return -_value(expression.this, row)
        case exp.Null():
            return None
        case exp.Column():
            return row[expression.name]
        case exp.Mod():
            return _value(expression.left, row) % _value(expression.right, row)
        case exp.EQ():
            return _value(expression.left, row) == _value(expression.right, row)
        case _:
            raise NotImplementedError(expression.sql())


def _text(value: Any) -> Value:
    return None if value is None else str(value)


_TYPES = {"BIGINT": ("int8", 20), "INT": ("int4", 23), "VARCHAR": ("varchar", 1043), "DECIMAL": ("numeric", 1700)}


def _field(definition: exp.ColumnDef, number: int) -> Field:
    kind = definition.kind
    name, oid = _TYPES[kind.this.name]
    sizes = [int(each.name) for each in kind.expressions]
    modifier = -1
    if name == "varchar" and sizes:
        modifier = sizes[0] + 4
    elif name == "numeric" and sizes:
        modifier = (sizes[0] << 16 | sizes[1]) + 4
    return Field(definition.name, name, modifier, oid, number)
