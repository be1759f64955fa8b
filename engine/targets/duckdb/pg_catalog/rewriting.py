"""Rewrites a catalog query of a PostgreSQL client for the tables and functions in DuckDB. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sqlglot import ErrorLevel, exp

from engine.targets.duckdb.pg_catalog.definitions import relations
from engine.targets.duckdb.pg_catalog.description import CatalogError
from engine.targets.duckdb.pg_catalog.detection import REG_TYPES
from engine.targets.duckdb.pg_catalog.functions import PREFIX, Function
from engine.targets.duckdb.pg_catalog.naming import column_name
from engine.targets.duckdb.pg_catalog.parsing import (
    catalog_name,
    folded,
    function_name,
    named_tables,
    type_name,
)
from engine.targets.duckdb.pg_catalog.tables import SCHEMAS

_TYPES = {
    "oid": "UINTEGER",
    "xid": "UINTEGER",
    "cid": "UINTEGER",
    "cardinal_number": "INTEGER",
    "int2vector": "SMALLINT[]",
    "oidvector": "UINTEGER[]",
    "jsonb": "JSON",
    "aclitem": "VARCHAR",
} | dict.fromkeys(
    [
        "name",
        '"char"',
        "cstring",
        "unknown",
        "sql_identifier",
        "character_data",
        "yes_or_no",
        "pg_node_tree",
        "pg_lsn",
        "inet",
        "tid",
        "bpchar",
        "refcursor",
    ],
    "VARCHAR",
)
"""DuckDB's types for those that sqlglot does not translate."""
_TEXT_TYPES = frozenset({"text", "varchar", "char", '"char"', "name", "nvarchar", "bpchar"})
_OF_DUCKDB = frozenset(
    [
        "array_append",
        "array_cat",
        "array_prepend",
        "array_reverse",
        "bit_length",
        "bool_and",
        "bool_or",
        "cardinality",
        "char_length",
        "character_length",
        "chr",
        "generate_subscripts",
        "md5",
        "octet_length",
        "row_to_json",
        "split_part",
        "string_to_array",
        "to_json",
        "transaction_timestamp",
    ]
)
"""Functions with the same name and meaning in DuckDB, of those that sqlglot passes on as they are."""
_RENAMED = {
    "btrim": "trim",
    "clock_timestamp": "now",
    "every": "bool_and",
    "json_agg": "json_group_array",
    "json_build_object": "json_object",
    "jsonb_build_object": "json_object",
    "statement_timestamp": "now",
}
"""Functions that have another name in DuckDB."""
_CASTS = {"bpchar": "VARCHAR", "text": "VARCHAR", "name": "VARCHAR", "varchar": "VARCHAR", "oid": "UINTEGER"} | {
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "float8": "DOUBLE",
}
"""Types that are called like functions."""
_RELATIONS_OF = {"pg_show_all_settings": "pg_settings"}
"""Functions that return the rows of a relation."""
_LISTED = "_listed"
"""End of the name of a function whose calls in a select list, not in FROM, return its rows."""
_PLACE = re.compile("%[sIL]")
_ARRAY_TEXT = re.compile(r"\{[^{}:]*\}")
_SUBSCRIPTS = frozenset({"generate_subscripts", "array_lower", "array_upper", "array_position"})
"""Functions whose results are subscripts."""
_SHIFTED = "shifted"
"""Key in the metadata of a call whose result, a subscript of DuckDB's list, is reduced by one for a vector."""
_WRITES = (exp.DML, exp.DDL, exp.Command, exp.Into, exp.Drop)
_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "xmax", "ctid"})
_FROZEN = "2"
"""xmin of rows that every transaction sees (FrozenTransactionId)."""


@dataclass(slots=True)
class Rewritten:
    """A statement for DuckDB with what it needs. `named`: catalog relations by PostgreSQL's schema and name."""

    sql: str
    named: set[tuple[str, str]] = field(default_factory=set)
    called: set[str] = field(default_factory=set)
    names: list[str] | None = None
    """Names of the result's columns; None if the select list has a `*`."""


