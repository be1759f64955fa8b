"""PostgreSQL's catalog functions as macros of DuckDB, over the tables of `tables`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.duckdb.value_text import literal
from engine.targets.duckdb.pg_catalog.description import Description
from engine.targets.duckdb.pg_catalog.objects import OWNER
from engine.targets.duckdb.pg_catalog.settings import VERSION, search_path

PREFIX = "f_"
"""Of the macros' names, as DuckDB has functions with the same names as PostgreSQL and other results."""
_USED = re.compile(rf"\b{PREFIX}(\w+)\(")


@dataclass(frozen=True, slots=True)
class Function:
    """A function. `parameters`: names, for each signature; a parameter `name=value` may be absent. `body`: an expression of DuckDB."""

    parameters: tuple[tuple[str, ...], ...]
    body: str
    table: bool = False
    """It returns rows: `body` is a query."""

    def takes(self, count: int) -> bool:
        """Whether it can have so many arguments."""
        return any(sum("=" not in one for one in names) <= count <= len(names) for names in self.parameters)


def _scalar(signatures: str, body: str) -> Function:
    return Function(tuple(tuple(one.split()) for one in signatures.split(";")), body)


_TEXT = "CAST(NULL AS VARCHAR)"
_NUMBER = "CAST(NULL AS BIGINT)"


def _lookup(column: str, table: str, condition: str) -> str:
    return f"(SELECT {column} FROM {table} WHERE {condition})"


_KEY = "CAST(a AS VARCHAR)"
"""A text or a number, as lookup tables have both. Lookups compare an expression of the caller alone with a column alone: DuckDB
joins by hashing then, and compares all pairs otherwise."""
_DIGITS = f"regexp_full_match({_KEY}, '[0-9]+')"


def _object(find: str, what: str) -> Function:
    """The number of an object by its name or number."""
    missing = f"CAST(error('{what} \"' || {_KEY} || '\" does not exist') AS UINTEGER)"
    number = f"WHEN {_DIGITS} THEN CAST({_KEY} AS UINTEGER) WHEN {_KEY} = '-' THEN CAST(0 AS UINTEGER)"
    return _scalar("a", f"CASE WHEN a IS NULL THEN NULL {number} ELSE coalesce({find}({_KEY}), {missing}) END")


def _shown(lookups: str, what: str) -> Function:
    """The name of an object by its name or number; a number without an object is shown as it is."""
    missing = f"CAST(error('{what} \"' || {_KEY} || '\" does not exist') AS VARCHAR)"
    number = f"CASE WHEN {_KEY} IN ('0', '-') THEN '-' WHEN {_DIGITS} THEN {_KEY} ELSE {missing} END"
    return _scalar("a", f"CASE WHEN a IS NULL THEN NULL ELSE coalesce({lookups}, {number}) END")


def _of_relation(column: str, key: str = _KEY) -> str:
    """A column of a relation by its name or number."""
    exact = _lookup(column, "x.names", f"key = {key}")
    return f"coalesce({exact}, {_lookup(column, 'x.names', f'key = lower({key})')})"


def _of_schema(column: str, key: str = _KEY) -> str:
    named = _lookup(column, "pgc.pg_namespace", f"nspname = trim({key}, '\"')")
    return f"coalesce({named}, {_lookup(column, 'pgc.pg_namespace', f'CAST(oid AS VARCHAR) = {key}')})"


_FORMAT_TYPE = (
    "CASE WHEN a IS NULL THEN NULL WHEN CAST(a AS BIGINT) = 0 THEN '-' ELSE coalesce((SELECT CASE"
    " WHEN m IS NULL OR CAST(m AS BIGINT) < 0 OR kind = '-' THEN head || tail"
    " WHEN kind = 'n' THEN head || '(' || ((CAST(m AS BIGINT) - 4) >> 16) || ',' || ((CAST(m AS BIGINT) - 4) & 2047) || ')' || tail"
    " WHEN kind = 'l' THEN head || '(' || (CAST(m AS BIGINT) - 4) || ')' || tail"
    " ELSE head || '(' || CAST(m AS BIGINT) || ')' || tail END FROM x.types WHERE oid = CAST(a AS UINTEGER)), '???') END"
)
_SIZE_PRETTY = (
    "CASE WHEN a IS NULL THEN NULL WHEN abs(a) < 10240 THEN CAST(a AS BIGINT) || ' bytes'"
    " WHEN abs(a) < 10240 * 1024 THEN CAST(round(a / 1024) AS BIGINT) || ' kB'"
    " WHEN abs(a) < 10240 * 1024 ** 2 THEN CAST(round(a / 1024 ** 2) AS BIGINT) || ' MB'"
    " WHEN abs(a) < 10240 * 1024 ** 3 THEN CAST(round(a / 1024 ** 3) AS BIGINT) || ' GB'"
    " ELSE CAST(round(a / 1024 ** 4) AS BIGINT) || ' TB' END"
)
_QUOTE_IDENT = (
    "CASE WHEN a IS NULL THEN NULL WHEN regexp_full_match(a, '[a-z_][a-z0-9_]*') AND NOT EXISTS"
    " (SELECT 1 FROM duckdb_keywords() WHERE keyword_name = a AND keyword_category = 'reserved') THEN a"
    " ELSE '\"' || replace(a, '\"', '\"\"') || '\"' END"
)
_ACL_ITEM = "STRUCT(grantor UINTEGER, grantee UINTEGER, privilege_type VARCHAR, is_grantable BOOLEAN)"
_READ_PRIVILEGE = "regexp_matches(upper(p), '(^|[ ,])(SELECT|USAGE|CONNECT|EXECUTE|MEMBER)([ ,]|$)')"


