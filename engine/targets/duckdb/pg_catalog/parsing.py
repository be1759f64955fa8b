"""Statements in PostgreSQL's SQL as syntax trees of sqlglot, and whether one reads the catalog. Pure.

sqlglot does not know some forms that clients write: names of functions, operators, types and collations qualified by `pg_catalog`. As a
qualification does not change what they denote here, it is removed from the tokens before the tree is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from sqlglot import Dialect, exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from engine.targets.duckdb.pg_catalog.definitions import INFORMATION_SCHEMA, PG_CATALOG, relations
from engine.targets.duckdb.pg_catalog.description import CatalogError
from engine.targets.duckdb.pg_catalog.detection import FUNCTION_NAMES, REG_TYPES

_SYSTEM = frozenset({PG_CATALOG, INFORMATION_SCHEMA})
MAX_NESTING = 100
"""Most open brackets: sqlglot's parser and the rewriter recurse for each; queries of clients have at most some ten."""
MAX_CHARACTERS = 100_000
"""Longest statement, as for other queries (`query_channel.MAX_SQL_CHARACTERS`)."""
_STARTS = frozenset({TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.TABLE, TokenType.VALUES})
_WRITTEN = "function"
"""Key of a function's name, as its author wrote it, in the metadata of its node."""


class CatalogDialect(Postgres):
    """PostgreSQL, with the types of object identifiers as ordinary names of types, so that they may have arrays."""

    class Tokenizer(Postgres.Tokenizer):
        """Reads `oid`, `regclass` and the like as names."""

        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: kind
            for word, kind in Postgres.Tokenizer.KEYWORDS.items()
            if kind not in {TokenType.OBJECT_IDENTIFIER, TokenType.NAME}
        }


def reads_catalog(tree: exp.Expr) -> bool:
    """Whether the statement reads PostgreSQL's catalog, or calls its functions, and names no table of users."""
    if not isinstance(tree, exp.Query):
        return False
    tables = list(named_tables(tree))
    if tables:
        return all(catalog_name(one) is not None for one in tables)
    return any(calls_catalog(node) for node in tree.walk())


def named_tables(tree: exp.Expr) -> Iterator[exp.Table]:
    """Relations in the statement; no functions, and no names of common table expressions."""
    expressions = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
    for one in tree.find_all(exp.Table):
        if isinstance(one.this, exp.Identifier) and (one.args.get("db") or one.name.lower() not in expressions):
            yield one


def catalog_name(table: exp.Table) -> tuple[str, str] | None:
    """PostgreSQL's schema and name of a relation of the catalog, existing or not; None for other relations."""
    name = folded(table.this)
    if table.args.get("db"):
        schema = folded(table.args["db"])
        return (schema, name) if schema in _SYSTEM else None
    return (PG_CATALOG, name) if (PG_CATALOG, name) in relations() else None


def folded(identifier: exp.Expr) -> str:
    """A name as PostgreSQL reads it: in lower case unless quoted."""
    quoted = isinstance(identifier, exp.Identifier) and identifier.args.get("quoted")
    return identifier.name if quoted else identifier.name.lower()


def calls_catalog(node: exp.Expr) -> bool:
    """Whether a node calls a catalog function, or casts to a type of object identifiers."""
    if isinstance(node, exp.Cast):
        return type_name(node.to)[0] in REG_TYPES
    if isinstance(node, exp.Func):
        name = function_name(node)
        return name in FUNCTION_NAMES or (isinstance(node, exp.Anonymous) and name.startswith("pg_"))
    if isinstance(node, exp.Column):
        return node.name.lower() in {"user", "current_role"} and not node.table and not node.this.args.get("quoted")
    return False


def function_name(node: exp.Func) -> str:
    """The function's name in the statement, in lower case; sqlglot's name for those that are keywords (`current_user`)."""
    return str(node.meta.get(_WRITTEN) or (node.name if isinstance(node, exp.Anonymous) else node.sql_name())).lower()


def is_written(node: exp.Func) -> bool:
    """Whether the node was a call with a name in the statement, and no operator or keyword."""
    return _WRITTEN in node.meta


