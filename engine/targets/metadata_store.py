"""The metadata tables in the schema `penstock` of a target. Differences between kinds of target are in their dialect or subclass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.model.change_data import CHANGES_SUFFIX, UNITS_TABLE
from engine.model.fault import EngineFault, FaultKind
from engine.model.history import HISTORY_SUFFIX
from engine.model.identity import Epoch, SubscriptionName, TableId, TableName
from engine.model.partitions import WHOLE, Loads
from engine.model.position import ZERO, Lsn
from engine.model.quarantine import RefusedRow
from engine.model.repair import Repair
from engine.model.target import TableRead, TableRecord, TargetProgress
from engine.targets.quarantined_rows import body_of, row_from
from engine.targets.structure_text import WITH_HISTORY, WITH_STAGING, from_text, to_text
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
    progress_of,
    standing_text,
)

EDITION = 5
"""Version of these tables and of the meaning of their rows. Each kind of target has its own numbering of layouts.

In edition 0 a subscription has one row in `progress`; from 1 on it may have more, of which the last by epoch and batch is valid, and
`tables` also records users' own tables.
"""
_STANDING, _SHARED, _PUBLICATIONS, _LAST_COMMIT = range(2, EDITION + 1)
"""The first editions with: resumable copies; shared tables, quarantined rows and counted loads; recorded publications; the last
transaction."""

COLUMNS: Mapping[str, str] = {
    "layout": "version integer NOT NULL",
    "progress": "subscription text NOT NULL, epoch bigint NOT NULL, batch bigint NOT NULL, position text NOT NULL,"
    " system_id text NOT NULL, timeline bigint NOT NULL, slot text NOT NULL, publications {added}, last_commit {added}",
    "tables": "subscription text NOT NULL, table_id text NOT NULL, target_schema text NOT NULL, target_name text NOT NULL,"
    " structure text, ready boolean NOT NULL, applied text NOT NULL, parked text, removed boolean NOT NULL, mark text",
    "copies": "subscription text NOT NULL, table_id text NOT NULL, target_schema text NOT NULL, hidden_name text NOT NULL,"
    " structure text NOT NULL, standing text",
    "shared": "subscription text NOT NULL, table_id text NOT NULL, target_schema text NOT NULL, target_name text NOT NULL,"
    " shared_schema text NOT NULL, shared_name text NOT NULL, source_column text NOT NULL, source_value text NOT NULL,"
    " structure text",
    "refused_rows": "subscription text NOT NULL, table_id text NOT NULL, row_id text NOT NULL, of_copy boolean NOT NULL,"
    " state text NOT NULL, body text NOT NULL",
    "loads": "subscription text NOT NULL, table_id text NOT NULL, partition text NOT NULL, generation bigint NOT NULL,"
    " reason text NOT NULL, position text NOT NULL, loaded_us bigint NOT NULL, request text",
}
"""Columns of all kinds of target. `{added}`: Dialect.added_text."""
_REPAIRED = (
    "subscription text NOT NULL, verification text NOT NULL, table_id text NOT NULL, target_schema text NOT NULL,"
    " target_name text NOT NULL, position text NOT NULL, repaired_us bigint NOT NULL, kind text NOT NULL, row_key text NOT NULL,"
    " row_before text, row_after text"
)
"""Columns of `repaired_rows`, which is created by the first repair and which nothing but repairs reads or writes."""
_UNITS = (
    'subscription text NOT NULL, position bigint NOT NULL, commit_time timestamptz, "transaction" bigint, gtid text,'
    " type text NOT NULL"
)
"""Columns of the table of transactions, which is created with the first CD table."""
_LATER = ("shared", "refused_rows", "loads")
"""Tables that layouts before `_SHARED` lack."""
_NO_SHARED = (
    "(SELECT '' AS subscription, '' AS table_id, '' AS shared_schema, '' AS shared_name, '' AS structure WHERE false)"
)
_PROGRESS = ("epoch", "batch", "position", "system_id", "timeline", "slot", "publications", "last_commit")
_TABLE = (
    *("table_id", "target_schema", "target_name", "structure"),
    *("ready", "applied", "parked", "removed", "mark"),
)
_MEMBER = (
    *("subscription", "table_id", "target_schema", "target_name"),
    *("shared_schema", "shared_name", "source_column", "source_value", "structure"),
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The SQL of one kind of target that the metadata store needs."""

    container: str
    """What contains the schema, for messages."""
    first_layout: int
    """The layout number of edition 0."""
    placeholder: str
    now: str
    """Microseconds since 1970 by the target's clock."""
    member_of: Callable[[str], str]
    """SQL: whether a column's text is in the list of a placeholder."""
    folded: Callable[[str], str]
    """Names with equal folded forms are the same name on the target."""
    folded_column: Callable[[str], str]
    """SQL: `folded` of a column."""
    added_text: str
    """Type and constraints of a text column, empty by default, that can be added to a table with rows."""
    tables: Mapping[str, str]
    """The rest of CREATE TABLE after the name: COLUMNS in parentheses, keys, storage options."""
    fence: str = ""
    """Suffix of the query for a subscription's position that makes other such queries wait until the transaction ends."""
    shared_fence: str = ""
    """The same without making them wait; only a claim must wait for the end of the transaction."""
    keyed: bool = False
    """Whether the tables have keys, so that an INSERT can replace a row."""
    owner_tables: bool = False
    """Whether `tables` has a column `existing`."""
    first_values: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """By table: additional columns of this kind of target with their values in a new row. A replaced row keeps its values."""