def rewritten(tree: exp.Expr, parameters: Sequence[Any], functions: Mapping[str, Function]) -> Rewritten:
    """The statement for DuckDB. Changes `tree`. Raises CatalogError for what the catalog does not have."""
    if not isinstance(tree, exp.Query) or tree.find(*_WRITES) is not None:
        raise CatalogError("0A000", "a catalog query is a SELECT that only reads")
    return _Rewriter(tree, parameters, functions).result()


class _Rewriter:
    def __init__(self, tree: exp.Query, parameters: Sequence[Any], functions: Mapping[str, Function]) -> None:
        self._tree = tree
        self._parameters = parameters
        self._functions = functions
        self._done = Rewritten("")

    def result(self) -> Rewritten:
        tree = self._tree
        for identifier in tree.find_all(exp.Identifier):
            identifier.set("this", folded(identifier))
        self._vectors = _vectors(tree)
        self._bind()
        self._name_columns()
        self._system_columns()
        self._relations()
        for node in list(
            tree.find_all(exp.Bracket, exp.Cast, exp.Literal, exp.DPipe, exp.EQ, exp.NEQ, exp.Like, exp.ILike)
        ):
            self._values(node)
        self._row_functions()
        # Inner calls first, so that a call that is replaced already contains its replaced arguments.
        for function in reversed(list(tree.find_all(exp.Func, exp.Column))):
            self._call(function)
        self._done.sql = tree.sql("duckdb", comments=False, identify=True, unsupported_level=ErrorLevel.IGNORE)
        return self._done

    def _bind(self) -> None:
        """Constants in place of `$1` and the like."""
        for node in list(self._tree.find_all(exp.Parameter)):
            number = node.name
            if not number.isdigit() or not 1 <= int(number) <= len(self._parameters):
                raise CatalogError("08P01", f"there is no value for parameter ${number}")
            value = self._parameters[int(number) - 1]
            holder = _outside(node)
            if value is None and isinstance(holder, exp.Any | exp.All) and holder.parent is not None:
                holder.parent.replace(exp.Null())
            elif isinstance(holder, exp.Limit | exp.Offset) and isinstance(value, str) and value.isdigit():
                node.replace(exp.Literal.number(value))
            else:
                node.replace(_constant(value))

    def _name_columns(self) -> None:
        """Give every column of a select list the name that PostgreSQL would give it."""
        for select in self._tree.find_all(exp.Select):
            for one in list(select.expressions):
                if not isinstance(one, exp.Alias | exp.Star | exp.Column) and not one.is_star:
                    one.replace(exp.alias_(one.copy(), column_name(one), quoted=True))
        chosen: Any = self._tree
        while isinstance(chosen, exp.SetOperation | exp.Subquery):
            chosen = chosen.this
        if isinstance(chosen, exp.Select) and not any(one.is_star for one in chosen.expressions):
            self._done.names = [one.alias_or_name for one in chosen.expressions]
            for one in chosen.expressions:
                if isinstance(one.this, exp.Null):
                    # An untyped NULL is text to PostgreSQL.
                    one.set("this", _cast(exp.Null(), "VARCHAR"))

    def _system_columns(self) -> None:
        """`tableoid` and the like, which every relation of PostgreSQL has."""
        for column in list(self._tree.find_all(exp.Column)):
            if column.name.lower() not in _SYSTEM_COLUMNS:
                continue
            select = column.find_ancestor(exp.Select)
            sources = (
                [one for one in select.find_all(exp.Table) if isinstance(one.this, exp.Identifier)] if select else []
            )
            for one in sources:
                name = catalog_name(one)
                if name in relations() and (not column.table or column.table.lower() == one.alias_or_name.lower()):
                    oid = str(relations()[name].oid) if column.name.lower() == "tableoid" else _FROZEN
                    value: exp.Expr = _cast(exp.Literal.number(oid), "UINTEGER")
                    shown = column.parent is select
                    column.replace(exp.alias_(value, column.name, quoted=True) if shown else value)
                    break

    def _relations(self) -> None:
        for table in list(named_tables(self._tree)):
            name = catalog_name(table)
            shown = ".".join(part.name for part in (table.args.get("db"), table.this) if part is not None)
            if name is None:
                raise CatalogError("42P01", f'relation "{shown}" does not exist in the catalog of this copy')
            if name not in relations():
                raise CatalogError("42P01", f'relation "{shown}" does not exist')
            self._done.named.add(name)
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(name[1], quoted=True)))
            table.set("db", exp.to_identifier(SCHEMAS[name[0]]))
            table.set("catalog", None)
            table.set("this", exp.to_identifier(name[1], quoted=True))
        for column in self._tree.find_all(exp.Column):
            column.set("db", None)
            column.set("catalog", None)

    def _values(self, node: exp.Expr) -> None:
        if isinstance(node, exp.Cast):
            self._cast(node)
        elif isinstance(node, exp.Bracket) and self._is_vector(node.this) and len(node.expressions) == 1:
            # The first element of a vector has the number 0.
            node.set("expressions", [exp.Add(this=_paren(node.expressions[0]), expression=exp.Literal.number(1))])
        elif isinstance(node, exp.EQ | exp.NEQ):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                if _is_function_column(one) and _is_number(other):
                    one.replace(self._called("regproc_number", [one.copy()]))
        elif isinstance(node, exp.DPipe) and isinstance(node.right, exp.Array):
            # Without an array on one side, PostgreSQL's result is the other side, not NULL.
            node.set("this", exp.Coalesce(this=node.left.copy(), expressions=[exp.Array()]))
        elif isinstance(node, exp.Like | exp.ILike):
            _escape(node)
        elif isinstance(node, exp.Literal) and node.is_string and _ARRAY_TEXT.fullmatch(node.this):
            holder = _outside(node)
            compared = isinstance(holder, exp.EQ | exp.NEQ) and any(
                _is_array(one) for one in (holder.left, holder.right)
            )
            if compared or isinstance(holder, exp.Any | exp.All):
                node.replace(_array(node.this))

    def _is_vector(self, node: exp.Expr) -> bool:
        """Whether its subscripts begin with 0, as a cast to an array keeps them."""
        while isinstance(node, exp.Paren) or (isinstance(node, exp.Cast) and type_name(node.to)[1]):
            node = node.this
        return isinstance(node, exp.Column) and node.name in self._vectors

    def _cast(self, node: exp.Cast) -> None:
        name, array = type_name(node.to)
        operand = node.this
        if array and isinstance(operand, exp.Literal) and operand.is_string:
            node.set("this", _array(operand.this))
        if name in REG_TYPES and not array:
            self._object(node, "regproc" if name == "regprocedure" else name)
        elif name == "regtype":
            node.replace(self._called("regtype_list", [operand]))
        elif name in _TYPES:
            if name == "oid" and _is_function_column(operand):
                node.replace(self._called("regproc_number", [operand]))
                return
            node.set("to", exp.DataType.build(_TYPES[name] + ("[]" if array else ""), dialect="duckdb"))
        elif isinstance(node.to, exp.DataType) and name in {"char", "varchar"} and not array:
            text = _cast(operand.copy(), "VARCHAR")
            limits = [one.this for one in node.to.expressions]
            node.replace(exp.Anonymous(this="left", expressions=[text, *limits]) if limits else text)

    def _object(self, node: exp.Cast, name: str) -> None:
        """A cast to a type of object identifiers: its number, or the name of the object where that is read as text."""
        if name == "regproc":
            node.replace(self._called("regproc_text", [node.this]))
            return
        node.replace(self._called(f"{name}_text" if _read_as_text(node) else name, [node.this]))

    def _called(self, name: str, arguments: list[exp.Expr]) -> exp.Anonymous:
        self._done.called.add(name)
        return exp.Anonymous(this=PREFIX + name, expressions=arguments)

    def _row_functions(self) -> None:
        """Functions in FROM: as subqueries, whose arguments may refer to relations before them."""
        for table in list(self._tree.find_all(exp.Table)):
            if not isinstance(table.this, exp.Identifier):
                self._row_function(table, table.this)
        for unnest in list(self._tree.find_all(exp.Unnest)):
            if isinstance(unnest.parent, exp.From | exp.Join | exp.Lateral):
                _replace_unnest(unnest)

    def _row_function(self, table: exp.Table, function: exp.Expr) -> None:
        name = function_name(function) if isinstance(function, exp.Func) else ""
        if isinstance(function, exp.ExplodingGenerateSeries | exp.GenerateSeries):
            series = exp.Anonymous(this="generate_series", expressions=[one for one in function.args.values() if one])
            value: exp.Expr = exp.Anonymous(this="unnest", expressions=[series])
            name = "generate_series"
        elif name in _RELATIONS_OF:
            self._done.named.add(("pg_catalog", _RELATIONS_OF[name]))
            table.set("this", exp.to_identifier(_RELATIONS_OF[name], quoted=True))
            table.set("db", exp.to_identifier(SCHEMAS["pg_catalog"]))
            return
        elif name in self._functions and self._functions[name].table:
            self._check(name, len(_arguments(function)))
            table.set("this", self._called(name, _arguments(function)))
            table.set("db", None)
            return
        else:
            value = function
        alias = table.args.get("alias")
        columns = list(alias.columns) if alias else []
        label = alias.name if alias and alias.this else name
        column = columns[0].name if columns else label
        select = exp.Select(expressions=[exp.alias_(value.copy(), column, quoted=True)])
        table.replace(_lateral(select, label))

    def _call(self, node: exp.Expr) -> None:
        """A function of the catalog, or one that DuckDB and sqlglot know; any other does not exist."""
        if isinstance(node, exp.Column):
            name = node.name.lower()
            bare = not node.table and isinstance(node.this, exp.Identifier) and not node.this.args.get("quoted")
            if name in {"user", "current_role"} and bare:
                node.replace(self._called(name, []))
            return
        if not isinstance(node, exp.Func) or isinstance(node, exp.Connector):
            return
        name = function_name(node)
        if name in _SUBSCRIPTS and _SHIFTED not in node.meta and self._is_vector(_arguments(node)[0]):
            inner = node.copy()
            inner.meta[_SHIFTED] = True
            node.replace(exp.Paren(this=exp.Sub(this=inner, expression=exp.Literal.number(1))))
            self._call(inner)
        elif isinstance(node, exp.Format):
            node.replace(self._formatted(node))
        elif isinstance(node, exp.Anonymous) and name in _CASTS:
            node.replace(_cast(_arguments(node)[0], _CASTS[name]))
        elif isinstance(node, exp.Substring) and _is_text(node.args.get("start")) and node.args.get("length") is None:
            node.replace(_matched(node.this, node.args["start"]))
        elif name in self._functions and not name.startswith(PREFIX):
            if self._functions[name].table:
                name += _LISTED if name + _LISTED in self._functions else ""
            arguments = _arguments(node)
            self._check(name, len(arguments))
            node.replace(self._called(name, arguments))
        elif isinstance(node, exp.Anonymous) and name in _RENAMED:
            node.set("this", _RENAMED[name])
        elif isinstance(node, exp.Anonymous) and name not in _OF_DUCKDB and not _is_own(name):
            count = len(_arguments(node))
            raise CatalogError(
                "42883", f"the function {name} with {count} arguments does not exist in the catalog of this copy"
            )

    def _formatted(self, node: exp.Format) -> exp.Expr:
        """`format` with `%s`, `%I` and `%L`, as a concatenation."""
        text, *values = _arguments(node)
        if not isinstance(text, exp.Literal) or len(_PLACE.findall(text.this)) != len(values):
            raise CatalogError("0A000", "format needs a constant text here, with as many places as values")
        parts: list[exp.Expr] = []
        left = iter(values)
        for piece in re.split(r"(%.)", text.this):
            if piece in {"%I", "%L"}:
                parts.append(
                    self._called(
                        "quote_ident" if piece == "%I" else "quote_literal", [_cast(next(left).copy(), "VARCHAR")]
                    )
                )
            elif piece == "%s":
                parts.append(_cast(next(left).copy(), "VARCHAR"))
            else:
                parts.append(exp.Literal.string("%" if piece == "%%" else piece))
        return exp.Anonymous(this="concat", expressions=parts)

    def _check(self, name: str, count: int) -> None:
        if not self._functions[name].takes(count):
            raise CatalogError("42883", f"the function {name} does not take {count} arguments")


