"""Reads the partitions of a table under one snapshot, with their bounds in a form that the engine and the target can evaluate."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import psycopg
from psycopg import sql

from engine.model.copies import compared_type
from engine.model.fault import FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.partitions import Bound, DefaultBound, Edge, Limit, ListBound, Partition, RangeBound, Region
from engine.model.schema import KeyMode, TableSchema
from engine.model.values import Kind
from engine.postgres.sessions import PostgresConnection
from engine.sources.postgres.connect import SOURCE, Connector

_TREE = """
WITH RECURSIVE tree(oid, parent) AS (
    SELECT %s::oid, 0::oid
    UNION ALL
    SELECT i.inhrelid, i.inhparent FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid)
SELECT t.oid, t.parent, n.nspname, c.relname, c.relkind = 'p', pg_get_expr(c.relpartbound, c.oid), p.partstrat::text,
       (SELECT array_agg(a.attname::text ORDER BY k.place)
        FROM unnest(p.partattrs::int2[]) WITH ORDINALITY AS k(attnum, place)
        LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum AND k.attnum <> 0),
       coalesce((SELECT bool_and(coalesce(l.collisdeterministic, true))
                 FROM unnest(p.partcollation::oid[]) AS o(oid) LEFT JOIN pg_collation l ON l.oid = o.oid), true),
       coalesce((SELECT bool_and(o.opcdefault) FROM unnest(p.partclass::oid[]) AS q(oid) JOIN pg_opclass o ON o.oid = q.oid), true)
FROM tree t JOIN pg_class c ON c.oid = t.oid JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_partitioned_table p ON p.partrelid = c.oid
ORDER BY n.nspname, c.relname
"""
"""Reads catalog tables only: catalog functions would show the current state instead of the snapshot's."""
_GONE = {"22023": FaultKind.COPY_LOST, "42704": FaultKind.COPY_LOST, "55000": FaultKind.COPY_LOST}
_TOKEN = re.compile(
    r"\s*(?:(?P<text>E?'(?:[^']|'')*')|(?P<word>[A-Za-z]+)|(?P<number>-?[0-9][0-9.eE+-]*)|(?P<sign>[(),]))"
)
_BOOLEANS = {"true": "t", "false": "f"}
"""Boolean literals of pg_get_expr, and their COPY text."""


class NotUnderstood(Exception):
    """A bound cannot be evaluated outside the source; the message says why."""


@dataclass(frozen=True, slots=True)
class _Row:
    oid: int
    parent: int
    name: TableName
    partitioned: bool
    bound: str
    strategy: str | None
    columns: tuple[str | None, ...]
    deterministic: bool
    plain: bool
    """The partition key uses the default operator classes and collations of its columns' types."""


@dataclass(slots=True)
class _Tree:
    schema: TableSchema
    rows: dict[int, _Row]
    regions: dict[int, Region | NotUnderstood] = field(default_factory=dict)

    def region(self, oid: int) -> Region | NotUnderstood:
        """Which rows of the root belong to this partition; all rows for the root itself."""
        row = self.rows[oid]
        if row.parent == 0:
            return ()
        if oid not in self.regions:
            above = self.region(row.parent)
            if isinstance(above, NotUnderstood):
                self.regions[oid] = above
            else:
                try:
                    self.regions[oid] = (*above, self._bound(row))
                except NotUnderstood as reason:
                    self.regions[oid] = reason
        return self.regions[oid]

    def _bound(self, row: _Row) -> Bound:
        parent = self.rows[row.parent]
        columns = self._columns(parent)
        if row.bound != "DEFAULT":
            return read_bound(row.bound, columns, self._kind(columns))
        others = [other for other in self.rows.values() if other.parent == parent.oid and other.oid != row.oid]
        return DefaultBound(tuple(read_bound(other.bound, columns, self._kind(columns)) for other in others))

    def _columns(self, parent: _Row) -> tuple[str, ...]:
        """The partition key columns, by their names on the target. Raises NotUnderstood if their comparison is specific to the source."""
        if parent.strategy not in {"l", "r"}:
            raise NotUnderstood(f"{parent.name} is partitioned by hash")
        columns = tuple(column for column in parent.columns if column is not None)
        if len(columns) != len(parent.columns):
            raise NotUnderstood(f"{parent.name} is partitioned by an expression")
        if not parent.plain or not parent.deterministic:
            raise NotUnderstood(f"the partition key of {parent.name} is compared in a way of its own")
        known = {column.on_source: column for column in self.schema.columns}
        for name in columns:
            if name not in known:
                raise NotUnderstood(f"column {name} is not replicated")
            if known[name].mask is not None:
                raise NotUnderstood(f"column {name} is masked")
            if compared_type(known[name], ordered=parent.strategy == "r") is None:
                raise NotUnderstood(f"values of column {name} may compare in another way on the target")
            if self.schema.mode is KeyMode.KEYED and known[name].name not in self.schema.key:
                raise NotUnderstood(f"column {name} is not part of the key by which changes find their rows")
        return tuple(known[name].name for name in columns)

    def _kind(self, columns: Sequence[str]) -> Kind | None:
        held = compared_type(self.schema.column(columns[0]), ordered=False)
        return None if held is None else held.kind


