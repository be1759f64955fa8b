"""The settings that a session shows. Pure."""

from __future__ import annotations

from engine.targets.duckdb.pg_catalog.description import Description

SERVER_VERSION = "15.0"
"""Clients choose their catalog queries by it: the relations in `catalog_columns` are those of PostgreSQL 15."""
VERSION = f"PostgreSQL {SERVER_VERSION} (Penstock, read-only copy in DuckDB)"

DEFAULTS = {
    "application_name": "",
    "block_size": "8192",
    "bytea_output": "hex",
    "check_function_bodies": "on",
    "client_encoding": "UTF8",
    "client_min_messages": "notice",
    "datestyle": "ISO, MDY",
    "default_table_access_method": "heap",
    "default_tablespace": "",
    "default_transaction_deferrable": "off",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "on",
    "escape_string_warning": "on",
    "extra_float_digits": "1",
    "idle_in_transaction_session_timeout": "0",
    "in_hot_standby": "off",
    "integer_datetimes": "on",
    "intervalstyle": "postgres",
    "is_superuser": "off",
    "jit": "off",
    "lc_collate": "C",
    "lc_ctype": "C",
    "lc_messages": "C",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "lock_timeout": "0",
    "max_connections": "100",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "password_encryption": "scram-sha-256",
    "role": "none",
    "row_security": "on",
    "search_path": '"$user", public',
    "server_encoding": "UTF8",
    "server_version": SERVER_VERSION,
    "server_version_num": "150000",
    "ssl": "off",
    "standard_conforming_strings": "on",
    "statement_timeout": "0",
    "synchronous_commit": "on",
    "temp_tablespaces": "",
    "timezone": "UTC",
    "transaction_deferrable": "off",
    "transaction_isolation": "read committed",
    "transaction_read_only": "on",
    "xmloption": "content",
}
SPELLING = {"datestyle": "DateStyle", "intervalstyle": "IntervalStyle", "timezone": "TimeZone"}
"""Names that are not shown in lower case."""


def settings_of(described: Description) -> dict[str, str]:
    """Values by names in lower case."""
    return {**DEFAULTS, "session_authorization": described.user, **described.settings}


def search_path(described: Description) -> list[str]:
    """The schemas of unqualified names, in order, without those that do not exist; pg_catalog, implied at the start, is not included."""
    schemas = {"public", "pg_catalog", "information_schema", *(one.schema for one in described.relations)}
    names: list[str] = []
    for part in settings_of(described)["search_path"].split(","):
        text = part.strip()
        name = text[1:-1].replace('""', '"') if text.startswith('"') else text.strip("'").lower()
        name = described.user if name == "$user" else name
        if name in schemas and name not in names:
            names.append(name)
    return names