def _is_text(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Literal) and node.is_string


def _matched(text: exp.Expr, pattern: exp.Expr) -> exp.Expr:
    """`substring(text FROM pattern)`: the match of the first group, or of the whole pattern if it has none; NULL without a match."""
    group = 1 if re.search(r"(?<!\\)\((?!\?)", pattern.this) else 0
    match = exp.Anonymous(this="regexp_extract", expressions=[text.copy(), pattern.copy(), exp.Literal.number(group)])
    found = exp.Anonymous(this="regexp_matches", expressions=[text.copy(), pattern.copy()])
    return exp.Case(ifs=[exp.If(this=found, true=match)])


def _is_own(name: str) -> bool:
    return name.startswith(PREFIX) or name in {"unnest", "generate_series", "len", "concat", "left"}


def _outside(node: exp.Expr) -> exp.Expr | None:
    """What contains the node, parentheses aside."""
    holder = node.parent
    while isinstance(holder, exp.Paren):
        holder = holder.parent
    return holder


def _constant(value: Any) -> exp.Expr:
    """A parameter's value as SQL."""
    if isinstance(value, bytes):
        raise CatalogError("0A000", "a catalog query takes no parameters of type bytea")
    if isinstance(value, list | tuple):
        return exp.Array(expressions=[_constant(one) for one in value])
    return (
        exp.convert(value) if value is None or isinstance(value, bool | int | float | str) else exp.convert(str(value))
    )