def partitions(connector: Connector, schema: TableSchema, snapshot: str | None) -> list[Partition]:
    """All partitions below a root, ordered by name; empty if the table is not partitioned. `snapshot`: an exported one; None = now.

    Raises EngineFault(COPY_LOST) if the snapshot does not exist any more.
    """
    subject = str(schema.name)
    with connector.session(subject) as connection:
        try:
            with connection.transaction():
                rows = _read(connection, schema, snapshot)
        except psycopg.Error as error:
            raise SOURCE.fault(error, subject, _GONE) from error
    tree = _Tree(schema, {row.oid: row for row in rows})
    found = []
    for row in rows:
        if row.parent == 0:
            continue
        region = tree.region(row.oid)
        part = Partition(row.name, RelationId(row.oid), RelationId(row.parent), not row.partitioned, row.bound)
        if isinstance(region, NotUnderstood):
            found.append(replace(part, obstacle=str(region)))
        else:
            found.append(replace(part, region=region))
    return found


def _read(connection: PostgresConnection, schema: TableSchema, snapshot: str | None) -> list[_Row]:
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    if snapshot is not None:
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
    rows = connection.execute(_TREE, [schema.relation]).fetchall()
    return [
        _Row(oid, parent, TableName(space, name), kind, bound or "", strategy, tuple(columns or ()), same, plain)
        for oid, parent, space, name, kind, bound, strategy, columns, same, plain in rows
    ]


@dataclass(frozen=True, slots=True)
class _Token:
    """`value`: of a literal; None for a keyword or a punctuation mark. `edge`: MINVALUE or MAXVALUE."""

    text: str
    value: str | None = None
    edge: Edge | None = None


_END = _Token("")


def read_bound(text: str, columns: Sequence[str], kind: Kind | None = None) -> ListBound | RangeBound:
    """Parse a bound as pg_get_expr prints it. `kind`: of the first column's values. Raises NotUnderstood."""
    words = _tokens(text)
    head = [next(words, _END).text for _ in range(3)]
    if head == ["FOR", "VALUES", "IN"]:
        return _list(_listed(words), columns, kind)
    if head == ["FOR", "VALUES", "FROM"]:
        lower = _limits(_listed(words))
        if next(words, _END).text != "TO":
            raise _OTHER_FORM
        upper = _limits(_listed(words))
        if len(lower) == len(upper) == len(columns):
            return RangeBound(tuple(columns), lower, upper)
    raise _OTHER_FORM


_OTHER_FORM = NotUnderstood("its bound has a form that is not known here")


def _list(items: Sequence[_Token], columns: Sequence[str], kind: Kind | None) -> ListBound:
    values = [item.value for item in items if item.value is not None]
    if len(columns) != 1 or any(item.edge is not None for item in items):
        raise _OTHER_FORM
    if kind is Kind.BOOL:
        values = [_BOOLEANS.get(value, value) for value in values]
    elif kind is not Kind.TEXT:
        _refuse_endless(values)
    return ListBound(columns[0], tuple(values), null=len(values) < len(items))


def _limits(items: Sequence[_Token]) -> tuple[Limit, ...]:
    _refuse_endless([item.value for item in items if item.value is not None])
    limits = [item.edge or item.value for item in items]
    found = tuple(limit for limit in limits if limit is not None)
    if len(found) < len(items):
        raise _OTHER_FORM
    return found


def _refuse_endless(values: Sequence[str]) -> None:
    if any(value.lower().lstrip("-") in {"infinity", "nan"} for value in values):
        raise NotUnderstood("its bound names a value that is infinite, or not a number")


def _listed(words: Iterator[_Token]) -> list[_Token]:
    """The items of one parenthesised list; NULL has neither value nor edge."""
    if next(words, _END).text != "(":
        raise _OTHER_FORM
    items: list[_Token] = []
    while True:
        item = next(words, _END)
        if item.value is None and item.edge is None and item.text != "NULL":
            raise _OTHER_FORM
        items.append(item)
        after = next(words, _END).text
        if after == ")":
            return items
        if after != ",":
            raise _OTHER_FORM


def _tokens(text: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise _OTHER_FORM
        at = match.end()
        word = match["word"]
        if match["text"] is not None:
            yield _Token("literal", _unquoted(match["text"]))
        elif match["number"] is not None or word in _BOOLEANS:
            yield _Token("literal", match["number"] or word)
        elif word in set(Edge):
            yield _Token("edge", edge=Edge(word))
        else:
            yield _Token(word or match["sign"])


def _unquoted(text: str) -> str:
    plain = text[text.index("'") + 1 : -1].replace("''", "'")
    return plain.replace("\\\\", "\\") if text.startswith("E") else plain
