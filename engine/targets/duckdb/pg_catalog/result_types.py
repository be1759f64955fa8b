"""PostgreSQL types of result columns and of parameters that DuckDB's types do not show. Pure."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from engine.postgres.wire_types import TypeOid
from engine.targets.duckdb.pg_catalog.definitions import relations, type_aliases, type_oids
from engine.targets.duckdb.pg_catalog.detection import REG_TYPES
from engine.targets.duckdb.pg_catalog.parsing import catalog_name, folded, parsed, type_name

_SHOWN = {
    "char": TypeOid.CHAR,
    "_char": 1002,
    "int2vector": TypeOid.INT2VECTOR,
    "oidvector": TypeOid.OIDVECTOR,
    "xid": TypeOid.XID,
    "varchar": TypeOid.VARCHAR,
}
"""Types of catalog columns that are sent with their own OID. Others that DuckDB holds as text are sent as text."""
_Columns = list[tuple[str, str | None]]
"""Names and PostgreSQL's internal type names of a relation's columns; None: by DuckDB's type."""


def known_types(tree: exp.Expr) -> list[int | None] | None:
    """The OID of each result column, None for those whose type DuckDB shows; None as a whole if the columns are not known."""
    columns = _columns(tree, {})
    return None if columns is None else [_SHOWN.get(kind) if kind else None for _, kind in columns]


def _columns(query: Any, outer: dict[str, _Columns | None]) -> _Columns | None:
    """Columns of a query; None if they are not known."""
    expressions = dict(outer)
    for cte in query.ctes if isinstance(query, exp.Query) else []:
        expressions[cte.alias_or_name.lower()] = _renamed(_columns(cte.this, expressions), cte.args.get("alias"))
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Select):
        return None
    sources = _sources(query, expressions)
    found: _Columns = []
    for one in query.expressions:
        if one.is_star:
            wanted = one.table.lower() if isinstance(one, exp.Column) else None
            for name, columns in sources:
                if wanted in {None, name}:
                    if columns is None:
                        return None
                    found.extend(columns)
        else:
            found.append((one.alias_or_name, _kind(one.unalias(), sources)))
    return found


def _sources(select: exp.Select, expressions: dict[str, _Columns | None]) -> list[tuple[str, _Columns | None]]:
    """What FROM names: names and columns."""
    start = select.args.get("from_")
    parts = ([start.this] if start is not None else []) + [join.this for join in select.args.get("joins") or []]
    found: list[tuple[str, _Columns | None]] = []
    for part in parts:
        columns: _Columns | None = None
        if isinstance(part, exp.Table) and isinstance(part.this, exp.Identifier):
            name = catalog_name(part)
            if not part.args.get("db") and part.name.lower() in expressions:
                columns = expressions[part.name.lower()]
            elif name in relations():
                columns = [(column.name, column.type) for column in relations()[name].columns]
            for join in part.args.get("joins") or []:
                parts.append(join.this)
        elif isinstance(part, exp.Subquery | exp.Lateral):
            columns = _columns(part.this, expressions)
        found.append((part.alias_or_name.lower(), _renamed(columns, part.args.get("alias"))))
    return found


def _renamed(columns: _Columns | None, alias: Any) -> _Columns | None:
    if columns is None or alias is None or not alias.columns:
        return columns
    names = [folded(one) for one in alias.columns]
    return [(new, kind) for new, (_, kind) in zip(names, columns, strict=False)] + columns[len(names) :]


def _kind(node: exp.Expr, sources: list[tuple[str, _Columns | None]]) -> str | None:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Cast):
        name, array = type_name(node.to)
        return ("_char" if array else "char") if name == '"char"' else None
    if isinstance(node, exp.Column):
        for name, columns in sources:
            if node.table.lower() in {"", name}:
                for column, kind in columns or []:
                    if column == folded(node.this):
                        return kind
    return None


def parameter_types(sql: str) -> list[int]:
    """Type OIDs of `$1` and the following: of the cast or the catalog column that a parameter is next to, otherwise text."""
    found: dict[int, int] = {}
    tree = parsed(sql)
    for node in tree.find_all(exp.Parameter):
        if node.name.isdigit():
            oid = _parameter(node)
            if found.get(int(node.name), TypeOid.TEXT) == TypeOid.TEXT:
                found[int(node.name)] = oid
    return [found.get(number, int(TypeOid.TEXT)) for number in range(1, max(found, default=0) + 1)]


def _parameter(node: exp.Parameter) -> int:
    child: exp.Expr | None = node
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent, child = parent.parent, parent
    if isinstance(parent, exp.Cast):
        name, array = type_name(parent.to)
        internal = "char" if name == '"char"' else type_aliases().get(name, name)
        if internal in REG_TYPES and not array:
            return int(TypeOid.TEXT)
        return type_oids().get(("_" if array else "") + internal, int(TypeOid.TEXT))
    array = isinstance(parent, exp.Any | exp.All)
    if array and parent is not None:
        parent, child = parent.parent, parent
    if isinstance(parent, exp.Binary):
        for other in (parent.left, parent.right):
            if other is not child and isinstance(other, exp.Column) and (kind := _column_type(other.name.lower())):
                return type_oids().get(("_" if array else "") + kind, int(TypeOid.TEXT))
    return 1009 if array else int(TypeOid.TEXT)


def _column_type(name: str) -> str | None:
    """The type of the catalog's columns of this name; names are text."""
    for relation in relations().values():
        for column in relation.columns:
            if column.name == name:
                return "text" if column.type == "name" else column.type
    return None