def _privilege(known: str) -> str:
    """Whether it is a right to read; NULL where the object does not exist, as for OIDs in PostgreSQL."""
    return f"CASE WHEN {known} IS NOT NULL THEN {_READ_PRIVILEGE} END"


_ON_RELATION = _privilege(_of_relation("oid", "CAST(o AS VARCHAR)"))
_ON_SCHEMA = _privilege(_of_schema("oid", "CAST(o AS VARCHAR)"))
_ANY = _privilege("o")

_FUNCTIONS: dict[str, Function] = {
    "to_regclass": _scalar("a", _of_relation("oid", "a")),
    "regclass": _object("f_to_regclass", "relation"),
    "regclass_text": _shown(_of_relation("shown"), "relation"),
    "to_regtype": _scalar("a", _lookup("oid", "x.type_keys", "key = lower(a)")),
    "regtype": _object("f_to_regtype", "type"),
    "regtype_text": _shown(_lookup("shown", "x.type_keys", f"key = lower({_KEY})"), "type"),
    "to_regnamespace": _scalar("a", _lookup("oid", "pgc.pg_namespace", "nspname = trim(a, '\"')")),
    "regnamespace": _object("f_to_regnamespace", "schema"),
    "regnamespace_text": _shown(_of_schema("nspname"), "schema"),
    "to_regrole": _scalar("a", f"CASE WHEN trim(a, '\"') = f_current_user() THEN CAST({OWNER} AS UINTEGER) END"),
    "regrole": _object("f_to_regrole", "role"),
    "regrole_text": _shown(f"CASE WHEN {_KEY} IN ('{OWNER}', f_current_user()) THEN f_current_user() END", "role"),
    "regproc_text": _scalar(
        "a",
        f"CASE WHEN {_KEY} = '0' THEN '-' WHEN {_DIGITS} THEN coalesce({_lookup('name', 'x.procs', f'key = {_KEY}')}, {_KEY})"
        f" ELSE regexp_replace({_KEY}, '^pg_catalog\\.', '') END",
    ),
    "regproc_number": _scalar(
        "a",
        f"CASE WHEN {_KEY} IN ('-', '0') THEN CAST(0 AS UINTEGER) ELSE {_lookup('oid', 'x.procs', f'key = {_KEY}')} END",
    ),
    "pg_get_function_result": _scalar("a", _lookup("result", "x.procs", f"key = {_KEY}")),
    "pg_get_function_arguments": _scalar("a", _lookup("arguments", "x.procs", f"key = {_KEY}")),
    "pg_get_function_identity_arguments": _scalar("a", _lookup("arguments", "x.procs", f"key = {_KEY}")),
    "format_type": _scalar("a m", _FORMAT_TYPE),
    "pg_get_userbyid": _scalar(
        "a", f"CASE WHEN a = {OWNER} THEN f_current_user() WHEN a IS NOT NULL THEN 'unknown (OID=' || a || ')' END"
    ),
    "pg_table_is_visible": _scalar("a", _lookup("visible", "x.relations", "oid = a")),
    "pg_type_is_visible": _scalar("a", _lookup("visible", "x.types", "oid = a")),
    "obj_description": _scalar(
        "a c=''",
        _lookup(
            "text",
            "x.comments",
            "oid = CAST(a AS UINTEGER) AND number = 0 AND (c = '' OR kind = replace(c, 'pg_catalog.', ''))",
        ),
    ),
    "shobj_description": _scalar("a c", _TEXT),
    "col_description": _scalar(
        "a n", _lookup("text", "x.comments", "oid = CAST(a AS UINTEGER) AND number = n AND kind = 'pg_class'")
    ),
    "pg_get_expr": _scalar("a r p=false", "CAST(a AS VARCHAR)"),
    "pg_get_indexdef": _scalar(
        "a n=0 p=false", _lookup("text", "x.index_parts", "oid = CAST(a AS UINTEGER) AND number = n")
    ),
    "pg_get_constraintdef": _scalar("a p=false", _lookup("text", "x.constraints", "oid = CAST(a AS UINTEGER)")),
    "pg_get_viewdef": _scalar("a p=false", _of_relation("definition")),
    "pg_encoding_to_char": _scalar("a", "CASE WHEN a = 6 THEN 'UTF8' WHEN a IS NOT NULL THEN '' END"),
    "pg_char_to_encoding": _scalar(
        "a", "CASE WHEN upper(replace(a, '-', '')) = 'UTF8' THEN 6 WHEN a IS NOT NULL THEN -1 END"
    ),
    "current_setting": _scalar(
        "a b=false",
        "CASE WHEN a IS NULL THEN NULL ELSE coalesce((SELECT value FROM x.settings WHERE name = lower(a)),"
        " CASE WHEN b THEN NULL ELSE CAST(error('unrecognized configuration parameter \"' || a || '\"') AS VARCHAR) END) END",
    ),
    "set_config": _scalar("a v l", "CAST(v AS VARCHAR)"),
    "pg_relation_size": _scalar("a b='main'", _of_relation("bytes")),
    "pg_size_pretty": _scalar("a", _SIZE_PRETTY),
    "quote_ident": _scalar("a", _QUOTE_IDENT),
    "quote_literal": _scalar("a", "'''' || replace(CAST(a AS VARCHAR), '''', '''''') || ''''"),
    "array_upper": _scalar("a n", "CASE WHEN n = 1 THEN nullif(len(a), 0) END"),
    "array_lower": _scalar("a n", "CASE WHEN n = 1 AND len(a) > 0 THEN 1 END"),
    "array_ndims": _scalar("a", "CASE WHEN len(a) > 0 THEN 1 END"),
    "_pg_expandarray": _scalar(
        "a", "unnest(list_transform(range(1, len(a) + 1), lambda i: {'x': a[i], 'n': CAST(i AS INTEGER)}))"
    ),
    "has_table_privilege": _scalar("o p;u o p", _ON_RELATION),
    "has_any_column_privilege": _scalar("o p;u o p", _ON_RELATION),
    "has_column_privilege": _scalar("o n p;u o n p", _ON_RELATION),
    "has_schema_privilege": _scalar("o p;u o p", _ON_SCHEMA),
    "pg_has_role": _scalar("o p;u o p", "CAST(o AS VARCHAR) IN (f_current_user(), '" + str(OWNER) + "')"),
    "pg_options_to_table": Function(
        (("a",),), f"SELECT {_TEXT} AS option_name, {_TEXT} AS option_value WHERE false AND a IS NOT NULL", table=True
    ),
    "aclexplode": Function(
        (("a",),),
        f"SELECT CAST(0 AS UINTEGER) AS grantor, CAST(0 AS UINTEGER) AS grantee, {_TEXT} AS privilege_type, false AS is_grantable"
        " WHERE false AND a IS NOT NULL",
        table=True,
    ),
    "aclexplode_listed": _scalar("a", f"unnest(CAST([] AS {_ACL_ITEM}[]))"),
    "encode": _scalar(
        "a f", "CASE lower(f) WHEN 'hex' THEN lower(hex(a)) WHEN 'base64' THEN to_base64(a) ELSE CAST(a AS VARCHAR) END"
    ),
    "decode": _scalar(
        "a f", "CASE lower(f) WHEN 'hex' THEN unhex(a) WHEN 'base64' THEN from_base64(a) ELSE encode(a) END"
    ),
    "host": _scalar("a", "split_part(CAST(a AS VARCHAR), '/', 1)"),
    "oidvectortypes": _scalar("a", "array_to_string(f_regtype_list(a), ', ')"),
    "regtype_list": _scalar(
        "a",
        "CASE WHEN a IS NOT NULL THEN coalesce((SELECT list(k.shown ORDER BY n.i) FROM (SELECT unnest(a) AS o,"
        " generate_subscripts(a, 1) AS i) AS n JOIN x.type_keys AS k ON k.key = CAST(n.o AS VARCHAR)), []) END",
    ),
    "pg_blocking_pids": _scalar("a", "CAST([] AS INTEGER[])"),
    "pg_get_keywords": Function(
        ((),),
        "SELECT keyword_name AS word, CASE keyword_category WHEN 'reserved' THEN 'R' WHEN 'unreserved' THEN 'U'"
        " WHEN 'type_function' THEN 'T' ELSE 'C' END AS catcode, true AS barelabel, keyword_category AS catdesc,"
        " 'can be bare label' AS baredesc FROM duckdb_keywords()",
        table=True,
    ),
    "pg_postmaster_start_time": _scalar("", "now()"),
    "pg_conf_load_time": _scalar("", "now()"),
    "pg_tablespace_location": _scalar("a", "CASE WHEN a IS NOT NULL THEN '' END"),
    "pg_indexes_size": _scalar("a", _NUMBER),
}
_ALIASES = {
    "pg_total_relation_size": "pg_relation_size",
    "pg_table_size": "pg_relation_size",
}
_VISIBLE = (
    "collation conversion function opclass operator opfamily statistics_obj ts_config ts_dict ts_parser ts_template"
)
_READABLE = "database function language sequence server tablespace type foreign_data_wrapper"
_NULLS = """pg_get_ruledef:1,2 pg_get_triggerdef:1,2 pg_get_functiondef:1
pg_get_partkeydef:1 pg_get_partition_constraintdef:1 pg_get_statisticsobjdef:1
pg_get_statisticsobjdef_columns:1 pg_get_serial_sequence:2 pg_get_function_sqlbody:1 inet_server_addr:0
inet_client_addr:0 pg_collation_for:1 pg_current_logfile:0,1"""
_NO_NUMBERS = """pg_database_size:1 pg_tablespace_size:1 inet_server_port:0 inet_client_port:0 pg_stat_get_numscans:1
pg_stat_get_tuples_inserted:1 pg_stat_get_live_tuples:1 pg_stat_get_dead_tuples:1 pg_sequence_last_value:1 pg_relation_filenode:1
txid_current:0 txid_current_if_assigned:0"""
_FALSE = """pg_is_in_recovery:0 pg_is_other_temp_schema:1 pg_relation_is_publishable:1 row_security_active:1 pg_is_wal_replay_paused:0
pg_index_column_has_property:3 pg_index_has_property:2 pg_indexam_has_property:2 pg_relation_is_updatable:2"""


