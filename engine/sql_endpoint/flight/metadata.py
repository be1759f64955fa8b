"""Answers to Flight SQL's metadata commands: their schemas, and their rows from what the target's catalog shows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from engine.sql_endpoint.flight.commands import (
    GetCatalogs,
    GetDbSchemas,
    GetForeignKeys,
    GetPrimaryKeys,
    GetSqlInfo,
    GetTables,
    GetTableTypes,
    Metadata,
)

CATALOGS_SQL = "SELECT CAST(current_database() AS varchar) AS table_catalog"
TABLES_SQL = (
    "SELECT CAST(table_catalog AS varchar) AS table_catalog, CAST(table_schema AS varchar) AS table_schema,"
    " CAST(table_name AS varchar) AS table_name FROM information_schema.tables"
    " WHERE table_schema NOT IN ('information_schema', 'pg_catalog') ORDER BY 1, 2, 3"
)
KEYS_SQL = (
    "SELECT CAST(n.nspname AS varchar) AS table_schema, CAST(c.relname AS varchar) AS table_name,"
    " CAST(a.attname AS varchar) AS column_name, CAST(k.conname AS varchar) AS key_name, CAST(u.place AS integer) AS key_sequence"
    " FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class c ON c.oid = k.conrelid"
    " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " CROSS JOIN LATERAL unnest(k.conkey) WITH ORDINALITY AS u(attnum, place)"
    " JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.attnum"
    " WHERE k.contype = 'p' ORDER BY 1, 2, 4, 5"
)
"""In the catalog as clients of PostgreSQL see it: DuckDB's own has no keys."""
TABLE_TYPE = "TABLE"
"""The type of all relations: to readers, copies and views over them are tables."""


def _required(name: str, kind: Any) -> Any:
    return pa.field(name, kind, nullable=False)


_INFO_VALUES = (
    pa.field("string_value", pa.string()),
    pa.field("bool_value", pa.bool_()),
    pa.field("bigint_value", pa.int64()),
    pa.field("int32_bitmask", pa.int32()),
    pa.field("string_list", pa.list_(pa.string())),
    pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
)
_SQL_INFO = pa.schema([_required("info_name", pa.uint32()), _required("value", pa.dense_union(_INFO_VALUES))])
_CATALOGS = pa.schema([_required("catalog_name", pa.string())])
_SCHEMAS = pa.schema([pa.field("catalog_name", pa.string()), _required("db_schema_name", pa.string())])
_TABLE_TYPES = pa.schema([_required("table_type", pa.string())])
_TABLES = pa.schema(
    [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string()),
        _required("table_name", pa.string()),
        _required("table_type", pa.string()),
    ]
)
_TABLE_SCHEMA = _required("table_schema", pa.binary())
_PRIMARY_KEYS = pa.schema(
    [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string()),
        _required("table_name", pa.string()),
        _required("column_name", pa.string()),
        pa.field("key_name", pa.string()),
        _required("key_sequence", pa.int32()),
    ]
)
_FOREIGN_KEYS = pa.schema(
    [
        pa.field("pk_catalog_name", pa.string()),
        pa.field("pk_db_schema_name", pa.string()),
        _required("pk_table_name", pa.string()),
        _required("pk_column_name", pa.string()),
        pa.field("fk_catalog_name", pa.string()),
        pa.field("fk_db_schema_name", pa.string()),
        _required("fk_table_name", pa.string()),
        _required("fk_column_name", pa.string()),
        _required("key_sequence", pa.int32()),
        pa.field("fk_key_name", pa.string()),
        pa.field("pk_key_name", pa.string()),
        _required("update_rule", pa.uint8()),
        _required("delete_rule", pa.uint8()),
    ]
)

_INFOS: dict[int, str | bool | int] = {
    0: "Penstock",  # FLIGHT_SQL_SERVER_NAME
    2: pa.__version__,  # FLIGHT_SQL_SERVER_ARROW_VERSION
    3: True,  # FLIGHT_SQL_SERVER_READ_ONLY
    4: True,  # FLIGHT_SQL_SERVER_SQL
    5: False,  # FLIGHT_SQL_SERVER_SUBSTRAIT
    9: True,  # FLIGHT_SQL_SERVER_CANCEL
    10: False,  # FLIGHT_SQL_SERVER_BULK_INGESTION
    500: False,  # SQL_DDL_CATALOG
    501: False,  # SQL_DDL_SCHEMA
    502: False,  # SQL_DDL_TABLE
    504: '"',  # SQL_IDENTIFIER_QUOTE_CHAR
}
"""Values of SqlInfo by code."""
_INTEGERS: dict[int, int] = {8: 0, 100: 0, 101: 0}
"""Those of type int32_bitmask: transactions (none), and no time limit of its own for statements and transactions."""


def schema_of(command: Metadata) -> Any:
    """The schema of the answer."""
    match command:
        case GetSqlInfo():
            return _SQL_INFO
        case GetCatalogs():
            return _CATALOGS
        case GetDbSchemas():
            return _SCHEMAS
        case GetTables():
            return _TABLES.append(_TABLE_SCHEMA) if command.include_schema else _TABLES
        case GetTableTypes():
            return _TABLE_TYPES
        case GetPrimaryKeys():
            return _PRIMARY_KEYS
        case GetForeignKeys():
            return _FOREIGN_KEYS


