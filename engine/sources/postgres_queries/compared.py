"""Tables and views as queries compare them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from psycopg import sql

from engine.model.schema import ReplicaIdentity
from engine.model.subscription import TableSpec
from engine.records.catalog_table import CatalogTable, UniqueIndex
from engine.sources.postgres_queries.stamps import TYPES
from engine.sources.query_diff.declaration import DEFAULT_METHOD, TableDetection

VIEWS = frozenset({"v", "m"})
"""pg_class.relkind of views and materialized views."""
_NUMBERS = "({0} = 0 OR {0} IS NULL)"
_KEPT = {"bool": "{0} IS NOT TRUE", "int2": _NUMBERS, "int4": _NUMBERS, "int8": _NUMBERS}
"""By the type of a delete flag, which rows it does not delete. Of another type the source refuses the condition: no row would be left."""
KEY_TYPES = frozenset(
    {"bool", "bpchar", "bytea", "date", "int2", "int4", "int8", "name", "oid", "text", "time"}
    | {"timestamp", "timestamptz", "uuid", "varchar"}
)
"""Types of which two values are equal only if they print alike: not so 1.0 and 1.00, which are one key to a target."""
_AS_DECLARED = TableDetection()


@dataclass(frozen=True, slots=True)
class Compared:
    """How tables are compared, as a capture declares it. `chosen`: by `schema.name`; `method`: of all others; `in_steps`: cycles may
    continue in another snapshot, so that it matters which tables are in the order of their keys."""

    chosen: Mapping[str, TableDetection] = field(default_factory=dict)
    method: str = DEFAULT_METHOD
    in_steps: bool = False

    def of(self, table: CatalogTable) -> TableDetection:
        return self.chosen.get(str(table.name), _AS_DECLARED)

    def table(self, table: CatalogTable) -> CatalogTable:
        """The table as queries compare it: by a key that the database keeps unique, else by the declared one. Whether its changes are
        logged does not matter. A view without a key stays a view."""
        usable, declared = _usable(table), self.declared_key(table)
        if declared:
            usable = [
                UniqueIndex(primary=True, replica_identity=False, immediate=True, columns=declared, not_null=True)
            ]
        return replace(
            table,
            kind="r" if table.kind in VIEWS and usable else table.kind,
            # That of a materialized view is another one after each refresh.
            relfilenode=0 if table.kind in VIEWS else table.relfilenode,
            columns=[
                replace(c, column=replace(c.column, nullable=False)) if c.column.name in declared else c
                for c in table.columns
            ],
            identity=ReplicaIdentity.DEFAULT,
            indexes=[replace(i, primary=True) for i in usable[:1]],
            persistence="p" if table.persistence == "u" else table.persistence,
            has_filters=True,
            whole_rows=True,
        )

    def declared_key(self, table: CatalogTable) -> tuple[str, ...]:
        """The declared key of a table that has none of its own; empty if there is none, or not of columns of the table."""
        return tuple(self.of(table).key or ()) if not _usable(table) and self.key_problem(table) is None else ()

    def key_problem(self, table: CatalogTable) -> str | None:
        """Why the declared key cannot be one, as text; None if it can, or there is none."""
        key, types = self.of(table).key or (), _types(table)
        missing = [name for name in key if name not in types]
        if missing:
            return f"the declared key names columns that it does not have: {', '.join(missing)}"
        unfit = [f"{name} ({types[name]})" for name in key if types[name] not in KEY_TYPES]
        if unfit:
            return f"the declared key has columns of types of which equal values may look different: {', '.join(unfit)}"
        return None

    def kept(self, table: CatalogTable, spec: TableSpec) -> TableSpec:
        """The table as declared, without the rows whose delete flag is set."""
        flag = self.of(table).flag_column
        if flag is None:
            return spec
        condition = _KEPT.get(_types(table).get(flag, ""), _KEPT["bool"]).format(sql.Identifier(flag).as_string())
        return replace(spec, where=condition if spec.where is None else f"({spec.where}) AND ({condition})")

    def stamp_problem(self, table: CatalogTable) -> str | None:
        """Why the table cannot be read by its stamps as declared, as text; None if it can, or need not be."""
        column = self.of(table).stamp_column
        if column is None or _types(table).get(column) in TYPES:
            return None
        return f"stamp_column {column} is not a column of type {', '.join(sorted(TYPES))}"

    def flag_problem(self, table: CatalogTable) -> str | None:
        """Why deleted rows cannot be recognized by the declared flag, as text; None if they can, or need not be."""
        column = self.of(table).flag_column
        if column is None or _types(table).get(column) in _KEPT:
            return None
        return f"flag_column {column} is not a column of type boolean, smallint, integer or bigint"


AS_THEY_ARE = Compared()
"""Every table by a key of its own."""


def _types(table: CatalogTable) -> dict[str, str]:
    return {c.column.name: c.column.type.name for c in table.columns}


def _usable(table: CatalogTable) -> list[UniqueIndex]:
    """The keys that the database keeps unique, the primary one first."""
    found = [i for i in table.indexes if i.immediate and i.not_null and set(i.columns) <= set(table.column_names)]
    found.sort(key=lambda i: not i.primary)
    return found
