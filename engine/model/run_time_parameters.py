"""Run-time parameters of the SQL endpoint's sessions, those of PostgreSQL that clients use and those of Penstock: names, default values,
and the values that they may have. Pure."""

from __future__ import annotations

import re

from engine.model.positions import POSITION_EXAMPLE, is_position

SERVER_VERSION = "15.0"
"""Clients choose their catalog queries by it: the relations of `engine.targets.duckdb.pg_catalog` are those of PostgreSQL 15."""

DEFAULTS = {
    "application_name": "",
    "block_size": "8192",
    "bytea_output": "hex",
    "check_function_bodies": "on",
    "client_encoding": "UTF8",
    "client_min_messages": "notice",
    "DateStyle": "ISO, MDY",
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
    "IntervalStyle": "postgres",
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
    "TimeZone": "UTC",
    "transaction_deferrable": "off",
    "transaction_isolation": "read committed",
    "transaction_read_only": "on",
    "xmloption": "content",
}
"""PostgreSQL's, with their default values, by names as SHOW spells them."""
FRESHNESS, TIMEOUT_MS = "penstock.freshness", "penstock.timeout_ms"
ON_TIMEOUT, ON_UNAVAILABLE = "penstock.on_timeout", "penstock.on_unavailable"
READ_POINT = "penstock.read_point"
POSITION, RECEIPT, ANSWERED_BY = "penstock.position", "penstock.receipt", "penstock.answered_by"
SESSION_DEFAULTS = {
    **DEFAULTS,
    "scram_iterations": "4096",
    "session_authorization": "",
    FRESHNESS: "any",
    TIMEOUT_MS: "30000",
    ON_TIMEOUT: "error",
    ON_UNAVAILABLE: "error",
    READ_POINT: "",
    POSITION: "",
    RECEIPT: "",
    ANSWERED_BY: "",
}
"""All parameters that a session has from its start, with their default values."""
NAMES = {name.lower(): name for name in SESSION_DEFAULTS} | {"isolation_level": "transaction_isolation"}
"""Names as SHOW spells them, by names in lower case."""
FIXED = frozenset(
    {
        "server_version", "server_version_num", "server_encoding", "in_hot_standby", "integer_datetimes", "is_superuser",
        "max_identifier_length", "max_index_keys", "lc_collate", "lc_ctype", "block_size", "max_connections", "ssl",
        "session_authorization", POSITION, RECEIPT, ANSWERED_BY,
    }
)  # fmt: skip
"""Parameters that a session cannot set."""
_WITHOUT_EFFECT = frozenset(
    {
        "constraint_exclusion", "enable_seqscan", "geqo", "gin_fuzzy_search_limit", "idle_session_timeout",
        "max_parallel_workers_per_gather", "quote_all_identifiers", "session_replication_role", "statement_mem", "synchronize_seqscans",
        "tcp_keepalives_count", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_user_timeout", "transaction_timeout", "work_mem",
    }
)  # fmt: skip
"""Parameters of PostgreSQL that clients set, and that concern nothing here."""
UTC_NAMES = ("utc", "gmt", "etc/utc", "0", "z")
"""The only time zone, in lower case."""
_ONLY = {
    "client_encoding": ("utf8", "utf-8", "unicode"),
    "standard_conforming_strings": ("on", "true", "1", "yes"),
    "bytea_output": ("hex",),
    "IntervalStyle": ("postgres",),
    "role": ("none",),
    "TimeZone": UTC_NAMES,
    "transaction_isolation": ("read committed", "read uncommitted"),
    "default_transaction_isolation": ("read committed", "read uncommitted"),
    "transaction_read_only": ("on", "true", "1", "yes"),
    "default_transaction_read_only": ("on", "true", "1", "yes"),
    ON_TIMEOUT: ("error", "stale", "source"),
    ON_UNAVAILABLE: ("error", "include", "source"),
}
"""Values that a parameter may have, in lower case."""
_WRITTEN = {"client_encoding": "UTF8", "TimeZone": "UTC"}
"""Parameters that are shown in one spelling, however their value was written."""
_POINT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_CUSTOM_NAME = re.compile(r"[^\W\d][\w$]*(?:\.[^\W\d][\w$]*)+")
_DURATION = re.compile(r"(\d{1,18})\s*(us|ms|s|min|h|d)?")
_UNITS_MS = {"us": 0.001, "ms": 1, None: 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_ISOLATION = re.compile(
    r"ISOLATION\s+LEVEL\s+(READ\s+UNCOMMITTED|READ\s+COMMITTED|REPEATABLE\s+READ|SERIALIZABLE)", re.IGNORECASE
)
_WRITES = re.compile(r"\bREAD\s+WRITE\b", re.IGNORECASE)


class ParameterError(Exception):
    """There is no such parameter, or it cannot have the value. `state`: PostgreSQL's SQLSTATE."""

    def __init__(self, state: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.state = state
        self.message = message
        self.hint = hint


def assigned(name: str, value: str) -> tuple[str, str]:
    """The parameter's name as SHOW spells it, and the value as a session has it after SET. Raises ParameterError."""
    known = known_parameter(name)
    if known in FIXED:
        raise ParameterError("55P02", f'parameter "{known}" cannot be changed')
    return known, checked_value(known, value)


def known_parameter(name: str) -> str:
    """The parameter's name as SHOW spells it. Raises ParameterError."""
    found = NAMES.get(name.lower())
    if found is not None:
        return found
    if name.lower().startswith("penstock."):
        names = ", ".join(sorted(each for each in SESSION_DEFAULTS if each.startswith("penstock.")))
        raise ParameterError("42704", f'there is no parameter "{name}"', f"There are {names}.")
    if name.lower() not in _WITHOUT_EFFECT and _CUSTOM_NAME.fullmatch(name.lower()) is None:
        raise ParameterError("42704", f'unrecognized configuration parameter "{name}"')
    return name.lower()


def checked_value(known: str, value: str) -> str:
    """The value as a session has it. `known`: a name from `known_parameter`. Raises ParameterError."""
    allowed = _ONLY.get(known)
    if allowed is not None:
        plain = " ".join(value.lower().split())
        if plain not in allowed:
            if known.endswith("isolation"):
                check_transaction(f"ISOLATION LEVEL {value}")
            raise ParameterError(
                "22023", f'parameter "{known}" cannot be "{value}"', f"It can be {' or '.join(allowed)}."
            )
        return plain if known.startswith("penstock.") else _WRITTEN.get(known, plain)
    if "\0" in value:
        raise ParameterError("22023", f'the value of parameter "{known}" contains a NUL')
    if known in {TIMEOUT_MS, "statement_timeout"}:
        milliseconds(value)
    if known == READ_POINT and value and _POINT_NAME.fullmatch(value) is None:
        raise ParameterError("22023", f'parameter "{READ_POINT}" is the name of a read point, or empty')
    if known == "DateStyle" and not value.upper().startswith("ISO"):
        raise ParameterError("22023", 'DateStyle cannot be other than "ISO, MDY"')
    if known == FRESHNESS:
        return _freshness(value)
    return "ISO, MDY" if known == "DateStyle" else value


def _freshness(value: str) -> str:
    """As it is stored. A position may have the form of any kind of source: only a statement knows its subscription's."""
    plain = value.strip()
    if plain.lower() not in {"any", "latest"} and not is_position(plain):
        hint = f"It can be any, latest, or a position of the source, like {POSITION_EXAMPLE}."
        raise ParameterError("22023", f'parameter "{FRESHNESS}" cannot be "{value}"', hint)
    return plain


def check_transaction(text: str) -> None:
    """Check the options of BEGIN or SET TRANSACTION. Raises ParameterError."""
    level = _ISOLATION.search(text)
    if level is not None and not level[1].upper().startswith("READ"):
        raise ParameterError(
            "0A000",
            "each statement sees a batch boundary of its own; REPEATABLE READ and SERIALIZABLE are not available",
            "Use READ COMMITTED, and one statement for rows that have to agree.",
        )
    if _WRITES.search(text):
        raise ParameterError("25006", "the copies are read-only", "Write to the source.")


def milliseconds(text: str) -> int:
    """A duration as PostgreSQL's parameters have it: milliseconds, or with a unit. Raises ParameterError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ParameterError(
            "22023", f'"{text}" is not a duration', "Write milliseconds, or a number with ms, s, min, h or d."
        )
    return int(float(match[1]) * _UNITS_MS[match[2]])
