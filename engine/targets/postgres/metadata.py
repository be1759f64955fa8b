"""The metadata tables in a PostgreSQL database, including records of users' own tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from engine.model.identity import SubscriptionName, TableId, TableName
from engine.postgres.sessions import PostgresConnection
from engine.targets.metadata_store import COLUMNS, Dialect, MetadataStore
from engine.targets.target_metadata import OWN_SCHEMA, OwnerTable, TableReservation

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('penstock', 0))"
POSTGRES = Dialect(
    container="database",
    first_layout=1,
    placeholder="%s",
    now="(extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint",
    member_of=lambda column: f"{column} = ANY (?)",
    folded=str,
    folded_column=str,
    added_text="text NOT NULL DEFAULT ''",
    tables={
        "layout": f"({COLUMNS['layout']})",
        "progress": f"({COLUMNS['progress']}, PRIMARY KEY (subscription)) WITH (fillfactor = 10)",
        "tables": f"({COLUMNS['tables']}, generation bigint NOT NULL, existing text,"
        " PRIMARY KEY (subscription, table_id)) WITH (fillfactor = 50)",
        "copies": f"({COLUMNS['copies']}, PRIMARY KEY (table_id))",
        "shared": "(target_schema text, target_name text, subscription text NOT NULL, table_id text NOT NULL,"
        " shared_schema text NOT NULL, shared_name text NOT NULL, source_column text NOT NULL,"
        " source_value text NOT NULL, structure text, PRIMARY KEY (target_schema, target_name))",
        "refused_rows": f"({COLUMNS['refused_rows']}, PRIMARY KEY (subscription, table_id, of_copy, row_id))",
        "loads": f"({COLUMNS['loads']}, PRIMARY KEY (subscription, table_id, partition))",
    },
    fence=" FOR NO KEY UPDATE",
    shared_fence=" FOR KEY SHARE",
    keyed=True,
    owner_tables=True,
    first_values={"tables": {"generation": 0}},
)


class PostgresMetadata(MetadataStore):
    """The metadata store on one connection."""

    dialect = POSTGRES

    def __init__(self, connection: PostgresConnection, *, fence: bool = False) -> None:
        super().__init__(connection, fence=fence)
        self._connection = connection
        self._known: dict[TableName, TableReservation | None] = {}

    def create(self) -> None:
        """Create them; serialized over all connections."""
        self._execute(_LOCK)
        super().create()

    def reservations(
        self, subscription: SubscriptionName | None, tables: Collection[TableId] | None = None
    ) -> list[TableReservation]:
        found = super().reservations(subscription, tables)
        self._known.update((reservation.target, reservation) for reservation in found)
        return found

    def existing(self, target: TableName) -> TableReservation | None:
        """The record of the user's own table with this name, else None. Reservations that were read before are not read again."""
        if target not in self._known:
            where, values = self._named("target", target)
            self._known[target] = next(iter(self._reservations(where, values)), None)
        found = self._known[target]
        return found if found is not None and found.existing is not None else None

    def is_of_owner(self, table: TableId) -> bool:
        """Whether one of the reservations read so far says that this table is the user's."""
        return any(r is not None and r.table == table and r.existing is not None for r in self._known.values())

    def write_existing(self, table: TableReservation, state: OwnerTable | None) -> None:
        """Record who owns the table with this name, and whether it has rows of ours."""
        row = {"existing": state and state.value}
        self._update("tables", row, target_schema=table.target.schema, target_name=table.target.name)
        self._known[table.target] = replace(table, existing=state)

    def reserve(
        self,
        subscription: SubscriptionName,
        table: TableId,
        target: TableName,
        instead_of: Sequence[TableId],
        existing: OwnerTable | None = None,
    ) -> None:
        super().reserve(subscription, table, target, instead_of, existing)
        self._known.pop(target, None)

    def drop_left(self, target: TableName) -> None:
        """Delete the records of removed tables with this name, which belongs to the user."""
        where, values = self._named("target", target)
        self._execute(f"DELETE FROM {OWN_SCHEMA}.tables WHERE removed AND existing IS NOT NULL AND {where}", values)

    def delete_left(self, target: TableName) -> None:
        super().delete_left(target)
        self._known.pop(target, None)

    def next_generation(self, target: TableName) -> None:
        """Record that a table's rows were replaced without being visible to older snapshots."""
        where, values = self._named("target", target)
        self._execute(f"UPDATE {OWN_SCHEMA}.tables SET generation = generation + 1 WHERE {where}", values)

    def generations(self) -> dict[TableName, int]:
        """The generation of every table, by its name on the target."""
        rows = self._select("tables", "target_schema, target_name, generation")
        return {TableName(schema, name): generation for schema, name, generation in rows}

    def _found(self) -> tuple[bool, bool]:
        sql = "SELECT to_regnamespace(?) IS NOT NULL, to_regclass(?) IS NOT NULL"
        schema, layout = self._execute(sql, [OWN_SCHEMA, f"{OWN_SCHEMA}.layout"]).fetchall()[0]
        return schema, layout

    def _migrate(self) -> None:
        if not self._edition:
            self._execute(f"ALTER TABLE {OWN_SCHEMA}.tables ADD COLUMN existing text")
        super()._migrate()

    def _execute_each(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(sql.replace("?", self.dialect.placeholder).encode(), rows)
