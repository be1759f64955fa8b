"""Says by which methods each table can be compared, what they cost, and what stamps and delete flags of it lack."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from engine.model.fault import FaultKind
from engine.model.schema import TableSchema
from engine.model.source import Finding, Severity
from engine.model.subscription import TableSpec
from engine.sources.mariadb.catalog import MariaDbTable
from engine.sources.mariadb.connect import MariaDbConnection, quoted, rows
from engine.sources.mariadb_queries.compared import Compared, stamps_of, types_of
from engine.sources.mariadb_queries.hashing import is_ordered
from engine.sources.mariadb_queries.stamp_script import (
    flag_sql,
    guard_sql,
    index_sql,
    process_sql,
    stamp_sql,
    stamp_triggers_sql,
)
from engine.sources.mariadb_queries.stamps import has_others, sees_transactions
from engine.sources.query_diff.costs import Cost, TableFacts, costs
from engine.sources.query_diff.declaration import STAMPED

_AUTOMATIC = """
SELECT IFNULL(column_default, '') LIKE 'current_timestamp%%' AND extra LIKE '%%on update current_timestamp%%'
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s AND column_name = %s
"""
"""Whether the server sets a column at each insert and update that does not set it."""
_CASCADES = re.compile(
    r"^ *CONSTRAINT `((?:[^`]|``)+)` FOREIGN KEY .*ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL)", re.MULTILINE
)
"""Foreign keys that change rows of their table, in its definition: who may only read finds none in information_schema."""
_PAGE_BYTES = 8192
"""Bytes of the pages in which costs are counted. Those of the server usually have 16 KiB."""
_FIXED = frozenset({"bool", "date", "float4", "float8", "int2", "int4", "int8", "timestamp", "timestamptz", "uuid"})
"""Canonical types of columns that an index can include without a limit."""
_MOST_INDEXED = 32
"""Columns of an index."""
_MIB = 1024 * 1024
"""Bytes."""
_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO


@dataclass(frozen=True, slots=True)
class _Stamped:
    """A table whose changes are found by a stamp. `schema`: None if it cannot be compared as declared."""

    table: MariaDbTable
    schema: TableSchema | None
    stamp: str
    flag: str | None

    def findings(self, connection: MariaDbConnection, compared: Compared) -> list[Finding]:
        return self._problems(compared) or [
            *self._unindexed(),
            *self._automatic(connection),
            *self._zone(),
            *self._cascades(connection),
            *self._unguarded(),
        ]

    def _problems(self, compared: Compared) -> list[Finding]:
        name, there, found = self.table.name, types_of(self.table), []
        if (problem := compared.stamp_problem(self.table)) is not None:
            statements = () if self.stamp in there else stamp_sql(name, self.stamp)
            found.append(_unfit(name, problem, "Correct capture.tables, or run the statement.", statements))
        if self.flag is not None and (problem := compared.flag_problem(self.table)) is not None:
            statements = () if self.flag in there else flag_sql(name, self.flag)
            remedy = (
                "Correct capture.tables, or run the statement; the application then sets the flag in place of DELETE."
            )
            found.append(_unfit(name, problem, remedy, statements))
        return found

    def _unindexed(self) -> list[Finding]:
        if _led_by(self.table, self.stamp):
            return []
        included = [] if self.flag is None else [self.flag]
        columns = self.schema.columns if self.schema is not None else ()
        if columns and len(columns) < _MOST_INDEXED and all(column.type.name in _FIXED for column in columns):
            known = {*included, *self.table.key}
            included += [c.on_source for c in columns if c.on_source not in known]
        what = (
            f"{self.table.name} has no index that begins with {self.stamp}: each cycle reads the whole table to find"
            " recent stamps"
        )
        statements = index_sql(self.table.name, self.stamp, included)
        return [Finding(_W, "stamp_without_index", what, "Create one.", statements)]

    def _automatic(self, connection: MariaDbConnection) -> list[Finding]:
        name = self.table.name
        if rows(connection, _AUTOMATIC, name.schema, name.name, self.stamp)[0][0]:
            return []
        what = (
            f"the definition of {self.stamp} of {name} does not say that the server sets it at each insert and update"
        )
        remedy = "If neither the application nor a trigger does, run the statements, which create two triggers."
        facts = next(facts for facts in self.table.columns if facts.name == self.stamp)
        return [Finding(_I, "stamp_not_automatic", what, remedy, stamp_triggers_sql(name, facts))]

    def _zone(self) -> list[Finding]:
        kind = types_of(self.table)[self.stamp]
        if kind == "timestamp":
            return []
        what = (
            f"{self.stamp} of {self.table.name} has the type {kind}, which has no time zone: changes by sessions with"
            " another time zone than the others are found late"
        )
        return [Finding(_I, "stamp_without_zone", what, "Let all sessions have one time zone, or use a timestamp.")]

    def _cascades(self, connection: MariaDbConnection) -> list[Finding]:
        name = self.table.name
        definition = str(rows(connection, f"SHOW CREATE TABLE {quoted(name.schema, name.name)}")[0][1])
        found = [found.replace("``", "`") for found in _CASCADES.findall(definition)]
        if not found:
            return []
        what = (
            f"foreign keys change rows of {self.table.name} without setting {self.stamp}, and remove rows that are not"
            f" marked: {', '.join(found)}. Such changes are found by cycles that compare all rows"
        )
        return [
            Finding(_W, "stamp_not_set_by_cascades", what, "Lower sweep_every, or change these rows by statements.")
        ]

    def _unguarded(self) -> list[Finding]:
        if self.flag is None:
            return []
        what = f"rows of {self.table.name} that are removed without having been marked are found by cycles that compare all rows"
        remedy = "None needed. After the statement the server refuses to remove rows whose flag is not set."
        return [Finding(_I, "deletes_without_flag", what, remedy, guard_sql(self.table.name, self.flag))]


def propose(connection: MariaDbConnection, compared: Compared, spec: TableSpec, table: MariaDbTable) -> list[Finding]:
    """Findings on the methods of a table that can be compared."""
    chosen, schema = compared.of(table), compared.schema(table, spec)
    stamp = chosen.stamp_column if chosen.method in STAMPED else None
    found = []
    if stamp is not None:
        found += _Stamped(table, schema, stamp, chosen.flag_column).findings(connection, compared)
    return found if schema is None else found + _methods(compared, table, schema, stamp)


def _methods(compared: Compared, table: MariaDbTable, schema: TableSchema, stamp: str | None) -> list[Finding]:
    """Which methods are possible, and what they cost."""
    chosen = compared.of(table)
    method = chosen.method or compared.method
    led, read = ([] if stamp is None else _led_by(table, stamp)), {column.on_source for column in schema.columns}
    pages = -(-table.bytes // _PAGE_BYTES)
    facts = TableFacts(
        pages,
        table.rows,
        table.bytes,
        ordered=is_ordered(table, schema),
        stamp=stamp,
        flag=chosen.flag_column,
        indexed=bool(led),
        covers=any(read <= {*columns, *_primary(table)} for columns in led),
    )
    listed = costs(facts)
    best = listed[0].way.value
    what = (
        f"{table.name}: {pages:,} pages of 8 KiB, about {table.rows:,} rows. A cycle in which 1 % of these pages changed reads and"
        f" sends: {'; '.join(map(_words, listed))}. The least: {best}; chosen: {method}"
    )
    remedy = "None needed." if method == best else f"Set capture.method, or capture.tables of this table, to {best}."
    found = [Finding(_I, "method_costs", what, remedy)]
    names = sorted(name for name in stamps_of(table) if _led_by(table, name))
    if stamp is None and names:
        what = f"{table.name} has an index that begins with a time: {', '.join(names)}"
        remedy = "If every insert and update sets it to the server's time, the method timestamp reads few pages."
        found.append(Finding(_I, "stamp_possible", what, remedy))
    return found


def open_transactions(connection: MariaDbConnection, account: str) -> list[Finding]:
    """Whether the age of open transactions can be seen, which stamps need. `account`: user and host."""
    counts = "so each cycle by stamps counts on transactions that have been open for 15 minutes, and finds changes of longer ones late"
    if not sees_transactions(connection):
        what, statements = f"the user may not see the transactions of others, {counts}", process_sql(account)
        return [Finding(_W, "open_transactions_not_seen", what, "Grant the right PROCESS.", statements)]
    if has_others(connection):
        what = f"the server writes transactions of other servers, whose beginnings it does not know, {counts}"
        remedy = "None needed if no transaction takes so long; else query the server that the application writes to."
        return [Finding(_I, "open_transactions_not_seen", what, remedy)]
    return []


def _led_by(table: MariaDbTable, column: str) -> list[Sequence[str]]:
    """The indexes whose first column it is."""
    return [index.columns for index in table.indexes if index.whole and index.columns[0] == column]


def _primary(table: MariaDbTable) -> tuple[str, ...]:
    """Columns of the primary key, which each index has at its end."""
    return next((index.columns for index in table.indexes if index.name == "PRIMARY"), ())


def _unfit(name: object, problem: str, remedy: str, statements: tuple[str, ...]) -> Finding:
    return Finding(_E, FaultKind.TABLE_COLUMNS_UNFIT.value, f"{name}: {problem}", remedy, statements)


def _words(cost: Cost) -> str:
    return f"{cost.way.value} {cost.pages:,.0f} pages and {cost.sent / _MIB:,.1f} MiB"
