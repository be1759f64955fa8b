"""Tables as queries compare them: what prevents it, and their structures, which depend on nothing but names, types and keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from engine.model.fault import FaultKind
from engine.model.row_filter import RowFilter
from engine.model.schema import TableSchema
from engine.model.subscription import TableSpec
from engine.records.catalog_table import schema_of
from engine.sources.mariadb.catalog import MariaDbTable, Structure
from engine.sources.mariadb.connect import quoted
from engine.sources.mariadb.preflight import unselectable
from engine.sources.mariadb_queries.stamps import TYPES
from engine.sources.query_diff.declaration import DEFAULT_METHOD, TableDetection
from engine.sources.query_diff.derived_numbers import column_base, relation_of

Unfit = tuple[FaultKind, str, str]
"""Why a table cannot be compared as declared: code, reason and remedy."""
_FLAGS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
"""Types of delete flags. `boolean` is a tinyint."""
_AS_DECLARED = TableDetection()


@dataclass(frozen=True, slots=True)
class Compared:
    """How tables are compared, as a capture declares it. `chosen`: by `schema.name`; `method`: of all others."""

    chosen: Mapping[str, TableDetection] = field(default_factory=dict)
    method: str = DEFAULT_METHOD

    @property
    def by_stamps(self) -> bool:
        """Whether changes of any table are found by stamps."""
        return any(one.stamp_column is not None for one in self.chosen.values())

    def of(self, table: MariaDbTable) -> TableDetection:
        return self.chosen.get(str(table.name), _AS_DECLARED)

    def kept(self, table: MariaDbTable, schema: TableSchema) -> TableSchema:
        """A schema of the table, without the rows whose delete flag is set. For a table without `flag_problem`."""
        flag = self.of(table).flag_column
        if flag is None:
            return schema
        numbers = {name: number for name, _, _, number, _ in compared_structure(table).columns}
        name, nullable = quoted(flag), next(facts.nullable for facts in table.columns if facts.name == flag)
        condition = f"({name} = 0 OR {name} IS NULL)" if nullable else f"{name} = 0"
        return replace(schema, row_filter=RowFilter(condition, ((numbers[flag], flag),)))

    def schema(self, table: MariaDbTable, spec: TableSpec) -> TableSchema | None:
        """The table's schema as declared; None if it cannot be compared so."""
        if self.flag_problem(table) is not None:
            return None
        schema = schema_of(compared_structure(table).table(), spec)
        return None if schema is None else self.kept(table, schema)

    def stamp_problem(self, table: MariaDbTable) -> str | None:
        """Why the table cannot be read by its stamps as declared, as text; None if it can, or need not be."""
        column = self.of(table).stamp_column
        if column is None or types_of(table).get(column) in TYPES:
            return None
        return f"stamp_column {column} is not a column of type {', '.join(sorted(TYPES))}"

    def flag_problem(self, table: MariaDbTable) -> str | None:
        """Why deleted rows cannot be recognized by the declared flag, as text; None if they can, or need not be."""
        column = self.of(table).flag_column
        if column is None or types_of(table).get(column) in _FLAGS:
            return None
        return f"flag_column {column} is not a column of type boolean, smallint, mediumint, integer or bigint"


AS_THEY_ARE = Compared()
"""Every table by comparing all of its rows."""


def types_of(table: MariaDbTable) -> dict[str, str]:
    """The types of its columns, without their sizes, by name."""
    return {facts.name: facts.data_type for facts in table.columns}


def stamps_of(table: MariaDbTable) -> frozenset[str]:
    """The columns that may be stamps."""
    return frozenset(facts.name for facts in table.columns if facts.data_type in TYPES)


def compared_structure(table: MariaDbTable) -> Structure:
    """What its rows are read with now."""
    facts = [(facts.name, how.name, how.modifier, facts.nullable) for facts, how in table.printed]
    mark = repr((facts, table.key, table.identity is not None and table.identity.name == "PRIMARY"))
    return table.structure_with(int(relation_of(table.name)), mark, column_base(mark))


def why_unfit(table: MariaDbTable) -> str | None:
    """Why rows of the table cannot be read in a snapshot, as text; None if they can."""
    if table.engine.upper() != "INNODB":
        return f"{table.name} is a table of the storage engine {table.engine}, which has no snapshots"
    if table.partitioned:
        return f"{table.name} is partitioned: an exchange of a partition is not seen by a snapshot"
    if table.kind != "BASE TABLE":
        return f"{table.name} is not a plain table ({table.kind})"
    return None


def unfit(table: MariaDbTable) -> Unfit | None:
    """Why the table cannot be compared, however it is declared; None if it can."""
    problem = why_unfit(table)
    if problem is not None:
        return FaultKind.TABLE_NOT_LOGGED, problem, "Leave it out, or make it a plain InnoDB table."
    if not table.key:
        what = f"{table.name} has no primary key and no unique key without NULL, by which queries find changed rows"
        return FaultKind.TABLE_NO_IDENTITY, what, "Add a primary key, or capture it by triggers."
    return None


def unfit_as_declared(table: MariaDbTable, spec: TableSpec) -> Unfit | None:
    """Why the table cannot be compared as declared; None if it can."""
    found = unfit(table)
    if found is None and spec.where is not None:
        what = f"{table.name}: where is not possible with queries of MariaDB, which compare every row"
        found = FaultKind.TABLE_COLUMNS_UNFIT, what, "Leave it out."
    return found or unselectable(table, compared_structure(table), spec)
