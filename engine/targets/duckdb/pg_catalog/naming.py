"""Names of result columns, as PostgreSQL chooses them for expressions without a name. Pure."""

from __future__ import annotations

from sqlglot import exp

from engine.targets.duckdb.pg_catalog.definitions import type_aliases
from engine.targets.duckdb.pg_catalog.parsing import folded, function_name, is_written, type_name

UNNAMED = "?column?"
_KEYWORDS: tuple[tuple[type[exp.Expr], str], ...] = (
    (exp.Coalesce, "coalesce"),
    (exp.Nullif, "nullif"),
    (exp.Exists, "exists"),
    (exp.Array, "array"),
    (exp.Extract, "extract"),
    (exp.AtTimeZone, "timezone"),
    (exp.Tuple, "row"),
    (exp.StrPosition, "position"),
    (exp.Greatest, "greatest"),
    (exp.Least, "least"),
    (exp.Explode, "unnest"),
)
_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim"}
_STRONG = 2
"""Strength of a name that PostgreSQL prefers to those of casts and CASE."""


def column_name(node: exp.Expr) -> str:
    """The name of a select list's entry."""
    return _named(node)[0] or UNNAMED


def _named(node: exp.Expr) -> tuple[str | None, int]:
    """Name and its strength: 2 is used in any case, 1 only where no inner name is stronger (FigureColname in PostgreSQL)."""
    if isinstance(node, exp.Alias):
        return node.alias, _STRONG
    if isinstance(node, exp.Column | exp.Identifier):
        return folded(node.this if isinstance(node, exp.Column) else node), _STRONG
    if isinstance(node, exp.Paren | exp.Collate | exp.Bracket | exp.Filter | exp.Window):
        return _named(node.this)
    if isinstance(node, exp.Dot):
        return _named(node.expression)
    if isinstance(node, exp.Cast):
        name, strength = _named(node.this)
        return (name, strength) if strength == _STRONG else (_type(node.to), 1)
    if isinstance(node, exp.Case):
        name, strength = _named(node.args["default"]) if node.args.get("default") else (None, 0)
        return (name, strength) if strength == _STRONG else ("case", 1)
    if isinstance(node, exp.Subquery):
        return _of_query(node.this)
    return _of_function(node)


def _of_query(query: exp.Expr) -> tuple[str | None, int]:
    chosen = query.selects[0] if isinstance(query, exp.Query) and query.selects else None
    return (None, 0) if chosen is None else (column_name(chosen), _STRONG)


def _of_function(node: exp.Expr) -> tuple[str | None, int]:
    if isinstance(node, exp.Trim):
        return _TRIMS.get(str(node.args.get("position")), "btrim"), _STRONG
    if isinstance(node, exp.Func) and is_written(node):
        return function_name(node), _STRONG
    for kind, name in _KEYWORDS:
        if isinstance(node, kind):
            return name, _STRONG
    operator = isinstance(node, exp.Binary | exp.Unary | exp.Predicate | exp.Connector | exp.Any | exp.All)
    if isinstance(node, exp.Func) and not operator:
        return function_name(node), _STRONG
    return None, 0


def _type(kind: exp.Expr) -> str:
    name = type_name(kind)[0]
    return "char" if name == '"char"' else type_aliases().get(name, name)