def _constant(listed: str, body: str) -> dict[str, Function]:
    found = {}
    for one in listed.split():
        name, _, counts = one.partition(":")
        found[name] = Function(tuple(tuple(f"a{i}" for i in range(int(n))) for n in counts.split(",")), body)
    return found


def _session(described: Description) -> dict[str, Function]:
    """Functions whose result is fixed for a session."""
    path = search_path(described)
    with_catalog = path if "pg_catalog" in path else ["pg_catalog", *path]
    user, database = literal(described.user), literal(described.database)
    listed = f"CASE WHEN a THEN {_list(with_catalog)} ELSE {_list(path)} END"
    return {
        "version": _scalar("", literal(VERSION)),
        "current_schema": _scalar("", literal(path[0]) if path else _TEXT),
        "current_schemas": _scalar("a", listed),
        "current_database": _scalar("", database),
        "current_catalog": _scalar("", database),
        "current_user": _scalar("", user),
        "current_role": _scalar("", user),
        "session_user": _scalar("", user),
        "user": _scalar("", user),
        "pg_backend_pid": _scalar("", str(int(described.process))),
        "pg_my_temp_schema": _scalar("", "CAST(0 AS UINTEGER)"),
        "pg_advisory_unlock_all": _scalar("", "''"),
    }


