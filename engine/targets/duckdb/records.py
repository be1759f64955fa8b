"""The progress record: schema `penstock` of the target file. Runs inside the transaction of its caller."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import SubscriptionName, TableId, TableName
from engine.model.partitions import WHOLE, Loads
from engine.model.position import Lsn
from engine.model.quarantine import RefusedRow
from engine.model.target import TableRead, TableRecord
from engine.targets.duckdb.identifiers import folded, folded_name, quoted
from engine.targets.quarantined_rows import body_of, row_from
from engine.targets.structure_text import from_text, to_text
from engine.targets.target_metadata import (
    OWN_SCHEMA,
    CopyRecord,
    Member,
    Position,
    TableReservation,
    copy_from,
    loads_of,
    member_from,
    member_row,
    standing_text,
)

LAYOUT = 7
"""Version of the tables below; raised when they change, or what their rows mean."""
READABLE = (2, 3, 4, 5, 6, 7)
"""Up to 2 a subscription has one row in `progress`. From 3 on it may have more: the last by epoch and batch counts. Up to 3 no copy
can go on; up to 4 there are no shared tables, no row can stand aside, and nobody counts loads; up to 5 the publications
are not recorded; up to 6 the last transaction is not."""

_SHARED = (
    "CREATE TABLE IF NOT EXISTS {own}.shared (subscription VARCHAR NOT NULL, table_id VARCHAR NOT NULL, target_schema VARCHAR NOT NULL,"
    " target_name VARCHAR NOT NULL, shared_schema VARCHAR NOT NULL, shared_name VARCHAR NOT NULL, source_column VARCHAR NOT NULL,"
    " source_value VARCHAR NOT NULL, structure VARCHAR)"
)
_REFUSED_DDL = (
    "CREATE TABLE IF NOT EXISTS {own}.refused_rows (subscription VARCHAR NOT NULL, table_id VARCHAR NOT NULL, row_id VARCHAR NOT NULL,"
    " of_copy BOOLEAN NOT NULL, state VARCHAR NOT NULL, body VARCHAR NOT NULL)"
)
_LOADS = (
    "CREATE TABLE IF NOT EXISTS {own}.loads (subscription VARCHAR NOT NULL, table_id VARCHAR NOT NULL,"
    " partition VARCHAR NOT NULL, generation BIGINT NOT NULL, reason VARCHAR NOT NULL, position VARCHAR NOT NULL,"
    " loaded_us BIGINT NOT NULL, request VARCHAR)"
)
_DDL = (
    "CREATE TABLE {own}.layout (version INTEGER NOT NULL)",
    "CREATE TABLE {own}.progress (subscription VARCHAR NOT NULL, epoch BIGINT NOT NULL, batch BIGINT NOT NULL,"
    " position VARCHAR NOT NULL, system_id VARCHAR NOT NULL, timeline BIGINT NOT NULL, slot VARCHAR NOT NULL,"
    " publications VARCHAR DEFAULT '', last_commit VARCHAR DEFAULT '')",
    "CREATE TABLE {own}.tables (subscription VARCHAR NOT NULL, table_id VARCHAR NOT NULL,"
    " target_schema VARCHAR NOT NULL, target_name VARCHAR NOT NULL, structure VARCHAR, ready BOOLEAN NOT NULL,"
    " applied VARCHAR NOT NULL, parked VARCHAR, removed BOOLEAN NOT NULL, mark VARCHAR)",
    "CREATE TABLE {own}.copies (subscription VARCHAR NOT NULL, table_id VARCHAR NOT NULL,"
    " target_schema VARCHAR NOT NULL, hidden_name VARCHAR NOT NULL, structure VARCHAR NOT NULL,"
    " standing VARCHAR)",
    _SHARED,
    _REFUSED_DDL,
    _LOADS,
)
_PROGRESS = ("epoch", "batch", "position", "system_id", "timeline", "slot", "publications", "last_commit")
"""Columns of `progress` in the order of `_values`, which has the subscription behind them."""


class DuckDbRecords:
    """Implements Records over one connection."""

    def __init__(self, connection: Any, catalog: str, *, crowded: bool = False) -> None:
        """`crowded`: another transaction stays open meanwhile, for which DuckDB keeps a chain of every version of an updated row.

        Every look at the row walks that chain, so rows that each batch changes are replaced then.
        """
        self._crowded = crowded
        self._version: int | None = None
        self._connection = connection
        self._own = f"{quoted(catalog)}.{quoted(OWN_SCHEMA)}"

    def exist(self) -> bool:
        """Whether the file holds a record at all.

        Raises:
            EngineFault: TARGET_FOREIGN where a newer version wrote it, or the schema is not ours.
        """
        sql = (
            "SELECT table_name FROM duckdb_tables() WHERE lower(schema_name) = ? AND database_name = current_database()"
        )
        names = {row[0] for row in self._connection.execute(sql, [OWN_SCHEMA]).fetchall()}
        if not names:
            return False
        if "layout" not in names:
            raise EngineFault(
                FaultKind.TARGET_FOREIGN, OWN_SCHEMA, "the file has a schema of this name that is not ours"
            )
        self._version = self._connection.execute(f"SELECT max(version) FROM {self._own}.layout").fetchall()[0][0]
        if self._version not in READABLE:
            detail = f"its progress record has layout {self._version}; this version of Penstock knows {LAYOUT}"
            raise EngineFault(FaultKind.TARGET_FOREIGN, OWN_SCHEMA, detail)
        return True

    def create(self) -> None:
        """Make the tables, or bring those of an older version to this one."""
        if self.exist():
            if self._version != LAYOUT:
                self._connection.execute(f"ALTER TABLE {self._own}.copies ADD COLUMN IF NOT EXISTS standing VARCHAR")
                self._connection.execute(
                    f"ALTER TABLE {self._own}.progress ADD COLUMN IF NOT EXISTS publications VARCHAR DEFAULT ''"
                )
                self._connection.execute(
                    f"ALTER TABLE {self._own}.progress ADD COLUMN IF NOT EXISTS last_commit VARCHAR DEFAULT ''"
                )
                self._connection.execute(_SHARED.format(own=self._own))
                self._connection.execute(_REFUSED_DDL.format(own=self._own))
                self._connection.execute(_LOADS.format(own=self._own))
                self._connection.execute(f"UPDATE {self._own}.layout SET version = ?", [LAYOUT])
                self._version = LAYOUT
            return
        self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self._own}")
        for statement in _DDL:
            self._connection.execute(statement.format(own=self._own))
        self._connection.execute(f"INSERT INTO {self._own}.layout VALUES (?)", [LAYOUT])

    def look(self) -> None:
        """Look at the file, which begins the transaction's snapshot. Raises duckdb.CatalogException where nothing is recorded."""
        self._connection.execute(f"SELECT version FROM {self._own}.layout").fetchall()

    def readable(self, subscription: SubscriptionName) -> list[TableName]:
        """What readers of the subscription may see: its tables, also left behind, and shared tables that show their rows.

        Some of it may not be there yet, or not any more.
        """
        sql = (
            f"SELECT target_schema, target_name FROM {self._own}.tables"
            " WHERE subscription = $1"
            f" UNION SELECT shared_schema, shared_name FROM {self._own}.shared"
            " WHERE subscription = $1 AND structure IS NOT NULL"
            " ORDER BY ALL"
        )
        return [TableName(*row) for row in self._connection.execute(sql, [subscription]).fetchall()]

    def reads(self, relations: Collection[TableName]) -> list[TableRead]:
        """The tables among these relations, and those whose rows the shared tables among them show."""
        names = [folded(relation.name) for relation in relations]
        folding = f"'{ascii_uppercase}', '{ascii_lowercase}'"
        sql = (
            "SELECT t.subscription, t.table_id, t.target_schema, t.target_name, t.ready AND t.parked IS NULL, t.removed,"
            " coalesce(s.shared_schema, ''), coalesce(s.shared_name, '')"
            f" FROM {self._own}.tables AS t LEFT JOIN {self._own}.shared AS s"
            " ON s.subscription = t.subscription AND s.table_id = t.table_id AND s.structure IS NOT NULL"
            f" WHERE list_contains($1, translate(t.target_name, {folding}))"
            f" OR list_contains($1, translate(s.shared_name, {folding}))"
        )
        wanted = {folded_name(relation) for relation in relations}
        return [
            TableRead(SubscriptionName(row[0]), TableId(row[1]), TableName(*row[2:4]), row[4], row[5])
            for row in self._connection.execute(sql, [names]).fetchall()
            if not wanted.isdisjoint({folded_name(TableName(*row[2:4])), folded_name(TableName(*row[6:]))})
        ]

    def position(self, subscription: SubscriptionName) -> Position | None:
        version = LAYOUT if self._version is None else self._version
        publications = "''" if version < 6 else "publications"
        last = "''" if version < 7 else "last_commit"
        columns = f"epoch, batch, position, system_id, timeline, slot, {publications}, {last}"
        sql = f"SELECT {columns} FROM {self._own}.progress WHERE subscription = ?"
        rows = self._connection.execute(sql, [subscription]).fetchall()
        if not rows:
            return None
        return Position.recorded(max(rows, key=lambda row: (row[0], row[1])))

    def write_position(self, subscription: SubscriptionName, position: Position) -> None:
        """Insert or replace the subscription's row."""
        if self._crowded or self._update_position(subscription, position) != 1:
            self._connection.execute(f"DELETE FROM {self._own}.progress WHERE subscription = ?", [subscription])
            self.add_position(subscription, position)

    def _update_position(self, subscription: SubscriptionName, position: Position) -> int:
        assignments = ", ".join(f"{column} = ?" for column in _PROGRESS)
        sql = f"UPDATE {self._own}.progress SET {assignments} WHERE subscription = ?"
        return int(self._connection.execute(sql, _values(subscription, position)).fetchall()[0][0])

    def add_position(self, subscription: SubscriptionName, position: Position) -> None:
        """Insert a row beside the subscription's older ones, which a transaction with an old snapshot cannot replace.

        The next `write_position` leaves one of them.
        """
        columns = ", ".join((*_PROGRESS, "subscription"))
        places = ", ".join("?" for _ in (*_PROGRESS, "subscription"))
        self._connection.execute(
            f"INSERT INTO {self._own}.progress ({columns}) VALUES ({places})", _values(subscription, position)
        )

    def forget(self, subscription: SubscriptionName) -> None:
        if self._version is not None and self._version > 4:
            self._connection.execute(f"DELETE FROM {self._own}.refused_rows WHERE subscription = ?", [subscription])
        self._connection.execute(f"DELETE FROM {self._own}.progress WHERE subscription = ?", [subscription])
        if self._version is None or self._version > 4:
            self._connection.execute(f"DELETE FROM {self._own}.loads WHERE subscription = ?", [subscription])
        self._connection.execute(
            f"UPDATE {self._own}.tables SET removed = true, ready = false WHERE subscription = ?", [subscription]
        )
        if self._version is not None and self._version > 4:
            self._connection.execute(
                f"DELETE FROM {self._own}.shared WHERE subscription = ? AND structure IS NULL", [subscription]
            )

    def reservations(
        self, subscription: SubscriptionName | None, tables: Sequence[TableId] | None = None
    ) -> list[TableReservation]:
        """Rows of `penstock.tables`: of one subscription or all, of the given tables or all; removed ones included."""
        # What is not asked for would cost as much to plan as what is, and every batch reads here.
        wanted: dict[str, Any] = {}
        if subscription is not None:
            wanted["subscription = ?"] = subscription
        if tables is not None:
            wanted["list_contains(CAST(? AS VARCHAR[]), table_id)"] = list(tables)
        sql = (
            f"SELECT table_id, target_schema, target_name, structure, ready, applied, parked, removed, mark"
            f" FROM {self._own}.tables WHERE {' AND '.join(wanted) or 'true'} ORDER BY table_id"
        )
        return [_reservation(row) for row in self._connection.execute(sql, list(wanted.values())).fetchall()]

    def reserve(
        self, subscription: SubscriptionName, table: TableId, target: TableName, instead_of: Sequence[TableId]
    ) -> None:
        """Put a table's name in, without a structure, in place of its own row and those of `instead_of`."""
        self._connection.execute(
            f"DELETE FROM {self._own}.tables WHERE subscription = ? AND list_contains(CAST(? AS VARCHAR[]), table_id)",
            [subscription, [table, *instead_of]],
        )
        self._connection.execute(
            f"INSERT INTO {self._own}.tables VALUES (?, ?, ?, ?, NULL, false, '0/0', NULL, false, NULL)",
            [subscription, table, target.schema, target.name],
        )

    def write_table(self, subscription: SubscriptionName, record: TableRecord) -> None:
        """Insert or replace a table's row."""
        self._connection.execute(
            f"DELETE FROM {self._own}.tables WHERE subscription = ? AND table_id = ?", [subscription, record.table]
        )
        self._connection.execute(
            f"INSERT INTO {self._own}.tables VALUES (?, ?, ?, ?, ?, ?, ?, ?, false, ?)",
            [
                subscription,
                record.table,
                record.target.schema,
                record.target.name,
                to_text(record.schema),
                record.ready,
                str(record.applied),
                record.parked,
                record.mark,
            ],
        )

    def write_applied(self, subscription: SubscriptionName, tables: Sequence[TableId], end: Lsn) -> None:
        """Set how far these tables' changes have been applied, all at once."""
        which = "subscription = $1 AND list_contains(CAST($2 AS VARCHAR[]), table_id) AND applied <> $3"
        values = [subscription, list(tables), str(end)]
        if not self._crowded:
            self._connection.execute(f"UPDATE {self._own}.tables SET applied = $3 WHERE {which}", values)
            return
        rows = f"SELECT * REPLACE ($3 AS applied) FROM {self._own}.tables WHERE {which}"
        self._connection.execute(f"INSERT INTO {self._own}.tables {rows}", values)
        self._connection.execute(f"DELETE FROM {self._own}.tables WHERE {which}", values)

    def write_marks(self, subscription: SubscriptionName, marks: Mapping[TableId, str | None]) -> None:
        for table, mark in marks.items():
            self._connection.execute(
                f"UPDATE {self._own}.tables SET mark = ? WHERE subscription = ? AND table_id = ?",
                [mark, subscription, table],
            )

    def mark_removed(self, subscription: SubscriptionName, tables: Sequence[TableId]) -> None:
        self._connection.execute(
            f"UPDATE {self._own}.tables SET removed = true, ready = false"
            " WHERE subscription = ? AND list_contains(CAST(? AS VARCHAR[]), table_id)",
            [subscription, list(tables)],
        )

    def delete_table(self, subscription: SubscriptionName, table: TableId) -> None:
        for own in ("tables", "loads"):
            self._connection.execute(
                f"DELETE FROM {self._own}.{own} WHERE subscription = ? AND table_id = ?", [subscription, table]
            )

    def delete_left(self, target: TableName) -> None:
        """Forget whoever left a table of this name behind, of any subscription."""
        sql = f"SELECT DISTINCT target_schema, target_name FROM {self._own}.tables WHERE removed"
        for schema, name in self._connection.execute(sql).fetchall():
            if folded(schema) == folded(target.schema) and folded(name) == folded(target.name):
                self._connection.execute(
                    f"DELETE FROM {self._own}.tables WHERE removed AND target_schema = ? AND target_name = ?",
                    [schema, name],
                )

    def mark_unready(self, subscription: SubscriptionName, tables: Sequence[TableId] | None = None) -> None:
        """Note that these tables' rows are not complete any more; None = all of the subscription."""
        statement = f"UPDATE {self._own}.tables SET ready = false, parked = NULL WHERE subscription = ?"
        if tables is None:
            self._connection.execute(statement, [subscription])
        else:
            self._connection.execute(f"{statement} AND list_contains(?, table_id)", [subscription, list(tables)])

    def copies(self, subscription: SubscriptionName | None, table: TableId | None = None) -> list[CopyRecord]:
        standing = "NULL" if self._version is not None and self._version < 4 else "standing"
        sql = (
            f"SELECT table_id, target_schema, hidden_name, structure, {standing} FROM {self._own}.copies"
            " WHERE ($1 IS NULL OR subscription = $1) AND ($2 IS NULL OR table_id = $2) ORDER BY table_id"
        )
        rows = self._connection.execute(sql, [subscription, table]).fetchall()
        return [_copy(row) for row in rows]

    def copying(self, table: TableId) -> SubscriptionName | None:
        """Whose copy of the table is being loaded; None where there is none."""
        sql = f"SELECT subscription FROM {self._own}.copies WHERE table_id = ?"
        rows = self._connection.execute(sql, [table]).fetchall()
        return SubscriptionName(rows[0][0]) if rows else None

    def write_copy(self, subscription: SubscriptionName, copy: CopyRecord) -> None:
        self._connection.execute(
            f"INSERT INTO {self._own}.copies VALUES (?, ?, ?, ?, ?, ?)",
            [
                subscription,
                copy.table,
                copy.place.schema,
                copy.place.name,
                to_text(copy.schema),
                standing_text(copy),
            ],
        )

    def amend_copy(self, copy: CopyRecord) -> None:
        rows = self._connection.execute(
            f"DELETE FROM {self._own}.copies WHERE table_id = ? RETURNING subscription", [copy.table]
        ).fetchall()
        for (subscription,) in rows:
            self.write_copy(SubscriptionName(subscription), copy)

    def members(self, relation: TableName | None = None) -> list[Member]:
        if self._version is not None and self._version < 5:
            return []
        rows = self._connection.execute(
            f"SELECT * FROM {self._own}.shared ORDER BY target_schema, target_name"
        ).fetchall()
        found = [member_from(row) for row in rows]
        return [m for m in found if relation is None or folded_name(m.into.relation) == folded_name(relation)]

    def member(self, place: TableName) -> Member | None:
        return next((m for m in self.members() if folded_name(m.place) == folded_name(place)), None)

    def write_member(self, member: Member) -> None:
        self.delete_member(member.place)
        self._connection.execute(
            f"INSERT INTO {self._own}.shared VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            member_row(member),
        )

    def delete_member(self, place: TableName) -> None:
        found = self.member(place)
        if found is not None:
            self._connection.execute(
                f"DELETE FROM {self._own}.shared WHERE target_schema = ? AND target_name = ?",
                [found.place.schema, found.place.name],
            )

    def delete_copy(self, table: TableId) -> None:
        self._connection.execute(f"DELETE FROM {self._own}.copies WHERE table_id = ?", [table])

    def refused(self, subscription: SubscriptionName, table: TableId, *, of_copy: bool = False) -> list[RefusedRow]:
        rows = self._connection.execute(
            f"SELECT row_id, state, body FROM {self._own}.refused_rows"
            " WHERE subscription = ? AND table_id = ? AND of_copy = ?",
            [subscription, table, of_copy],
        ).fetchall()
        return [row_from(*row) for row in rows]

    def write_refused(
        self, subscription: SubscriptionName, table: TableId, rows: Sequence[RefusedRow], *, of_copy: bool = False
    ) -> None:
        for row in rows:
            self._connection.execute(
                f"INSERT INTO {self._own}.refused_rows VALUES (?, ?, ?, ?, ?, ?)",
                [subscription, table, row.row, of_copy, row.state.value, body_of(row)],
            )

    def delete_refused(
        self,
        subscription: SubscriptionName | None,
        table: TableId,
        rows: Collection[str] | None = None,
        *,
        of_copy: bool = False,
    ) -> None:
        self._connection.execute(
            f"DELETE FROM {self._own}.refused_rows WHERE ($1 IS NULL OR subscription = $1) AND table_id = $2"
            " AND of_copy = $3 AND ($4 IS NULL OR list_contains(CAST($4 AS VARCHAR[]), row_id))",
            [subscription, table, of_copy, None if rows is None else list(rows)],
        )

    def take_refused_of_copy(self, subscription: SubscriptionName, table: TableId) -> None:
        self.delete_refused(subscription, table)
        self._connection.execute(
            f"UPDATE {self._own}.refused_rows SET of_copy = false WHERE subscription = ? AND table_id = ?",
            [subscription, table],
        )

    def now_us(self) -> int:
        return int(self._connection.execute("SELECT epoch_us(now())").fetchall()[0][0])

    def set_aside(self, subscription: SubscriptionName) -> dict[TableId, int]:
        if self._version is not None and self._version < 5:
            return {}
        rows = self._connection.execute(
            f"SELECT table_id, count(*) FROM {self._own}.refused_rows"
            " WHERE subscription = ? AND NOT of_copy AND state <> 'parked' GROUP BY table_id",
            [subscription],
        ).fetchall()
        return {TableId(row[0]): int(row[1]) for row in rows}

    def loads(self, subscription: SubscriptionName) -> dict[TableId, Loads]:
        if self._version is not None and self._version < 5:
            return {}
        columns = "table_id, partition, generation, reason, position, loaded_us, request"
        sql = f"SELECT {columns} FROM {self._own}.loads WHERE subscription = ?"
        return loads_of(self._connection.execute(sql, [subscription]).fetchall())

    def write_loads(self, subscription: SubscriptionName, table: TableId, loads: Loads) -> None:
        which = "subscription = $1 AND table_id = $2"
        which += "" if WHOLE in loads else " AND list_contains(CAST($3 AS VARCHAR[]), partition)"
        values: list[object] = [subscription, table, *([] if WHOLE in loads else [list(loads)])]
        self._connection.execute(f"DELETE FROM {self._own}.loads WHERE {which}", values)
        for partition, load in loads.items():
            self._connection.execute(
                f"INSERT INTO {self._own}.loads VALUES (?, ?, ?, ?, ?, ?, epoch_us(now()), ?)",
                [subscription, table, partition, load.generation, load.reason.value, str(load.position), load.request],
            )


def _values(subscription: SubscriptionName, position: Position) -> list[object]:
    return [*position.values(), subscription]


def _copy(row: tuple[Any, ...]) -> CopyRecord:
    table, schema = TableId(row[0]), from_text(row[3])
    return copy_from(row[4], table, TableName(row[1], row[2]), schema)


def _reservation(row: tuple[Any, ...]) -> TableReservation:
    schema = from_text(row[3]) if row[3] is not None else None
    target = TableName(row[1], row[2])
    return TableReservation(TableId(row[0]), target, schema, row[4], Lsn.parse(row[5]), row[6], row[7], row[8])
