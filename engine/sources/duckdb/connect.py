"""Connections of DuckDB for reading, without access to anything but what they are given."""

from __future__ import annotations

import tempfile
from typing import Any

import duckdb

MEMORY_LIMIT = "512MB"
"""Memory of a connection that reads; sorts that need more write to temporary files. Not measured."""
_CONFIG = {
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": MEMORY_LIMIT,
    "threads": "2",
}


def connected(path: str | None) -> Any:
    """A connection to the database at this path, for reading only; None: an empty one that may read the engine's files. Times are in UTC.

    Raises duckdb.Error.
    """
    config = {**_CONFIG, "temp_directory": tempfile.gettempdir()}
    if path is None:
        connection = duckdb.connect(":memory:", config=config)
    else:
        connection = duckdb.connect(path, read_only=True, config={**config, "enable_external_access": "false"})
    try:
        connection.execute("SET TimeZone = 'UTC'").fetchall()
        connection.execute("SET preserve_insertion_order = false").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection
