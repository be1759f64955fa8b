"""Answers queries of PostgreSQL's catalog in a query process, for clients of PostgreSQL's protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from engine.model.target import QueryRefused, SqlClient
from engine.postgres.array_literals import array_elements
from engine.queries.channel import EngineChannel
from engine.queries.rows import wire_field
from engine.targets.duckdb.pg_catalog.answers import answer
from engine.targets.duckdb.pg_catalog.description import (
    CatalogError,
    ColumnDescription,
    Description,
    RelationDescription,
)


def catalog_rows(engine: EngineChannel, request: Mapping[str, Any], client: SqlClient) -> Any:
    """The rows, as a pyarrow.Table, of a query that names only the catalog. The engine describes all relations that it may show.

    Raises:
        QueryRefused: `sqlstate_` and PostgreSQL's code.
    """
    relations = engine.asked({"kind": "named", "places": [], "expressions": [], "catalog": True})["tables"]
    engine.asked({"kind": "planned", "scans": 0})
    described = Description(
        client.database, client.user, tuple(map(_described, relations)), client.settings, process=client.process
    )
    try:
        found = answer(request["sql"], [_value(text) for text in request["parameters"]], described)
    except CatalogError as error:
        raise QueryRefused(f"sqlstate_{error.sqlstate}", error.message) from None
    types = zip(found.rows.schema, found.types, found.modifiers, strict=True)
    rows = found.rows.cast(pa.schema([wire_field(field, oid, modifier) for field, oid, modifier in types]))
    return rows if request["max_rows"] is None else rows.slice(0, request["max_rows"])


def _value(text: str | None) -> Any:
    """The value of a parameter: an array literal as a list."""
    try:
        return text if text is None else array_elements(text)
    except ValueError:
        return text


def _described(relation: dict[str, Any]) -> RelationDescription:
    """A relation of the engine's message `tables`."""
    comments = dict(relation["remarks"])
    columns = tuple(ColumnDescription(name, kind, comment=comments.get(name)) for name, kind in relation["columns"])
    key = tuple(relation["key"])
    return RelationDescription(relation["schema"], relation["name"], columns, key, comment=comments.get(""))