def _array(text: str) -> exp.Expr:
    """The elements of an array's text, without support for nested arrays and escaped quotes."""
    inner = text.strip()[1:-1]
    items = [one.strip() for one in inner.split(",")] if inner.strip() else []
    numbers = all(re.fullmatch(r"-?\d+", one) for one in items)
    make = exp.Literal.number if numbers else exp.Literal.string
    return exp.Array(expressions=[exp.Null() if one == "NULL" else make(one.strip('"')) for one in items])


def _escape(node: exp.Like | exp.ILike) -> None:
    """PostgreSQL's patterns have the escape character `\\` unless another is given."""
    pattern = node.expression
    plain = isinstance(pattern, exp.Literal) and "\\" not in pattern.this
    if not plain and not isinstance(pattern, exp.Any | exp.All) and not isinstance(node.parent, exp.Escape):
        node.replace(exp.Paren(this=exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))))


def _cast(value: exp.Expr, kind: str) -> exp.Cast:
    return exp.Cast(this=value, to=exp.DataType.build(kind, dialect="duckdb"))


def _paren(value: exp.Expr) -> exp.Expr:
    return exp.Paren(this=value.copy())


@cache
def _columns_of(*types: str) -> frozenset[str]:
    return frozenset(column.name for one in relations().values() for column in one.columns if column.type in types)