class Rows(Protocol):
    """Rows returned by a statement."""

    def fetchall(self) -> list[Any]: ...


class Session(Protocol):
    """A connection to the target, within the caller's transaction."""

    def execute(self, sql: str, values: Sequence[Any], /) -> Rows: ...


class MetadataStore(ABC):
    """Reads and writes the target's metadata within the caller's transaction."""

    dialect: Dialect

    def __init__(self, session: Session, own: str = OWN_SCHEMA, *, fence: bool = False) -> None:
        """`own`: the schema's name in SQL. `fence`: a transaction that reads a subscription's position locks it until its end; other
        such reads wait, except those of `shared_epoch`."""
        self._session = session
        self._own = own
        self._fence = self.dialect.fence if fence else ""
        self._edition = EDITION

    def exist(self) -> bool:
        """Whether the target contains metadata.

        Raises:
            EngineFault: TARGET_FOREIGN if a newer version wrote it, or the schema is not ours.
        """
        schema, layout = self._found()
        if not schema:
            return False
        if not layout:
            detail = f"the {self.dialect.container} has a schema of this name that is not ours"
            raise EngineFault(FaultKind.TARGET_FOREIGN, OWN_SCHEMA, detail)
        first, newest = self.dialect.first_layout, self.dialect.first_layout + EDITION
        version = self._execute(f"SELECT max(version) FROM {self._own}.layout").fetchall()[0][0]
        if version not in range(first, newest + 1):
            detail = f"its progress record has layout {version}; this version of Penstock knows {newest}"
            raise EngineFault(FaultKind.TARGET_FOREIGN, OWN_SCHEMA, detail)
        self._edition = version - first
        return True

    def create(self) -> None:
        """Create the tables, or migrate those of an older version."""
        layout = self.dialect.first_layout + EDITION
        if not self.exist():
            self._execute(f"CREATE SCHEMA IF NOT EXISTS {self._own}")
            self._make(self.dialect.tables)
            self._insert("layout", {"version": layout})
        elif self._edition != EDITION:
            self._migrate()
            self._update("layout", {"version": layout})
            self._edition = EDITION

    def position(self, subscription: SubscriptionName) -> Position | None:
        later = {"publications": _PUBLICATIONS, "last_commit": _LAST_COMMIT}
        columns = ", ".join(c if self._edition >= later.get(c, 0) else "''" for c in _PROGRESS)
        sql = f"SELECT {columns} FROM {self._own}.progress WHERE subscription = ?{self._fence}"
        rows = self._execute(sql, [subscription]).fetchall()
        return Position.recorded(max(rows, key=lambda row: (row[0], row[1]))) if rows else None

    def progress(self, subscription: SubscriptionName) -> TargetProgress | None:
        """The subscription's record; None if there is none."""
        position = self.position(subscription) if self.exist() else None
        if position is None:
            return None
        tables, copies = self.reservations(subscription), self.copies(subscription)
        return progress_of(position, tables, copies, self.set_aside(subscription), self.loads(subscription))

    def shared_epoch(self, subscription: SubscriptionName) -> Epoch | None:
        """The recorded epoch. Batches are not delayed, but a claim waits for the end of the transaction."""
        sql = f"SELECT epoch FROM {self._own}.progress WHERE subscription = ?{self.dialect.shared_fence}"
        return max((Epoch(row[0]) for row in self._execute(sql, [subscription]).fetchall()), default=None)

    def write_position(self, subscription: SubscriptionName, position: Position) -> None:
        """Insert or replace the subscription's record."""
        self._insert("progress", progress_row(subscription, position), instead=("subscription",))

    def forget(self, subscription: SubscriptionName) -> None:
        """Delete the subscription's record; its remaining tables stay recorded as its own."""
        self._delete("progress", subscription=subscription)
        self._update("tables", {"removed": True, "ready": False}, subscription=subscription)
        if self._edition >= _SHARED:
            self._delete("refused_rows", subscription=subscription)
            self._delete("loads", subscription=subscription)
            self._execute(
                f"DELETE FROM {self._own}.shared WHERE subscription = ? AND structure IS NULL", [subscription]
            )

    def reservations(
        self, subscription: SubscriptionName | None, tables: Collection[TableId] | None = None
    ) -> list[TableReservation]:
        """Of one subscription or all, of the given tables or all; including removed ones."""
        return self._reservations(*self._only({"subscription": subscription, "table_id": tables}))

    def same_table(self, one: TableName, other: TableName) -> bool:
        """Whether both names denote the same table on the target."""
        return self._folded(one) == self._folded(other)

    def reserve(
        self,
        subscription: SubscriptionName,
        table: TableId,
        target: TableName,
        instead_of: Sequence[TableId],
        existing: OwnerTable | None = None,
    ) -> None:
        """Reserve a table's name, without a schema, in place of its own record and those of `instead_of`."""
        self._delete("tables", subscription=subscription, table_id=[table, *instead_of])
        row = _table_row(subscription, TableReservation(table, target, None, False, ZERO, None, False, None))
        self._insert("tables", row if existing is None else {**row, "existing": existing.value})

    def write_table(self, subscription: SubscriptionName, record: TableRecord) -> None:
        """Insert or replace a table's record."""
        r = record
        reservation = TableReservation(r.table, r.target, r.schema, r.ready, r.applied, r.parked, False, r.mark)
        row = _table_row(subscription, reservation)
        self._insert("tables", row, instead=("subscription", "table_id"))

    def write_applied(self, subscription: SubscriptionName, tables: Sequence[TableId], end: Lsn) -> None:
        """Set the position up to which these tables' changes are applied."""
        self._update("tables", {"applied": str(end)}, subscription=subscription, table_id=tables)

    def write_marks(self, subscription: SubscriptionName, marks: Mapping[TableId, str | None]) -> None:
        for table, mark in marks.items():
            self._update("tables", {"mark": mark}, subscription=subscription, table_id=table)

    def mark_removed(self, subscription: SubscriptionName, tables: Sequence[TableId]) -> None:
        self._update("tables", {"removed": True, "ready": False}, subscription=subscription, table_id=tables)

    def mark_unready(self, subscription: SubscriptionName, tables: Sequence[TableId] | None = None) -> None:
        """Record that these tables' rows are not complete any more; None = all of the subscription."""
        self._update("tables", {"ready": False, "parked": None}, subscription=subscription, table_id=tables)

    def mark_parked(self, subscription: SubscriptionName, table: TableId, code: str) -> None:
        """Record that a table is parked with this fault code; its rows are as of its recorded position."""
        self._update("tables", {"parked": code}, subscription=subscription, table_id=[table])

    def delete_table(self, subscription: SubscriptionName, table: TableId) -> None:
        """Delete the record of a table that does not exist any more: a new table with its name is not ours."""
        for own in ("tables", "loads"):
            self._delete(own, subscription=subscription, table_id=table)

    def delete_left(self, target: TableName) -> None:
        """Delete all subscriptions' records of removed tables with this name."""
        where, values = self._named("target", target)
        self._execute(f"DELETE FROM {self._own}.tables WHERE removed AND {where}", values)

    def copies(self, subscription: SubscriptionName | None, table: TableId | None = None) -> list[CopyRecord]:
        standing = "standing" if self._edition >= _STANDING else "NULL"
        columns = f"table_id, target_schema, hidden_name, structure, {standing}"
        rows = self._select("copies", columns, "table_id", subscription=subscription, table_id=table)
        return [copy_from(row[4], TableId(row[0]), TableName(row[1], row[2]), from_text(row[3])) for row in rows]

    def copying(self, table: TableId) -> SubscriptionName | None:
        """The subscription whose copy of the table is being loaded; None if there is none."""
        rows = self._select("copies", "subscription", table_id=table)
        return SubscriptionName(rows[0][0]) if rows else None

    def write_copy(self, subscription: SubscriptionName, copy: CopyRecord) -> None:
        row = {
            "subscription": subscription,
            "table_id": copy.table,
            "target_schema": copy.place.schema,
            "hidden_name": copy.place.name,
            "structure": to_text(copy.schema),
            "standing": standing_text(copy),
        }
        self._insert("copies", row)

    def amend_copy(self, copy: CopyRecord) -> None:
        """Replace the record of a copy: its schema and progress."""
        row = {"structure": to_text(copy.schema), "standing": standing_text(copy)}
        self._update("copies", row, table_id=copy.table)

    def delete_copy(self, table: TableId) -> None:
        self._delete("copies", table_id=table)

    def loads(self, subscription: SubscriptionName) -> dict[TableId, Loads]:
        if self._edition < _SHARED:
            return {}
        columns = "table_id, partition, generation, reason, position, loaded_us, request"
        return loads_of(self._select("loads", columns, subscription=subscription))

    def write_loads(self, subscription: SubscriptionName, table: TableId, loads: Loads) -> None:
        """Insert or replace these loads of a table, made now; `WHOLE` replaces all others."""
        partitions = None if WHOLE in loads else list(loads)
        self._delete("loads", subscription=subscription, table_id=table, partition=partitions)
        sql = (
            f"INSERT INTO {self._own}.loads"
            " (subscription, table_id, partition, generation, reason, position, request, loaded_us)"
            f" VALUES (?, ?, ?, ?, ?, ?, ?, {self.dialect.now})"
        )
        for partition, load in loads.items():
            row = [partition, load.generation, load.reason.value, str(load.position), load.request]
            self._execute(sql, [subscription, table, *row])

    def members(self, relation: TableName | None = None) -> list[Member]:
        """The members of one shared table or of all, by their names on the target."""
        if self._edition < _SHARED:
            return []
        return self._members(*(("true", []) if relation is None else self._named("shared", relation)))

    def member(self, place: TableName) -> Member | None:
        """The member with this name on the target."""
        return next(iter(self._members(*self._named("target", place))), None)

    def write_member(self, member: Member) -> None:
        """Insert or replace the member with this name on the target."""
        self.delete_member(member.place)
        self._insert("shared", dict(zip(_MEMBER, member_row(member), strict=True)))

    def delete_member(self, place: TableName) -> None:
        where, values = self._named("target", place)
        self._execute(f"DELETE FROM {self._own}.shared WHERE {where}", values)

    def refused(self, subscription: SubscriptionName, table: TableId, *, of_copy: bool = False) -> list[RefusedRow]:
        """The stored rejected rows of a table, or of its copy; unordered."""
        columns = "row_id, state, body"
        rows = self._select("refused_rows", columns, subscription=subscription, table_id=table, of_copy=of_copy)
        return [row_from(*row) for row in rows]

    def write_refused(
        self, subscription: SubscriptionName, table: TableId, rows: Sequence[RefusedRow], *, of_copy: bool = False
    ) -> None:
        self._execute_each(
            f"INSERT INTO {self._own}.refused_rows (subscription, table_id, row_id, of_copy, state, body)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            [[subscription, table, row.row, of_copy, row.state.value, body_of(row)] for row in rows],
        )

    def delete_refused(
        self,
        subscription: SubscriptionName | None,
        table: TableId,
        rows: Collection[str] | None = None,
        *,
        of_copy: bool = False,
    ) -> None:
        """Delete these rejected rows; None = all."""
        self._delete("refused_rows", subscription=subscription, table_id=table, of_copy=of_copy, row_id=rows)

    def take_refused_of_copy(self, subscription: SubscriptionName, table: TableId) -> None:
        """Turn the copy's rejected rows into the table's, in place of the previous ones."""
        self.delete_refused(subscription, table)
        self._update("refused_rows", {"of_copy": False}, subscription=subscription, table_id=table)

    def keep_repaired(
        self, repair: Repair, place: TableReservation, rows: Sequence[tuple[str, str, str | None, str | None]]
    ) -> None:
        """Add repaired rows of a table: kind, key, and values before and after as JSON."""
        of_all = [repair.subscription, repair.verification, place.table, place.target.schema, place.target.name]
        of_all.append(str(repair.position))
        given = ", ".join([*("CAST(? AS text)" for _ in of_all), self.dialect.now])
        of_each = ", ".join("unnest(CAST(? AS text[]))" for _ in range(4))
        sql = f"INSERT INTO {self._own}.repaired_rows SELECT {given}, {of_each}"
        if rows:
            self._execute(sql, [*of_all, *(list(values) for values in zip(*rows, strict=True))])

    def begin_repair(self) -> None:
        """Make sure that `repaired_rows` exists."""
        self._execute(f"CREATE TABLE IF NOT EXISTS {self._own}.repaired_rows ({_REPAIRED})")

    @property
    def units_place(self) -> str:
        """The full quoted name of the table of transactions."""
        return f"{self._own}.{UNITS_TABLE}"

    def create_units(self) -> None:
        """Make sure that the table of transactions exists. Nothing reads it here."""
        self._execute(f"CREATE TABLE IF NOT EXISTS {self.units_place} ({_UNITS})")

    def delete_units(self, subscription: SubscriptionName) -> None:
        """Delete the subscription's transactions."""
        self._execute(f"DELETE FROM {self.units_place} WHERE subscription = ?", [subscription])

    def end_repair(self, subscription: SubscriptionName, most: int) -> None:
        """Delete the rows of older repairs beyond the subscription's last `most` ones."""
        of_it = f"{self._own}.repaired_rows WHERE subscription = ?"
        oldest = f"SELECT repaired_us FROM {of_it} ORDER BY repaired_us DESC LIMIT 1 OFFSET {most}"
        self._execute(f"DELETE FROM {of_it} AND repaired_us < ({oldest})", [subscription, subscription])

    def set_aside(self, subscription: SubscriptionName) -> dict[TableId, int]:
        """Number of quarantined rows by table, for tables that have some."""
        if self._edition < _SHARED:
            return {}
        sql = (
            f"SELECT table_id, count(*) FROM {self._own}.refused_rows"
            " WHERE subscription = ? AND NOT of_copy AND state <> 'parked' GROUP BY table_id"
        )
        return {TableId(row[0]): int(row[1]) for row in self._execute(sql, [subscription]).fetchall()}

    def now_us(self) -> int:
        """The target's clock: microseconds since 1970."""
        return int(self._execute(f"SELECT {self.dialect.now}").fetchall()[0][0])

    def readable(self, subscription: SubscriptionName) -> list[TableName]:
        """The relations that readers of the subscription may see: its tables, including removed ones, their history and CD tables, and
        shared tables that show their rows.

        Some of them may not exist yet, or not any more.
        """
        sql = (
            f"SELECT target_schema, target_name FROM {self._own}.tables WHERE subscription = ?"
            f" UNION SELECT t.target_schema, {_history_of('t')} FROM {self._own}.tables AS t"
            f" WHERE subscription = ? AND {_history_of('t')} IS NOT NULL"
            f" UNION SELECT t.target_schema, {_changes_of('t')} FROM {self._own}.tables AS t"
            f" WHERE subscription = ? AND {_changes_of('t')} IS NOT NULL"
            f" UNION SELECT shared_schema, shared_name FROM {self._shared} AS s"
            " WHERE subscription = ? AND structure IS NOT NULL ORDER BY 1, 2"
        )
        return [TableName(*row) for row in self._execute(sql, [subscription] * 4).fetchall()]

    def reads(self, relations: Collection[TableName]) -> list[TableRead]:
        """The tables among these relations, those whose history or CD tables are among them, and those whose rows the shared tables among
        them show."""
        columns = ("t.target_name", "s.shared_name", _history_of("t"), _changes_of("t"))
        named = [self.dialect.member_of(self.dialect.folded_column(column)) for column in columns]
        kept = f"coalesce({_history_of('t')}, ''), coalesce({_changes_of('t')}, '')"
        sql = (
            "SELECT t.subscription, t.table_id, t.target_schema, t.target_name, t.ready AND t.parked IS NULL, t.removed,"
            f" coalesce(s.shared_schema, ''), coalesce(s.shared_name, ''), t.target_schema, {kept}"
            f" FROM {self._own}.tables AS t LEFT JOIN {self._shared} AS s"
            " ON s.subscription = t.subscription AND s.table_id = t.table_id AND s.structure IS NOT NULL"
            f" WHERE {' OR '.join(named)}"
        )
        names = [self.dialect.folded(relation.name) for relation in relations]
        wanted = {self._folded(relation) for relation in relations}
        return [
            TableRead(SubscriptionName(row[0]), TableId(row[1]), TableName(*row[2:4]), row[4], row[5])
            for row in self._execute(sql, [names] * 4).fetchall()
            if not wanted.isdisjoint(
                map(self._folded, (TableName(row[at], row[name]) for at, name in ((2, 3), (6, 7), (8, 9), (8, 10))))
            )
        ]

    @abstractmethod
    def _found(self) -> tuple[bool, bool]:
        """Whether the schema exists, with content if the target creates schemas implicitly, and whether `layout` exists."""

    def _migrate(self) -> None:
        """Migrate the tables of an older edition, without increasing the recorded number."""
        text = self.dialect.added_text
        for table, column in (
            ("copies", "standing text"),
            ("progress", f"publications {text}"),
            ("progress", f"last_commit {text}"),
        ):
            self._execute(f"ALTER TABLE {self._own}.{table} ADD COLUMN IF NOT EXISTS {column}")
        self._make(_LATER)

    def _make(self, tables: Iterable[str]) -> None:
        for table in tables:
            body = self.dialect.tables[table].format(added=self.dialect.added_text)
            self._execute(f"CREATE TABLE IF NOT EXISTS {self._own}.{table} {body}")

    @property
    def _shared(self) -> str:
        return f"{self._own}.shared" if self._edition >= _SHARED else _NO_SHARED

    def _reservations(self, where: str, values: Sequence[object]) -> list[TableReservation]:
        existing = "existing" if self.dialect.owner_tables and self._edition else "NULL"
        sql = f"SELECT {', '.join(_TABLE)}, {existing} FROM {self._own}.tables WHERE {where} ORDER BY table_id"
        return [_reservation(row) for row in self._execute(sql, values).fetchall()]

    def _members(self, where: str, values: Sequence[object]) -> list[Member]:
        sql = f"SELECT {', '.join(_MEMBER)} FROM {self._own}.shared WHERE {where} ORDER BY target_schema, target_name"
        return [member_from(row) for row in self._execute(sql, values).fetchall()]

    def _folded(self, name: TableName) -> TableName:
        return TableName(self.dialect.folded(name.schema), self.dialect.folded(name.name))

    def _named(self, prefix: str, name: TableName) -> tuple[str, list[object]]:
        """The condition that a row is about this table, in the target's comparison of names; columns `prefix`_schema and
        `prefix`_name."""
        fold, wanted = self.dialect.folded_column, self._folded(name)
        return f"{fold(prefix + '_schema')} = ? AND {fold(prefix + '_name')} = ?", [wanted.schema, wanted.name]

    def _only(self, wanted: Mapping[str, object]) -> tuple[str, list[object]]:
        """The condition that columns have these values, or one of these; None: any value.

        Conditions that are not needed are omitted, since planning them would slow down every batch.
        """
        terms, values = [], list[object]()
        for column, value in wanted.items():
            if isinstance(value, str | bool):
                terms.append(f"{column} = ?")
                values.append(value)
            elif isinstance(value, Collection):
                terms.append(self.dialect.member_of(column))
                values.append(list(value))
        return " AND ".join(terms) or "true", values

    def _select(self, table: str, columns: str, order: str | None = None, **wanted: object) -> list[Any]:
        where, values = self._only(wanted)
        by = "" if order is None else f" ORDER BY {order}"
        return self._execute(f"SELECT {columns} FROM {self._own}.{table} WHERE {where}{by}", values).fetchall()

    def _insert(self, table: str, row: Mapping[str, object], *, instead: Sequence[str] = ()) -> None:
        """Insert a row; with `instead`, in place of the one with the same values in these columns."""
        conflict = ""
        if instead and self.dialect.keyed:
            updates = ", ".join(f"{column} = excluded.{column}" for column in row if column not in instead)
            conflict = f" ON CONFLICT ({', '.join(instead)}) DO UPDATE SET {updates}"
        elif instead:
            self._delete(table, **{column: row[column] for column in instead})
        new = {**row, **self.dialect.first_values.get(table, {})}
        places = ", ".join("?" for _ in new)
        sql = f"INSERT INTO {self._own}.{table} ({', '.join(new)}) VALUES ({places}){conflict}"
        self._execute(sql, list(new.values()))

    def _update(self, table: str, row: Mapping[str, object], **wanted: object) -> Rows:
        where, values = self._only(wanted)
        assignments = ", ".join(f"{column} = ?" for column in row)
        return self._execute(f"UPDATE {self._own}.{table} SET {assignments} WHERE {where}", [*row.values(), *values])

    def _delete(self, table: str, **wanted: object) -> None:
        where, values = self._only(wanted)
        self._execute(f"DELETE FROM {self._own}.{table} WHERE {where}", values)

    def _execute(self, sql: str, values: Sequence[object] = ()) -> Rows:
        return self._session.execute(sql.replace("?", self.dialect.placeholder), values)

    def _execute_each(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        for row in rows:
            self._execute(sql, row)


def progress_row(subscription: SubscriptionName, position: Position) -> dict[str, object]:
    """A subscription's row of `progress`."""
    return {"subscription": subscription, **dict(zip(_PROGRESS, position.values(), strict=True))}


def _history_of(alias: str) -> str:
    """SQL: the name of a table's history table, from its row of `tables`; NULL if it has none."""
    kept = f"strpos({alias}.structure, '{WITH_HISTORY}') > 0"
    return f"CASE WHEN {kept} THEN {alias}.target_name || '{HISTORY_SUFFIX}' END"


def _changes_of(alias: str) -> str:
    """SQL: the name of a table's CD table, from its row of `tables`; NULL if it has none."""
    kept = f"strpos({alias}.structure, '{WITH_STAGING}') > 0"
    return f"CASE WHEN {kept} THEN {alias}.target_name || '{CHANGES_SUFFIX}' END"


def _table_row(subscription: SubscriptionName, one: TableReservation) -> dict[str, object]:
    """The values that `_reservation` reads, except `existing`."""
    structure = to_text(one.schema) if one.schema is not None else None
    state = [one.ready, str(one.applied), one.parked, one.removed, one.mark]
    values = [one.table, one.target.schema, one.target.name, structure, *state]
    return {"subscription": subscription, **dict(zip(_TABLE, values, strict=True))}


def _reservation(row: tuple[Any, ...]) -> TableReservation:
    schema = from_text(row[3]) if row[3] is not None else None
    existing = OwnerTable(row[9]) if row[9] is not None else None
    target = TableName(row[1], row[2])
    return TableReservation(
        TableId(row[0]), target, schema, row[4], Lsn.parse(row[5]), row[6], row[7], row[8], existing
    )
