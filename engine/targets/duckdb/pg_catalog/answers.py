"""Answers catalog queries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot.errors import SqlglotError

from engine.postgres.wire_types import TypeOid, pg_type_of
from engine.targets.duckdb.pg_catalog.description import CatalogError, Description
from engine.targets.duckdb.pg_catalog.parsing import parsed
from engine.targets.duckdb.pg_catalog.result_types import known_types
from engine.targets.duckdb.pg_catalog.rewriting import rewritten
from engine.targets.duckdb.pg_catalog.tables import CatalogTables

_UNFORESEEN = (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, LookupError)
"""What sqlglot, and code that relies on the form of its trees, may raise for a statement that it does not know."""
_NOT_FOUND = re.compile(r'(relation|type|schema|role) "(.*)" does not exist', re.DOTALL)
_NO_COLUMN = re.compile(r'column (?:named )?"([^"]+)"(?! not found in FROM clause, but)(?: not found|$)')
_STATES = {"relation": "42P01", "type": "42704", "schema": "3F000", "role": "42704"}
_BY_KIND: tuple[tuple[type[Exception], str], ...] = (
    (duckdb.OutOfMemoryException, "53200"),
    (duckdb.ConversionException, "22P02"),
    (duckdb.OutOfRangeException, "22003"),
    (duckdb.ParserException, "42601"),
    (duckdb.CatalogException, "42883"),
)


@dataclass(frozen=True, slots=True)
class CatalogAnswer:
    """Rows, and for each column PostgreSQL's type. A value of type int2vector or oidvector is a list, whose text has blanks between the
    elements; a value of type "char" is a text of at most one character."""

    rows: Any
    """pyarrow.Table; several columns may have the same name."""
    types: tuple[int, ...]
    modifiers: tuple[int, ...]


class Catalog:
    """The catalog of one description, for any number of queries. Usable by several threads, one query at a time."""

    def __init__(self, described: Description) -> None:
        self.described = described
        self._tables = CatalogTables(described)
        self._lock = Lock()

    def close(self) -> None:
        self._tables.close()

    def answer(self, sql: str, parameters: Sequence[Any] = ()) -> CatalogAnswer:
        """The rows of one SELECT that `is_catalog_query` accepts. `parameters`: values of `$1` and the following; None is NULL, a list an
        array. Raises CatalogError."""
        try:
            tree = parsed(sql)
            known = known_types(tree)
            ready = rewritten(tree, parameters, self._tables.functions)
        except _UNFORESEEN as error:
            raise CatalogError(
                "0A000", f"the catalog of this copy does not support this form of query ({error})"
            ) from error
        with self._lock:
            try:
                self._tables.need(ready.named, ready.called)
                relation = self._tables.connection.sql(ready.sql)
                described = list(zip(relation.columns, map(str, relation.types), strict=True))
                rows = relation.to_arrow_table()
            except (duckdb.Error, pa.ArrowException, MemoryError) as error:
                raise _refused(error) from error
        names = ready.names or [name for name, _ in described]
        kinds = [_type(kind) for _, kind in described]
        if known is not None and len(known) == len(kinds):
            kinds = [(special, -1) if special else kind for special, kind in zip(known, kinds, strict=True)]
        return CatalogAnswer(rows.rename_columns(names), tuple(int(a) for a, _ in kinds), tuple(b for _, b in kinds))


def _type(duckdb_type: str) -> tuple[int, int]:
    """Unsigned numbers of 32 bits are OIDs in the catalog's tables."""
    if duckdb_type in {"UINTEGER", "UINTEGER[]"}:
        return (TypeOid.OID if duckdb_type == "UINTEGER" else 1028), -1
    if duckdb_type in {"HUGEINT", "UBIGINT"}:
        return TypeOid.INT8, -1
    return pg_type_of(duckdb_type)


def _refused(error: Exception) -> CatalogError:
    text = re.split(r"\n\nLINE|\n\nCandidate", str(error))[0]
    text = re.sub(r"^\w+(?: \w+)* Error: ", "", text)
    if found := _NOT_FOUND.search(text):
        return CatalogError(_STATES[found[1]], found[0])
    if "unrecognized configuration parameter" in text:
        return CatalogError("42704", text)
    if isinstance(error, duckdb.BinderException):
        missing = _NO_COLUMN.search(text)
        return (
            CatalogError("42703", f'column "{missing[1]}" does not exist') if missing else CatalogError("42804", text)
        )
    for kind, state in _BY_KIND:
        if isinstance(error, kind):
            return CatalogError(state, text)
    return CatalogError("53200" if isinstance(error, MemoryError) else "XX000", text or "out of memory")


_last: list[Catalog] = []
_changing = Lock()


def answer(sql: str, parameters: Sequence[Any], described: Description) -> CatalogAnswer:
    """As `Catalog.answer`. The catalog of the latest description is kept for the next query."""
    with _changing:
        if not _last or _last[0].described != described:
            for old in _last:
                old.close()
            _last[:] = [Catalog(described)]
        return _last[0].answer(sql, parameters)