def rows_of(
    command: Metadata,
    select: Callable[[str], Any],
    select_as_postgres: Callable[[str], Any],
    described: Callable[[str], Any],
) -> Any:
    """The answer, a pyarrow.Table.

    `select`: the rows of a statement on the target, as pyarrow.Table. `select_as_postgres`: likewise, with PostgreSQL's catalog.
    `described`: the schema of a statement's rows.
    """
    schema = schema_of(command)
    match command:
        case GetSqlInfo():
            return _sql_info(command.infos)
        case GetCatalogs():
            return pa.Table.from_arrays([select(CATALOGS_SQL).column(0)], schema=schema)
        case GetDbSchemas():
            found = _matching(select(TABLES_SQL), command.catalog, command.schema_pattern)
            pairs = found.select(["table_catalog", "table_schema"]).group_by(found.column_names[:2], use_threads=False)
            return pa.Table.from_arrays(pairs.aggregate([]).columns, schema=schema)
        case GetTables():
            return _tables(command, select, described, schema)
        case GetTableTypes():
            return pa.Table.from_pydict({"table_type": [TABLE_TYPE]}, schema=schema)
        case GetPrimaryKeys():
            return _primary_keys(command, select, select_as_postgres)
        case GetForeignKeys():
            return schema.empty_table()


def _primary_keys(command: GetPrimaryKeys, select: Callable[[str], Any], keys: Callable[[str], Any]) -> Any:
    """The columns by which a table is replicated, if readers see the table."""
    wanted = {"table_catalog": command.catalog, "table_schema": command.schema, "table_name": command.table}
    shown = select(TABLES_SQL).to_pylist()
    catalogs = {
        (row["table_schema"], row["table_name"]): row["table_catalog"]
        for row in shown
        if all(value is None or row[name] == value for name, value in wanted.items())
    }
    rows = []
    for key in keys(KEYS_SQL).to_pylist() if catalogs else ():
        table = key["table_schema"], key["table_name"]
        if table in catalogs:
            rows.append((catalogs[table], *key.values()))
    columns = zip(*rows, strict=True) if rows else [()] * len(_PRIMARY_KEYS)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _PRIMARY_KEYS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_PRIMARY_KEYS)


def _tables(command: GetTables, select: Callable[[str], Any], described: Callable[[str], Any], schema: Any) -> Any:
    if command.types and TABLE_TYPE not in command.types:
        return schema.empty_table()
    found = _matching(select(TABLES_SQL), command.catalog, command.schema_pattern, command.table_pattern)
    columns = [*found.columns, pa.array([TABLE_TYPE] * found.num_rows, pa.string())]
    if command.include_schema:
        rows = found.to_pylist()
        statements = [f"SELECT * FROM {_quoted(row['table_schema'])}.{_quoted(row['table_name'])}" for row in rows]
        schemas = [
            _with_places(described(sql), row).serialize().to_pybytes()
            for sql, row in zip(statements, rows, strict=True)
        ]
        columns.append(pa.array(schemas, pa.binary()))
    return pa.Table.from_arrays(columns, schema=schema)


def _with_places(schema: Any, row: Mapping[str, str]) -> Any:
    """The schema with the metadata that Flight SQL defines for columns."""
    place = {
        "ARROW:FLIGHT:SQL:CATALOG_NAME": row["table_catalog"],
        "ARROW:FLIGHT:SQL:SCHEMA_NAME": row["table_schema"],
        "ARROW:FLIGHT:SQL:TABLE_NAME": row["table_name"],
        "ARROW:FLIGHT:SQL:IS_READ_ONLY": "1",
    }
    return pa.schema([field.with_metadata(dict(field.metadata or {}) | place) for field in schema])


def _matching(tables: Any, catalog: str | None, schema_pattern: str | None, table_pattern: str | None = None) -> Any:
    """The rows that a client asked for. An empty catalog means those without one, of which there are none."""
    if catalog is not None:
        tables = tables.filter(pc.equal(tables.column("table_catalog"), catalog))
    for name, pattern in (("table_schema", schema_pattern), ("table_name", table_pattern)):
        if pattern is not None:
            tables = tables.filter(pc.match_like(tables.column(name), pattern))
    return tables


def _sql_info(wanted: Sequence[int]) -> Any:
    infos = {code: value for code, value in {**_INFOS, **_INTEGERS}.items() if not wanted or code in wanted}
    children: list[list[Any]] = [[] for _ in _INFO_VALUES]
    types, offsets = [], []
    for code, value in infos.items():
        kind = 3 if code in _INTEGERS else 0 if isinstance(value, str) else 1
        types.append(kind)
        offsets.append(len(children[kind]))
        children[kind].append(value)
    arrays = [pa.array(values, field.type) for values, field in zip(children, _INFO_VALUES, strict=True)]
    names = [field.name for field in _INFO_VALUES]
    union = pa.UnionArray.from_dense(pa.array(types, pa.int8()), pa.array(offsets, pa.int32()), arrays, names)
    return pa.Table.from_arrays([pa.array(list(infos), pa.uint32()), union], schema=_SQL_INFO)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