def type_name(kind: exp.Expr) -> tuple[str, bool]:
    """Name of a cast's type in lower case, as far as it has one of its own, and whether it is an array of that."""
    if isinstance(kind, exp.DataType) and kind.this == exp.DType.ARRAY and kind.expressions:
        return type_name(kind.expressions[0])[0], True
    named = kind.args.get("kind") if isinstance(kind, exp.DataType) else None
    if named is not None:
        name = (named.name if isinstance(named, exp.Expr) else str(named)).lower().strip('"')
        return ('"char"' if name == "char" else name), False
    return (kind.this.value if isinstance(kind, exp.DataType) else str(kind.this)).lower(), False


def parsed(sql: str) -> exp.Expr:
    """The tree of exactly one statement. Raises CatalogError."""
    if len(sql) > MAX_CHARACTERS or _depth(sql) > MAX_NESTING:
        raise CatalogError("54001", "the catalog query is too long or nests too deeply")
    dialect = Dialect.get_or_raise(CatalogDialect)
    try:
        tokens = list(_plain(dialect.tokenize(sql)))
        if tokens and tokens[0].token_type not in _STARTS:
            raise CatalogError("0A000", "a catalog query is a SELECT")
        trees = [
            tree
            for tree in dialect.parser().parse(tokens, sql)
            if tree is not None and not isinstance(tree, exp.Semicolon)
        ]
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        where = f"line {first.get('line')}, column {first.get('col')}: " if first else ""
        raise CatalogError("42601", f"syntax error: {where}{first.get('description') or error}") from error
    except (SqlglotError, RecursionError) as error:
        raise CatalogError("42601", f"syntax error: {error}") from error
    if len(trees) != 1:
        raise CatalogError("42601", f"{len(trees)} statements; a catalog query is exactly one")
    for node in trees[0].find_all(exp.Func):
        if "start" in node.meta:
            node.meta[_WRITTEN] = sql[node.meta["start"] : node.meta["end"] + 1].strip('"')
    return trees[0]


def _depth(sql: str) -> int:
    depth = deepest = 0
    for bracket in re.findall(r"[(\[)\]]", sql):
        depth += 1 if bracket in "([" else -1
        deepest = max(deepest, depth)
    return deepest


def _plain(tokens: list[Token]) -> Iterator[Token]:
    """The tokens without `OPERATOR(…)`, `COLLATE …`, and qualifications of functions and types."""
    i = 0
    while i < len(tokens):
        if tokens[i].token_type == TokenType.COLLATE:
            i += 4 if _is_schema(tokens, i + 1) else 2
        elif tokens[i].token_type == TokenType.OPERATOR and _text(tokens, i + 1) == "(":
            start = i + 4 if _is_schema(tokens, i + 2) else i + 2
            while start < len(tokens) and tokens[start].text != ")":
                yield tokens[start]
                start += 1
            i = start + 1
        elif _is_label(tokens, i):
            yield Token(TokenType.VAR, tokens[i].text, start=tokens[i].start, end=tokens[i].end)
            i += 1
        elif _is_schema(tokens, i) and (_text(tokens, i + 3) == "(" or _before_type(tokens, i)):
            i += 2
        else:
            yield tokens[i]
            i += 1


def _text(tokens: list[Token], i: int) -> str:
    return tokens[i].text if 0 <= i < len(tokens) else ""


def _is_label(tokens: list[Token], i: int) -> bool:
    """Whether a keyword is the name of a column, as after AS any keyword may be."""
    kind = tokens[i].token_type
    after = i > 0 and tokens[i - 1].token_type == TokenType.ALIAS
    return (
        after
        and kind in {TokenType.SELECT, TokenType.TABLE, TokenType.FROM}
        and _text(tokens, i + 1).lower() in {",", "from", ""}
    )


def _is_schema(tokens: list[Token], i: int) -> bool:
    return _text(tokens, i).lower() in _SYSTEM and _text(tokens, i + 1) == "."


def _before_type(tokens: list[Token], i: int) -> bool:
    """Whether a type begins here: after `::`, and after the AS of a cast."""
    return i > 0 and (tokens[i - 1].token_type == TokenType.DCOLON or tokens[i - 1].token_type == TokenType.ALIAS)
