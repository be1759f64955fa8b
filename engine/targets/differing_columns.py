"""The columns in which two rows with the same key differ, as comparisons return them. Pure."""

from __future__ import annotations

from engine.model.schema import TableSchema


def named(schema: TableSchema, places: str | None) -> tuple[str, ...]:
    """The names of columns whose positions are in a text, separated by commas; empty for None."""
    return tuple(schema.columns[int(place)].name for place in places.split(",")) if places else ()
