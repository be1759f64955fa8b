"""Translates a reader's statement from the SQL of the target to that of the source. Pure.

Only syntax is translated that is listed here: it means the same in both. Anything else is refused, also what could reach other tables,
files, the network or settings, or change something. What runs on the source is printed from the syntax tree, never the given text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from engine.kinds import SqlDialect
from engine.model.identity import TableName
from engine.model.subscription import TableSpec
from engine.model.target import QueryRefused

UNTRANSLATABLE = "query_not_translatable"
"""Refusal code: the statement contains something that is not known to mean the same on the source."""
FOREIGN_TABLE = "query_not_of_source"
"""Refusal code: a table of the statement does not have its rows from the subscription's source alone."""
_MOST_NODES = 20_000
"""Parts of a syntax tree: people write some hundred, and each costs some microseconds several times. Not measured."""
_MOST_CHARACTERS = 100_000
"""Length of a statement: the same limit as in query processes."""

_SET_OPERATION = frozenset({"with_", "this", "expression", "distinct", "order", "limit", "offset"})
_SYNTAX: dict[type[exp.Expr], frozenset[str]] = {
    exp.Select: _SET_OPERATION.difference({"this", "expression"}).union(
        {"expressions", "from_", "joins", "where", "group", "having", "operation_modifiers"}
    ),
    exp.Subquery: frozenset({"this", "alias"}),
    exp.Union: _SET_OPERATION,
    exp.Intersect: _SET_OPERATION,
    exp.Except: _SET_OPERATION,
    exp.With: frozenset({"expressions"}),
    exp.CTE: frozenset({"this", "alias"}),
    exp.From: frozenset({"this"}),
    exp.Join: frozenset({"this", "on", "side", "kind", "using"}),
    exp.Where: frozenset({"this"}),
    exp.Group: frozenset({"expressions"}),
    exp.Having: frozenset({"this"}),
    exp.Order: frozenset({"this", "expressions"}),
    exp.Ordered: frozenset({"this", "desc", "nulls_first"}),
    exp.Limit: frozenset({"expression"}),
    exp.Offset: frozenset({"expression"}),
    exp.Distinct: frozenset({"expressions"}),
    exp.Table: frozenset({"this", "alias", "db"}),
    exp.TableAlias: frozenset({"this", "columns"}),
    exp.Identifier: frozenset({"this", "quoted"}),
    exp.Star: frozenset(),
    exp.Column: frozenset({"this", "table", "db"}),
    exp.Alias: frozenset({"this", "alias"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.DataType: frozenset({"this", "expressions", "nested"}),
    exp.DataTypeParam: frozenset({"this"}),
    exp.Window: frozenset({"this", "partition_by", "order", "spec", "over"}),
    exp.WindowSpec: frozenset({"kind", "start", "start_side", "end", "end_side"}),
    exp.Filter: frozenset({"this", "expression"}),
    exp.Values: frozenset({"expressions", "alias"}),
    exp.In: frozenset({"this", "expressions", "query"}),
    exp.Count: frozenset({"this", "expressions", "big_int"}),
    exp.Min: frozenset({"this"}),
    exp.Max: frozenset({"this"}),
    exp.Length: frozenset({"this"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.Is: frozenset({"this", "expression", "negate"}),
    exp.Like: frozenset({"this", "expression", "negate"}),
    exp.Div: frozenset({"this", "expression", "typed", "safe"}),
    exp.Interval: frozenset({"this", "unit"}),
    exp.Coalesce: frozenset({"this", "expressions"}),
}
"""Permitted kinds of nodes with their permitted parts."""
_ANY_PARTS: frozenset[type[exp.Expr]] = frozenset(
    {
        *(
            exp.Parameter,
            exp.Literal,
            exp.Boolean,
            exp.Null,
            exp.Paren,
            exp.Tuple,
            exp.Var,
            exp.And,
            exp.Or,
            exp.Not,
            exp.EQ,
            exp.NEQ,
        ),
        *(exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Exists, exp.Escape, exp.Add, exp.Sub),
        *(exp.Mul, exp.Mod, exp.Neg, exp.DPipe, exp.Case, exp.If, exp.Nullif, exp.Sum, exp.Avg, exp.Abs, exp.Greatest),
        *(exp.Least, exp.RowNumber, exp.Rank, exp.DenseRank, exp.Lag, exp.Lead, exp.Extract),
    }
)
_PARTS_OF_TIME = frozenset({"YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "DOW", "DOY"})
"""Those that are whole numbers in every dialect."""
_T = exp.DataType.Type
_TYPES = frozenset(
    {*(_T.SMALLINT, _T.INT, _T.BIGINT, _T.DOUBLE, _T.BOOLEAN, _T.DATE, _T.TIMESTAMP, _T.TIMESTAMPTZ, _T.UUID)}
)
_SAME_DIALECT: dict[str, frozenset[type[exp.Expr]]] = {
    "postgres": frozenset(
        {
            *(exp.Upper, exp.Lower, exp.ILike, exp.Round, exp.Floor, exp.Ceil, exp.Sqrt, exp.Exp, exp.Ln, exp.Pow),
            *(exp.Substring, exp.Trim, exp.Concat, exp.ConcatWs, exp.Left, exp.Right, exp.StrPosition, exp.Initcap),
            *(exp.TimestampTrunc, exp.TimeToStr, exp.ArrayAgg, exp.GroupConcat, exp.Stddev, exp.StddevSamp),
            *(exp.StddevPop, exp.Variance, exp.VariancePop, exp.LogicalAnd, exp.LogicalOr, exp.FirstValue),
            *(exp.LastValue, exp.Ntile, exp.CurrentTimestamp, exp.CurrentDate, exp.AtTimeZone, exp.JSONExtract),
            *(exp.JSONExtractScalar, exp.JSONPath, exp.JSONPathRoot, exp.JSONPathKey, exp.JSONPathSubscript),
        }
    )
}
"""More kinds of nodes, permitted if source and target have the same dialect: what differs between dialects."""
_SAME_TYPES = frozenset(
    {*(_T.TEXT, _T.VARCHAR, _T.FLOAT, _T.DECIMAL, _T.INTERVAL, _T.TIME, _T.JSON, _T.JSONB), *(_T.ARRAY, _T.VARBINARY)}
)
_FUNCTIONS = {
    ("duckdb", "postgres"): frozenset({"now"}),
    ("postgres", "postgres"): frozenset({"now", "date_part", "md5", "char_length", "btrim", "rtrim", "ltrim", "lpad"}),
}
"""By dialects of target and source: functions without a kind of node of their own. Pairs that are missing are not translated."""


@dataclass(frozen=True, slots=True)
class SourceStatement:
    """What runs on the source. `relations`: the tables of the source that it reads."""

    sql: str
    relations: frozenset[TableName]
    tables: tuple[TableSpec, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one table as the target holds them: a SELECT in the source's SQL, and its columns."""

    sql: str
    columns: tuple[str, ...]


class Translation:
    """Translates statements between two dialects, over the tables of one subscription."""

    def __init__(self, target: SqlDialect, source: SqlDialect, tables: Sequence[TableSpec]) -> None:
        """Raises QueryRefused(UNTRANSLATABLE) if there is no translation between the dialects."""
        functions = _FUNCTIONS.get((target.name, source.name))
        if functions is None:
            raise QueryRefused(UNTRANSLATABLE, f"{target.name} is not translated to {source.name}", _REMEDY)
        self._functions = functions
        self._target = target
        self._source = source
        self._same = target.name == source.name
        self._own = [table for table in tables if table.shared is None]
        self._shared = {self._folded(table.shared.relation) for table in tables if table.shared is not None}

    def tables(self, sql: str) -> list[TableSpec]:
        """The tables that the statement reads. Raises QueryRefused if it cannot run on the source."""
        return list({spec.table: spec for _, spec in self._reads(self._parsed(sql))}.values())

    def translate(self, sql: str, rows_of: Callable[[TableSpec], Rows]) -> SourceStatement:
        """The statement for the source, with each table replaced by its rows.

        Raises:
            QueryRefused: UNTRANSLATABLE, FOREIGN_TABLE, query_not_a_read, query_invalid, query_too_large.
        """
        tree = self._parsed(sql)
        specs = {spec.table: spec for _, spec in self._reads(tree)}
        rows = {table: rows_of(spec) for table, spec in specs.items()}
        if not self._same:
            _spell(tree, [column for one in rows.values() for column in one.columns])
            tree = tree.transform(_of_same_meaning)
        for node, spec in self._reads(tree):
            alias = node.args.get("alias") or exp.TableAlias(this=node.this.copy())
            node.replace(exp.Subquery(this=exp.Var(this=rows[spec.table].sql), alias=alias.copy()))
        for column in tree.find_all(exp.Column):
            column.set("db", None)
        try:
            text = tree.sql(dialect=self._source.name, unsupported_level=ErrorLevel.RAISE, comments=False)
        except (SqlglotError, RecursionError, ValueError) as error:
            raise _untranslatable(str(error).splitlines()[0][:200]) from None
        return SourceStatement(text, frozenset(spec.source for spec in specs.values()), tuple(specs.values()))

    def _parsed(self, sql: str) -> exp.Expression:
        if len(sql) > _MOST_CHARACTERS:
            raise QueryRefused("query_too_large", f"the statement is longer than {_MOST_CHARACTERS} characters")
        try:
            found = [one for one in sqlglot.parse(sql, dialect=self._target.name) if one is not None]
        except (SqlglotError, RecursionError, ValueError) as error:
            raise _untranslatable(str(error).splitlines()[0][:200]) from None
        if len(found) != 1:
            raise QueryRefused("query_not_a_read", f"{len(found)} statements; exactly one read is allowed")
        if not isinstance(found[0], exp.Select | exp.SetOperation):
            raise QueryRefused("query_not_a_read", "the statement is not a SELECT; only reads are allowed")
        for node in list(found[0].find_all(exp.Placeholder)):
            if str(node.this).isdecimal():  # $1 in DuckDB's dialect
                node.replace(exp.Parameter(this=exp.Literal.number(node.this)))
        self._examine(found[0])
        return found[0]

    def _examine(self, tree: exp.Expression) -> None:
        """Raise QueryRefused at the first node that is not permitted."""
        for count, node in enumerate(tree.walk()):
            if count > _MOST_NODES:
                raise QueryRefused("query_too_large", f"the statement has more than {_MOST_NODES} parts")
            kind = type(node)
            parts = _SYNTAX.get(kind)
            if parts is not None:
                strange = [name for name, part in node.args.items() if part and name not in parts]
                if strange:
                    raise _untranslatable(f"{strange[0].rstrip('_')!r} of {_words(node)} is not translated")
            elif kind is exp.Anonymous:
                if not isinstance(node.this, str) or node.this.lower() not in self._functions:
                    raise _untranslatable(f"the function {node.name} is not translated")
            elif kind not in _ANY_PARTS and not (self._same and kind in _SAME_DIALECT[self._target.name]):
                raise _untranslatable(f"{_words(node)} is not translated")
            self._examine_values(node)

    def _examine_values(self, node: exp.Expr) -> None:
        """What depends on a value in the node, not on its kind alone."""
        wrong: str | None = None
        if isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
            wrong = "a function in FROM is not translated"
        elif isinstance(node, exp.Dot):
            wrong = "a qualified function is not translated"
        elif isinstance(node, exp.Cast):
            wrong = self._wrong_cast(node)
        elif isinstance(node, exp.Extract) and not self._same and node.name.upper() not in _PARTS_OF_TIME:
            wrong = f"EXTRACT of {node.name} is not translated"
        elif isinstance(node, exp.Join) and (node.kind not in _JOINS or node.side not in _SIDES):
            wrong = f"a join of kind {node.side or node.kind} is not translated"
        elif isinstance(node, exp.CTE) and self._is_taken(node.alias):
            wrong = f"the common table expression {node.alias} has the name of a table"
        elif isinstance(node, exp.Ordered) and not self._same and _orders_by_alias(node):
            wrong = "an alias inside an expression of ORDER BY is not translated"
        if wrong is not None:
            raise _untranslatable(wrong)

    def _wrong_cast(self, node: exp.Cast) -> str | None:
        kind = node.to.this
        types = _TYPES | (_SAME_TYPES if self._same else frozenset())
        exact = kind is _T.DECIMAL and isinstance(node.this, exp.Literal)
        inner = [one for one in node.to.find_all(exp.DataType) if one.this not in types]
        return None if exact or not inner else f"a cast to {node.to.sql(self._target.name)} is not translated"

    def _is_taken(self, name: str) -> bool:
        """Whether an unqualified name might be that of a table, here or in a catalog of the source."""
        named = {self._target.fold(spec.target.name) for spec in self._own} | {name for _, name in self._shared}
        return self._target.fold(name) in named or name.lower().startswith(("pg_", "information_schema"))

    def _reads(self, tree: exp.Expression) -> list[tuple[exp.Table, TableSpec]]:
        """Every mention of a table with the table; common table expressions are left out."""
        expressions = {self._target.fold(one.alias) for one in tree.find_all(exp.CTE)}
        return [
            (node, self._resolved(node))
            for node in tree.find_all(exp.Table)
            if node.args.get("db") or self._name_of(node.this) not in expressions
        ]

    def _resolved(self, node: exp.Table) -> TableSpec:
        schema, name = node.args.get("db"), self._name_of(node.this)
        schemas = self._target.search_path if schema is None else (self._name_of(schema),)
        by_name = {self._folded(spec.target): spec for spec in self._own}
        for place in schemas:
            if (place, name) in by_name:
                return by_name[place, name]
            if (place, name) in self._shared:
                detail = f"{node.sql(self._target.name)} shows the rows of several sources"
                raise QueryRefused(FOREIGN_TABLE, detail, "Send the query without 'source', to the target.")
        detail = f"{node.sql(self._target.name)} is not a table of this subscription, named as schema.table"
        raise QueryRefused(FOREIGN_TABLE, detail, "Name tables of the subscription only, as schema.table.")

    def _folded(self, name: TableName) -> tuple[str, str]:
        return self._target.fold(name.schema), self._target.fold(name.name)

    def _name_of(self, node: exp.Expression) -> str:
        """The name as the target resolves it, folded."""
        if self._target.ignores_case:
            return self._target.fold(node.name)
        return node.name if node.args.get("quoted") else node.name.lower()


_JOINS = frozenset({"", "INNER", "CROSS", "OUTER"})
_SIDES = frozenset({"", "LEFT", "RIGHT", "FULL"})
_REMEDY = "Simplify the statement, or send it to the target alone: without 'source' in on_timeout and on_unavailable."


def _untranslatable(detail: str) -> QueryRefused:
    return QueryRefused(UNTRANSLATABLE, f"the statement cannot run on the source: {detail}", _REMEDY)


def _words(node: exp.Expr) -> str:
    name = node.sql_name() if isinstance(node, exp.Func) else type(node).__name__
    return name.upper()


def _orders_by_alias(node: exp.Ordered) -> bool:
    """Whether an expression of ORDER BY has a name in it that is also an output column's: dialects differ in which one it is."""
    if isinstance(node.this, exp.Column | exp.Literal):
        return False
    select = node.find_ancestor(exp.Query)
    aliases = (
        {one.alias.lower() for one in select.selects if isinstance(one, exp.Alias)} if select is not None else set()
    )
    return any(not one.table and one.name.lower() in aliases for one in node.find_all(exp.Column))


def _spell(tree: exp.Expression, columns: Sequence[str]) -> None:
    """Write each name that the target does not distinguish by case in one way, quoted: a column's as on the source.

    Raises QueryRefused(UNTRANSLATABLE) if the source has columns that differ in case only.
    """
    spelled: dict[str, str] = {}
    for column in columns:
        if spelled.setdefault(column.lower(), column) != column:
            raise _untranslatable(f"columns are named {spelled[column.lower()]} and {column}")
    for identifier in _identifiers(tree):
        identifier.set("this", spelled.setdefault(identifier.name.lower(), identifier.name))
        identifier.set("quoted", True)


def _identifiers(tree: exp.Expression) -> Iterator[exp.Identifier]:
    """All but those of tables, which are resolved otherwise."""
    for identifier in tree.find_all(exp.Identifier):
        if not isinstance(identifier.parent, exp.DataType):
            yield identifier


def _of_same_meaning(node: exp.Expression) -> exp.Expression:
    """The node with the meaning that it has in DuckDB, for PostgreSQL."""
    if isinstance(node, exp.Like) and not isinstance(node.parent, exp.Escape):
        return exp.Escape(this=node, expression=exp.Literal.string(""))
    if isinstance(node, exp.Avg | exp.Extract):
        kind = _T.DOUBLE if isinstance(node, exp.Avg) else _T.BIGINT
        if not isinstance(node.parent, exp.Cast | exp.Window | exp.Filter):
            return exp.Cast(this=node, to=exp.DataType(this=kind))
    return node