def _vectors(tree: exp.Expr) -> frozenset[str]:
    """Names of columns of type int2vector or oidvector, in the catalog and under the names that the statement gives them."""
    names = _columns_of("int2vector", "oidvector")
    while True:
        renamed = {
            one.alias for one in tree.find_all(exp.Alias) if isinstance(one.this, exp.Column) and one.this.name in names
        }
        if renamed <= names:
            return names
        names |= renamed


def _is_array(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and node.name.lower() in _array_columns()


@cache
def _array_columns() -> frozenset[str]:
    kinds = {column.type for one in relations().values() for column in one.columns}
    return _columns_of("int2vector", "oidvector", *(kind for kind in kinds if kind.startswith("_")))


def _is_number(node: exp.Expr) -> bool:
    """Whether it is an OID, and no name of a function."""
    column = isinstance(node, exp.Column) and not _is_function_column(node)
    return (
        column
        or (isinstance(node, exp.Cast) and type_name(node.to)[0] == "oid")
        or (isinstance(node, exp.Literal) and not node.is_string)
    )


def _is_function_column(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and node.name.lower() in _columns_of("regproc")


def _read_as_text(node: exp.Expr) -> bool:
    """Whether the value of a cast to regclass and the like is shown, or becomes text."""
    parent = node.parent
    while isinstance(parent, exp.Paren | exp.Case | exp.If | exp.Coalesce):
        parent = parent.parent
    if isinstance(parent, exp.Cast):
        return type_name(parent.to)[0] in _TEXT_TYPES
    if isinstance(parent, exp.Alias):
        select = parent.parent
        return isinstance(select, exp.Select) and not isinstance(select.parent, exp.In)
    if isinstance(parent, exp.Func) and not isinstance(parent, exp.Connector | exp.Anonymous):
        return isinstance(parent, exp.Format | exp.Concat | exp.Lower | exp.Upper | exp.ArrayAgg | exp.GroupConcat)
    return isinstance(parent, exp.DPipe | exp.RegexpLike | exp.Like)


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    """A function's arguments in order."""
    found: list[exp.Expr] = []
    for key in type(node).arg_types:
        value = node.args.get(key)
        if key == "this" and isinstance(node, exp.Anonymous):
            continue
        found.extend(value if isinstance(value, list) else [value] if isinstance(value, exp.Expr) else [])
    return found


def _lateral(select: exp.Select, label: str) -> exp.Lateral:
    alias = exp.TableAlias(this=exp.to_identifier(label, quoted=True))
    return exp.Lateral(this=exp.Subquery(this=select), alias=alias)


def _replace_unnest(unnest: exp.Unnest) -> None:
    """`unnest(a, b) WITH ORDINALITY`: in DuckDB several lists are unnested side by side in a select list."""
    alias = unnest.args.get("alias")
    columns = [one.name for one in alias.columns] if alias else []
    label = alias.name if alias and alias.this else "unnest"
    lists = list(unnest.expressions)
    offset = unnest.args.get("offset")
    if not columns:
        columns = [label] if len(lists) == 1 else ["unnest"] * len(lists)
    parts = [
        exp.alias_(exp.Anonymous(this="unnest", expressions=[one.copy()]), name, quoted=True)
        for one, name in zip(lists, columns, strict=False)
    ]
    if offset:
        lengths = [exp.Anonymous(this="len", expressions=[one.copy()]) for one in lists]
        longest = lengths[0] if len(lengths) == 1 else exp.Greatest(this=lengths[0], expressions=lengths[1:])
        series = exp.Anonymous(this="generate_series", expressions=[exp.Literal.number(1), longest])
        name = offset.name if isinstance(offset, exp.Identifier) else "ordinality"
        parts.append(exp.alias_(exp.Anonymous(this="unnest", expressions=[series]), name, quoted=True))
    lateral = _lateral(exp.Select(expressions=parts), label)
    holder = unnest.parent if isinstance(unnest.parent, exp.Lateral) else unnest
    if isinstance(unnest.parent, exp.Lateral):
        outer = unnest.parent.args.get("alias")
        if outer is not None and not alias:
            lateral.set("alias", outer.copy())
    holder.replace(lateral)
