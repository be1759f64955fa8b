"""The settings that a session shows. Pure."""

from __future__ import annotations

from engine.model import run_time_parameters
from engine.model.run_time_parameters import SERVER_VERSION
from engine.targets.duckdb.pg_catalog.description import Description

VERSION = f"PostgreSQL {SERVER_VERSION} (Penstock, read-only copy in DuckDB)"

DEFAULTS = {name.lower(): value for name, value in run_time_parameters.DEFAULTS.items()}
SPELLING = {name.lower(): name for name in run_time_parameters.DEFAULTS if not name.islower()}
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
