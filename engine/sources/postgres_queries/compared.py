"""Tables as queries compare them."""

from __future__ import annotations

from dataclasses import replace

from engine.model.schema import ReplicaIdentity
from engine.records.catalog_table import CatalogTable


def as_compared(table: CatalogTable) -> CatalogTable:
    """The table as queries compare it: by a key that the database keeps unique. Whether its changes are logged does not matter."""
    usable = [i for i in table.indexes if i.immediate and i.not_null and set(i.columns) <= set(table.column_names)]
    usable.sort(key=lambda i: not i.primary)
    return replace(
        table,
        identity=ReplicaIdentity.DEFAULT,
        indexes=[replace(i, primary=True) for i in usable[:1]],
        persistence="p" if table.persistence == "u" else table.persistence,
        has_filters=True,
        whole_rows=True,
    )
