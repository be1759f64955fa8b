"""A driver of ODBC in its process: what the database says of its tables, and their rows.

Drivers describe types loosely: a double as a float of 32 bits, infinite times as others. So values are asked for as the texts that the
database gives, and read as what the driver calls their type only where a text is exactly a value of it; floats as those of 64 bits, and
bytes as bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa

from engine.model.fault import EngineFault, FaultKind
from engine.sources.arrow_rows.driver import SYSTEM_SCHEMAS, Found, Name, options_given, select_all
from engine.sources.arrow_rows.forms import Form, as_text, form_of
from engine.sources.arrow_rows.options import LONGEST_VALUE, PASSWORD, QUOTE, connection_string

_K = FaultKind
_LOGIN_S = 30
"""Seconds to open a session. Not measured."""
_BATCH_BYTES = 64 * 1024 * 1024
"""Bytes of a batch, as long as values may be. Not measured."""
_TABLES = "SELECT table_schema, table_name FROM information_schema.tables"
_KEYS = (
    "SELECT k.table_schema, k.table_name, k.column_name FROM information_schema.key_column_usage k"
    " JOIN information_schema.table_constraints c ON c.constraint_schema = k.constraint_schema"
    " AND c.constraint_name = k.constraint_name AND c.table_schema = k.table_schema AND c.table_name = k.table_name"
    " WHERE c.constraint_type = 'PRIMARY KEY'{where} ORDER BY k.ordinal_position"
)
_IS_POSTGRES = "SELECT oid FROM pg_catalog.pg_class WHERE 1 = 0"
"""Only PostgreSQL has this table. Its driver of ODBC drops the era of a date, and gives infinite times as others."""


def _printed(form: Form, x: str) -> str:
    """An expression for the text of a value as PostgreSQL prints it."""
    return f"CAST({x} AS varchar(64))" if form.text in {"DATE", "TIMESTAMP", "TIME"} else x


def open_driver(settings: Mapping[str, Any], secrets: Mapping[str, str]) -> OdbcDriver:
    """An `Opener`. Raises EngineFault(SOURCE_UNREACHABLE) if ODBC is not installed."""
    try:
        module = import_module("arrow_odbc")
    except ImportError as error:
        what = "ODBC is not installed: install it in the engine's environment: pip install arrow-odbc"
        raise EngineFault(_K.SOURCE_UNREACHABLE, "", what) from error
    except OSError as error:
        what = "the library of unixODBC is not installed on the engine's machine: apt install unixodbc"
        raise EngineFault(_K.SOURCE_UNREACHABLE, "", what) from error
    options = options_given(settings, secrets)
    if PASSWORD in secrets:
        options["PWD"] = secrets[PASSWORD]
    text = f"Driver={{{settings.get('driver', '')}}};{connection_string(options)}"
    longest = int(settings.get("longest_value", LONGEST_VALUE))
    return OdbcDriver(module, text, longest, str(settings.get("quote", QUOTE)))


class OdbcDriver:
    """`Driver` over one connection, each statement of which is a transaction."""

    def __init__(self, module: Any, text: str, longest: int, mark: str) -> None:
        self._module = module
        self._text = text
        self._longest = longest
        self._mark = mark
        self._connection = self._connect()

    def _connect(self) -> Any:
        return self._module.connect(self._text, login_timeout_sec=_LOGIN_S, autocommit=True)

    def check(self) -> None:
        self._connect()

    def reopen(self) -> None:
        self._connection = self._connect()

    def tables(self, names: Collection[Name] | None) -> Mapping[Name, Found]:
        """Names of all are those of the information schema; a database without one has the tables that are asked for."""
        keys = self._keys(names)
        if names is None:
            listed = self._texts(_TABLES)
            names = [] if listed is None else [(s, t) for s, t in listed if s.lower() not in SYSTEM_SCHEMAS]
        found = {}
        for name in sorted(names):
            columns = self._columns(name)
            if columns is not None:
                found[name] = Found(columns, keys.get(name, ()))
        return found

    def _columns(self, name: Name) -> tuple[tuple[str, str, Form], ...] | None:
        """The table's columns; None if it cannot be read at all."""
        schemas: list[Any] = []
        try:
            self._read(f"{select_all(name, (), self._mark)} WHERE 1 = 0", schemas)
        except self._module.Error:
            self.check()
            return None
        return tuple((field.name, str(field.type), as_text(form_of(field))) for field in schemas[0])

    def _keys(self, names: Collection[Name] | None) -> dict[Name, tuple[str, ...]]:
        where = ""
        if names is not None:
            listed = ", ".join("'" + name.replace("'", "''") + "'" for _, name in sorted(names))
            where = f" AND k.table_name IN ({listed})" if listed else ""
        found: dict[Name, tuple[str, ...]] = {}
        for schema, table, column in self._texts(_KEYS.format(where=where)) or ():
            found[schema, table] = (*found.get((schema, table), ()), column)
        return found

    def _texts(self, statement: str) -> list[tuple[str, ...]] | None:
        """Rows of names; None if the database does not know the statement."""
        try:
            rows = [tuple(row.values()) for batch in self._read(statement, []) for row in batch.to_pylist()]
        except self._module.Error:
            self.check()
            self.reopen()
            return None
        return [tuple(str(value) for value in row) for row in rows]

    def _read(self, statement: str, schemas: list[Any]) -> Any:
        """The batches of a statement; `schemas` gets what the driver says of its columns."""

        def changed(schema: Any) -> Any:
            schemas.append(schema)
            forms = [as_text(form_of(field)) for field in schema]
            kinds = [form.sent or field.type for form, field in zip(forms, schema, strict=True)]
            return pa.schema([pa.field(f.name, kind, f.nullable) for f, kind in zip(schema, kinds, strict=True)])

        return self._connection.read_arrow_batches(
            statement,
            map_schema=changed,
            max_text_size=self._longest,
            max_binary_size=self._longest,
            max_bytes_per_batch=_BATCH_BYTES,
            fetch_concurrently=False,
        )

    def rows(self, name: Name, columns: Sequence[str]) -> tuple[list[Form], Iterator[Any]]:
        if self._texts(_IS_POSTGRES) is None:
            schemas: list[Any] = []
            reader = self._read(select_all(name, columns, self._mark), schemas)
            return [as_text(form_of(field)) for field in schemas[0]], iter(reader)
        there = {column: form for column, _, form in self._columns(name) or ()}
        if not set(columns) <= there.keys():
            raise EngineFault(_K.TABLE_STRUCTURE_CHANGED, "", "a column is gone")
        reader = self._read(select_all(name, columns, self._mark, lambda c, x: _printed(there[c], x)), [])
        return [there[column] for column in columns], iter(reader)
