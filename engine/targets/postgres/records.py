"""The progress record: schema `penstock` of the target database. Runs inside the transaction of its caller."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Epoch, SubscriptionName, TableId, TableName
from engine.model.partitions import WHOLE, Loads
from engine.model.position import Lsn
from engine.model.quarantine import RefusedRow
from engine.model.target import TableRead, TableRecord
from engine.postgres.sessions import PostgresConnection
from engine.targets.quarantined_rows import body_of, row_from
from engine.targets.structure_text import from_text, to_text
from engine.targets.target_metadata import (
    OWN_SCHEMA,
    CopyRecord,
    Member,
    OwnerTable,
    Position,
    TableReservation,
    copy_from,
    loads_of,
    member_from,
    member_row,
    standing_text,
)

LAYOUT = 6
"""Version of the tables below; raised when they change, or what their rows mean."""
READABLE = (1, 2, 3, 4, 5, 6)
"""Up to 1 every table is our own; up to 2 no copy can go on; up to 3 there are no shared tables, no row can stand
aside, and nobody counts loads; up to 4 the publications are not recorded; up to 5 the last transaction is not."""

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('penstock', 0))"
_SHARED = (
    f"CREATE TABLE IF NOT EXISTS {OWN_SCHEMA}.shared (target_schema text, target_name text, subscription text NOT NULL,"
    " table_id text NOT NULL, shared_schema text NOT NULL, shared_name text NOT NULL, source_column text NOT NULL,"
    " source_value text NOT NULL, structure text, PRIMARY KEY (target_schema, target_name))"
)
_REFUSED_DDL = (
    f"CREATE TABLE IF NOT EXISTS {OWN_SCHEMA}.refused_rows (subscription text, table_id text, row_id text, of_copy boolean,"
    " state text NOT NULL, body text NOT NULL, PRIMARY KEY (subscription, table_id, of_copy, row_id))"
)
_LOADS = (
    f"CREATE TABLE IF NOT EXISTS {OWN_SCHEMA}.loads (subscription text, table_id text, partition text, generation bigint NOT NULL,"
    " reason text NOT NULL, position text NOT NULL, loaded_us bigint NOT NULL, request text,"
    " PRIMARY KEY (subscription, table_id, partition))"
)
_DDL = (
    f"CREATE SCHEMA IF NOT EXISTS {OWN_SCHEMA}",
    f"CREATE TABLE {OWN_SCHEMA}.layout (version integer NOT NULL)",
    f"CREATE TABLE {OWN_SCHEMA}.progress (subscription text PRIMARY KEY, epoch bigint NOT NULL, batch bigint NOT NULL,"
    " position text NOT NULL, system_id text NOT NULL, timeline bigint NOT NULL, slot text NOT NULL,"
    " publications text NOT NULL DEFAULT '', last_commit text NOT NULL DEFAULT '') WITH (fillfactor = 10)",
    f"CREATE TABLE {OWN_SCHEMA}.tables (subscription text, table_id text, target_schema text NOT NULL,"
    " target_name text NOT NULL, structure text, ready boolean NOT NULL, applied text NOT NULL, parked text,"
    " removed boolean NOT NULL, mark text, generation bigint NOT NULL, existing text,"
    " PRIMARY KEY (subscription, table_id)) WITH (fillfactor = 50)",
    f"CREATE TABLE {OWN_SCHEMA}.copies (subscription text NOT NULL, table_id text PRIMARY KEY,"
    " target_schema text NOT NULL, hidden_name text NOT NULL, structure text NOT NULL, standing text)",
    _SHARED,
    _REFUSED_DDL,
    _LOADS,
)
_NO_SHARED = (
    "(SELECT '' AS subscription, '' AS table_id, '' AS shared_schema, '' AS shared_name, '' AS structure WHERE false)"
)
_MEMBER = "subscription, table_id, target_schema, target_name, shared_schema, shared_name, source_column, source_value, structure"
_TABLE = "table_id, target_schema, target_name, structure, ready, applied, parked, removed, mark"


class PostgresRecords:
    """Implements Records over one connection."""

    def __init__(self, connection: PostgresConnection, *, fence: bool = False) -> None:
        """`fence`: whoever looks at a subscription's position holds it until the transaction ends, and others wait, but for parts of
        a batch (see prepared.py)."""
        self._connection = connection
        self._lock = " FOR NO KEY UPDATE" if fence else ""
        self._version = LAYOUT
        self._known: dict[TableName, TableReservation | None] = {}

    def exist(self) -> bool:
        """Whether the database holds a record at all.

        Raises:
            EngineFault: TARGET_FOREIGN where a newer version wrote it, or the schema is not ours.
        """
        found = self._connection.execute(
            "SELECT to_regnamespace(%s) IS NOT NULL, to_regclass(%s) IS NOT NULL", [OWN_SCHEMA, f"{OWN_SCHEMA}.layout"]
        ).fetchall()[0]
        if not found[0]:
            return False
        if not found[1]:
            detail = "the database has a schema of this name that is not ours"
            raise EngineFault(FaultKind.TARGET_FOREIGN, OWN_SCHEMA, detail)
        self._version = self._connection.execute(f"SELECT max(version) FROM {OWN_SCHEMA}.layout").fetchall()[0][0]
        if self._version not in READABLE:
            detail = f"its progress record has layout {self._version}; this version of Penstock knows {LAYOUT}"
            raise EngineFault(FaultKind.TARGET_FOREIGN, OWN_SCHEMA, detail)
        return True

    def create(self) -> None:
        """Make the tables, or bring those of an older version to this one. One at a time over all connections."""
        self._connection.execute(_LOCK)
        if self.exist():
            if self._version != LAYOUT:
                if self._version < 2:
                    self._connection.execute(f"ALTER TABLE {OWN_SCHEMA}.tables ADD COLUMN existing text")
                self._connection.execute(f"ALTER TABLE {OWN_SCHEMA}.copies ADD COLUMN IF NOT EXISTS standing text")
                self._connection.execute(
                    f"ALTER TABLE {OWN_SCHEMA}.progress ADD COLUMN IF NOT EXISTS publications text NOT NULL DEFAULT ''"
                )
                self._connection.execute(
                    f"ALTER TABLE {OWN_SCHEMA}.progress ADD COLUMN IF NOT EXISTS last_commit text NOT NULL DEFAULT ''"
                )
                self._connection.execute(_SHARED)
                self._connection.execute(_REFUSED_DDL)
                self._connection.execute(_LOADS)
                self._connection.execute(f"UPDATE {OWN_SCHEMA}.layout SET version = %s", [LAYOUT])
                self._version = LAYOUT
            return
        for statement in _DDL:
            self._connection.execute(statement)
        self._connection.execute(f"INSERT INTO {OWN_SCHEMA}.layout VALUES (%s)", [LAYOUT])

    def position(self, subscription: SubscriptionName) -> Position | None:
        publications = "publications" if self._version > 4 else "''"
        last = "last_commit" if self._version > 5 else "''"
        row = self._connection.execute(
            f"SELECT epoch, batch, position, system_id, timeline, slot, {publications}, {last} FROM {OWN_SCHEMA}.progress"
            f" WHERE subscription = %s{self._lock}",
            [subscription],
        ).fetchone()
        return None if row is None else Position.recorded(row)

    def write_position(self, subscription: SubscriptionName, position: Position) -> None:
        self._connection.execute(
            f"INSERT INTO {OWN_SCHEMA}.progress AS p VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (subscription) DO UPDATE"
            " SET epoch = excluded.epoch, batch = excluded.batch, position = excluded.position,"
            " system_id = excluded.system_id, timeline = excluded.timeline, slot = excluded.slot,"
            " publications = excluded.publications, last_commit = excluded.last_commit",
            [subscription, *position.values()],
        )

    def forget(self, subscription: SubscriptionName) -> None:
        if self._version > 3:
            self._connection.execute(f"DELETE FROM {OWN_SCHEMA}.refused_rows WHERE subscription = %s", [subscription])
        self._connection.execute(f"DELETE FROM {OWN_SCHEMA}.progress WHERE subscription = %s", [subscription])
        if self._version > 3:
            self._connection.execute(f"DELETE FROM {OWN_SCHEMA}.loads WHERE subscription = %s", [subscription])
        self._connection.execute(
            f"UPDATE {OWN_SCHEMA}.tables SET removed = true, ready = false WHERE subscription = %s", [subscription]
        )
        if self._version > 3:
            self._connection.execute(
                f"DELETE FROM {OWN_SCHEMA}.shared WHERE subscription = %s AND structure IS NULL", [subscription]
            )

    def reservations(
        self, subscription: SubscriptionName | None, tables: Sequence[TableId] | None = None
    ) -> list[TableReservation]:
        rows = self._connection.execute(
            f"SELECT {self._columns} FROM {OWN_SCHEMA}.tables WHERE (%(s)s::text IS NULL OR subscription = %(s)s::text)"
            " AND (%(t)s::text[] IS NULL OR table_id = ANY (%(t)s::text[])) ORDER BY table_id",
            {"s": subscription, "t": None if tables is None else list(tables)},
        ).fetchall()
        found = [_reservation(row) for row in rows]
        self._known.update((reservation.target, reservation) for reservation in found)
        return found

    def existing(self, target: TableName) -> TableReservation | None:
        """The reservation of this name where the table was made by its owner, else None. Those read before are not read again."""
        if target not in self._known:
            row = self._connection.execute(
                f"SELECT {self._columns} FROM {OWN_SCHEMA}.tables WHERE target_schema = %s AND target_name = %s",
                [target.schema, target.name],
            ).fetchone()
            self._known[target] = _reservation(row) if row is not None else None
        found = self._known[target]
        return found if found is not None and found.existing is not None else None

    def drop_left(self, target: TableName) -> None:
        """Forget who left this table of its owner behind: whoever takes it next, it is the owner's."""
        self._connection.execute(
            f"DELETE FROM {OWN_SCHEMA}.tables WHERE target_schema = %s AND target_name = %s AND removed AND existing IS NOT NULL",
            [target.schema, target.name],
        )

    def delete_left(self, target: TableName) -> None:
        """Forget whoever left a table of this name behind, of any subscription."""
        self._connection.execute(
            f"DELETE FROM {OWN_SCHEMA}.tables WHERE target_schema = %s AND target_name = %s AND removed",
            [target.schema, target.name],
        )
        self._known.pop(target, None)

    def is_of_owner(self, table: TableId) -> bool:
        """Whether one of the reservations that were read says so of this table."""
        return any(r is not None and r.table == table and r.existing is not None for r in self._known.values())

    def write_existing(self, table: TableReservation, state: OwnerTable | None) -> None:
        """Note whose table stands under the name, and whether our rows are in it."""
        self._connection.execute(
            f"UPDATE {OWN_SCHEMA}.tables SET existing = %s WHERE target_schema = %s AND target_name = %s",
            [state and state.value, table.target.schema, table.target.name],
        )
        self._known[table.target] = replace(table, existing=state)

    @property
    def _columns(self) -> str:
        return f"{_TABLE}, {'existing' if self._version > 1 else 'NULL'}"

    def reserve(
        self,
        subscription: SubscriptionName,
        table: TableId,
        target: TableName,
        instead_of: Sequence[TableId],
        existing: OwnerTable | None = None,
    ) -> None:
        """Put a table's name in, without a structure, in place of its own row and those of `instead_of`."""
        self._connection.execute(
            f"DELETE FROM {OWN_SCHEMA}.tables WHERE subscription = %s AND table_id = ANY (%s)",
            [subscription, [table, *instead_of]],
        )
        self._connection.execute(
            f"INSERT INTO {OWN_SCHEMA}.tables VALUES (%s, %s, %s, %s, NULL, false, '0/0', NULL, false, NULL, 0, %s)",
            [subscription, table, target.schema, target.name, existing and existing.value],
        )
        self._known.pop(target, None)

    def write_table(self, subscription: SubscriptionName, record: TableRecord) -> None:
        self._connection.execute(
            f"INSERT INTO {OWN_SCHEMA}.tables VALUES (%s, %s, %s, %s, %s, %s, %s, %s, false, %s, 0)"
            " ON CONFLICT (subscription, table_id) DO UPDATE SET target_schema = excluded.target_schema,"
            " target_name = excluded.target_name, structure = excluded.structure, ready = excluded.ready,"
            " applied = excluded.applied, parked = excluded.parked, removed = false, mark = excluded.mark",
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
        self._connection.execute(
            f"UPDATE {OWN_SCHEMA}.tables SET applied = %s WHERE subscription = %s AND table_id = ANY (%s)",
            [str(end), subscription, list(tables)],
        )

    def write_marks(self, subscription: SubscriptionName, marks: Mapping[TableId, str | None]) -> None:
        for table, mark in marks.items():
            self._connection.execute(
                f"UPDATE {OWN_SCHEMA}.tables SET mark = %s WHERE subscription = %s AND table_id = %s",
                [mark, subscription, table],
            )

    def mark_removed(self, subscription: SubscriptionName, tables: Sequence[TableId]) -> None:
        self._connection.execute(
            f"UPDATE {OWN_SCHEMA}.tables SET removed = true, ready = false WHERE subscription = %s AND table_id = ANY (%s)",
            [subscription, list(tables)],
        )

    def delete_table(self, subscription: SubscriptionName, table: TableId) -> None:
        for own in ("tables", "loads"):
            self._connection.execute(
                f"DELETE FROM {OWN_SCHEMA}.{own} WHERE subscription = %s AND table_id = %s", [subscription, table]
            )

    def mark_unready(self, subscription: SubscriptionName, tables: Sequence[TableId] | None = None) -> None:
        self._connection.execute(
            f"UPDATE {OWN_SCHEMA}.tables SET ready = false, parked = NULL WHERE subscription = %s"
            " AND (%s::text[] IS NULL OR table_id = ANY (%s::text[]))",
            [subscription, *[None if tables is None else list(tables)] * 2],
        )

    def copies(self, subscription: SubscriptionName | None, table: TableId | None = None) -> list[CopyRecord]:
        rows = self._connection.execute(
            f"SELECT table_id, target_schema, hidden_name, structure, {'standing' if self._version > 2 else 'NULL'}"
            f" FROM {OWN_SCHEMA}.copies"
            " WHERE (%(s)s::text IS NULL OR subscription = %(s)s::text)"
            " AND (%(t)s::text IS NULL OR table_id = %(t)s::text) ORDER BY table_id",
            {"s": subscription, "t": table},
        ).fetchall()
        return [_copy(row) for row in rows]

    def copying(self, table: TableId) -> SubscriptionName | None:
        """Whose copy of the table is being loaded; None where there is none."""
        row = self._connection.execute(
            f"SELECT subscription FROM {OWN_SCHEMA}.copies WHERE table_id = %s", [table]
        ).fetchone()
        return None if row is None else SubscriptionName(row[0])

    def shared_epoch(self, subscription: SubscriptionName) -> Epoch | None:
        """The epoch on record. Batches are not held up, but a claim does not end before the transaction does (see prepared.py)."""
        row = self._connection.execute(
            f"SELECT epoch FROM {OWN_SCHEMA}.progress WHERE subscription = %s FOR KEY SHARE", [subscription]
        ).fetchone()
        return None if row is None else Epoch(row[0])

    def write_copy(self, subscription: SubscriptionName, copy: CopyRecord) -> None:
        self._connection.execute(
            f"INSERT INTO {OWN_SCHEMA}.copies VALUES (%s, %s, %s, %s, %s, %s)",
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
        self._connection.execute(
            f"UPDATE {OWN_SCHEMA}.copies SET structure = %s, standing = %s WHERE table_id = %s",
            [to_text(copy.schema), standing_text(copy), copy.table],
        )

    def delete_copy(self, table: TableId) -> None:
        self._connection.execute(f"DELETE FROM {OWN_SCHEMA}.copies WHERE table_id = %s", [table])

    def members(self, relation: TableName | None = None) -> list[Member]:
        if self._version < 4:
            return []
        where = "" if relation is None else " WHERE shared_schema = %s AND shared_name = %s"
        rows = self._connection.execute(
            f"SELECT {_MEMBER} FROM {OWN_SCHEMA}.shared{where} ORDER BY target_schema, target_name".encode(),
            [] if relation is None else [relation.schema, relation.name],
        ).fetchall()
        return [member_from(row) for row in rows]

    def member(self, place: TableName) -> Member | None:
        row = self._connection.execute(
            f"SELECT {_MEMBER} FROM {OWN_SCHEMA}.shared WHERE target_schema = %s AND target_name = %s",
            [place.schema, place.name],
        ).fetchone()
        return member_from(row) if row is not None else None

    def write_member(self, member: Member) -> None:
        self.delete_member(member.place)
        self._connection.execute(
            f"INSERT INTO {OWN_SCHEMA}.shared ({_MEMBER}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            member_row(member),
        )

    def delete_member(self, place: TableName) -> None:
        self._connection.execute(
            f"DELETE FROM {OWN_SCHEMA}.shared WHERE target_schema = %s AND target_name = %s",
            [place.schema, place.name],
        )

    def refused(self, subscription: SubscriptionName, table: TableId, *, of_copy: bool = False) -> list[RefusedRow]:
        rows = self._connection.execute(
            f"SELECT row_id, state, body FROM {OWN_SCHEMA}.refused_rows"
            " WHERE subscription = %s AND table_id = %s AND of_copy = %s",
            [subscription, table, of_copy],
        ).fetchall()
        return [row_from(*row) for row in rows]

    def write_refused(
        self, subscription: SubscriptionName, table: TableId, rows: Sequence[RefusedRow], *, of_copy: bool = False
    ) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {OWN_SCHEMA}.refused_rows VALUES (%s, %s, %s, %s, %s, %s)",
                [(subscription, table, row.row, of_copy, row.state.value, body_of(row)) for row in rows],
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
            f"DELETE FROM {OWN_SCHEMA}.refused_rows WHERE (%(s)s::text IS NULL OR subscription = %(s)s::text)"
            " AND table_id = %(t)s AND of_copy = %(c)s AND (%(r)s::text[] IS NULL OR row_id = ANY (%(r)s::text[]))",
            {"s": subscription, "t": table, "c": of_copy, "r": None if rows is None else list(rows)},
        )

    def take_refused_of_copy(self, subscription: SubscriptionName, table: TableId) -> None:
        self.delete_refused(subscription, table)
        self._connection.execute(
            f"UPDATE {OWN_SCHEMA}.refused_rows SET of_copy = false WHERE subscription = %s AND table_id = %s",
            [subscription, table],
        )

    def now_us(self) -> int:
        sql = "SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint"
        return int(self._connection.execute(sql).fetchall()[0][0])

    def set_aside(self, subscription: SubscriptionName) -> dict[TableId, int]:
        if self._version < 4:
            return {}
        rows = self._connection.execute(
            f"SELECT table_id, count(*) FROM {OWN_SCHEMA}.refused_rows"
            " WHERE subscription = %s AND NOT of_copy AND state <> 'parked' GROUP BY table_id",
            [subscription],
        ).fetchall()
        return {TableId(row[0]): int(row[1]) for row in rows}

    def loads(self, subscription: SubscriptionName) -> dict[TableId, Loads]:
        if self._version < 4:
            return {}
        rows = self._connection.execute(
            "SELECT table_id, partition, generation, reason, position, loaded_us, request"
            f" FROM {OWN_SCHEMA}.loads WHERE subscription = %s",
            [subscription],
        )
        return loads_of(rows.fetchall())

    def write_loads(self, subscription: SubscriptionName, table: TableId, loads: Loads) -> None:
        which = "subscription = %s AND table_id = %s" + ("" if WHOLE in loads else " AND partition = ANY (%s)")
        values = [subscription, table, *([] if WHOLE in loads else [list(loads)])]
        self._connection.execute(f"DELETE FROM {OWN_SCHEMA}.loads WHERE {which}", values)
        for partition, load in loads.items():
            self._connection.execute(
                f"INSERT INTO {OWN_SCHEMA}.loads VALUES (%s, %s, %s, %s, %s, %s,"
                " (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint, %s)",
                [subscription, table, partition, load.generation, load.reason.value, str(load.position), load.request],
            )

    def next_generation(self, target: TableName) -> None:
        """Note that a table's rows were replaced in a way that older snapshots do not see through."""
        self._connection.execute(
            f"UPDATE {OWN_SCHEMA}.tables SET generation = generation + 1 WHERE target_schema = %s AND target_name = %s",
            [target.schema, target.name],
        )

    def readable(self, subscription: SubscriptionName) -> list[TableName]:
        """What readers of the subscription may see: its tables, also left behind, and shared tables that show their rows.

        Some of it may not be there yet, or not any more.
        """
        shared = f"{OWN_SCHEMA}.shared" if self.exist() and self._version > 3 else _NO_SHARED
        sql = (
            f"SELECT target_schema, target_name FROM {OWN_SCHEMA}.tables WHERE subscription = %(s)s"
            f" UNION SELECT shared_schema, shared_name FROM {shared} AS x WHERE subscription = %(s)s AND structure IS NOT NULL"
        )
        return [TableName(*row) for row in self._connection.execute(sql, {"s": subscription}).fetchall()]

    def reads(self, relations: Collection[TableName]) -> list[TableRead]:
        """The tables among these relations, and those whose rows the shared tables among them show."""
        shared = f"{OWN_SCHEMA}.shared" if self.exist() and self._version > 3 else _NO_SHARED
        rows = self._connection.execute(
            "SELECT t.subscription, t.table_id, t.target_schema, t.target_name, t.ready AND t.parked IS NULL, t.removed,"
            f" s.shared_schema, s.shared_name FROM {OWN_SCHEMA}.tables t LEFT JOIN {shared} s"
            " ON s.subscription = t.subscription AND s.table_id = t.table_id AND s.structure IS NOT NULL"
            " WHERE t.target_name = ANY (%(n)s) OR s.shared_name = ANY (%(n)s)",
            {"n": [relation.name for relation in relations]},
        ).fetchall()
        wanted = set(relations)
        return [
            TableRead(SubscriptionName(row[0]), TableId(row[1]), TableName(*row[2:4]), row[4], row[5])
            for row in rows
            if not wanted.isdisjoint({TableName(*row[2:4]), TableName(*row[6:])})
        ]

    def generations(self) -> dict[TableName, int]:
        """Of every table, by its name on the target."""
        rows = self._connection.execute(f"SELECT target_schema, target_name, generation FROM {OWN_SCHEMA}.tables")
        return {TableName(schema, name): generation for schema, name, generation in rows.fetchall()}


def _copy(row: tuple[Any, ...]) -> CopyRecord:
    table, schema = TableId(row[0]), from_text(row[3])
    return copy_from(row[4], table, TableName(row[1], row[2]), schema)


def _reservation(row: tuple[Any, ...]) -> TableReservation:
    schema = from_text(row[3]) if row[3] is not None else None
    target = TableName(row[1], row[2])
    existing = OwnerTable(row[9]) if row[9] is not None else None
    return TableReservation(
        TableId(row[0]), target, schema, row[4], Lsn.parse(row[5]), row[6], row[7], row[8], existing
    )