def _list(names: list[str]) -> str:
    return f"CAST([{', '.join(map(literal, names))}] AS VARCHAR[])"


def functions(described: Description) -> dict[str, Function]:
    """All functions by name. Those whose names do not exist in PostgreSQL serve casts (`regclass_text`)."""
    return {
        **_FUNCTIONS,
        **{alias: _FUNCTIONS[name] for alias, name in _ALIASES.items()},
        **{f"pg_{what}_is_visible": _scalar("a", "a IS NOT NULL") for what in _VISIBLE.split()},
        **{f"has_{what}_privilege": _scalar("o p;u o p", _ANY) for what in _READABLE.split()},
        **_constant(_NULLS, _TEXT),
        **_constant(_NO_NUMBERS, _NUMBER),
        **_constant(_FALSE, "false"),
        **_session(described),
    }


def with_used(made: Mapping[str, Function], names: Iterable[str]) -> list[str]:
    """These functions, each preceded by those that it uses."""
    ordered: dict[str, None] = {}
    for name in names:
        ordered |= dict.fromkeys([*with_used(made, _USED.findall(made[name].body)), name])
    return list(ordered)


def macro(name: str, function: Function) -> str:
    """The statement that makes the function."""
    start = "AS TABLE" if function.table else "AS"
    signatures = [f"({', '.join(one).replace('=', ' := ')}) {start} {function.body}" for one in function.parameters]
    return f"CREATE MACRO main.{PREFIX}{name}{', '.join(signatures)}"
