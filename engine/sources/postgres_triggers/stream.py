"""The shadow log as a stream of records: one window after another, its transactions in their order."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import LiteralString

import numpy as np
import psycopg
from psycopg import sql

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.positions.windows import end_of, places_in
from engine.model.row_filter import UnfitFilterError, columns_of
from engine.model.source import RecordChunk
from engine.platform.compiled import Array
from engine.postgres.sessions import PostgresConnection
from engine.records.landing import (
    Changes,
    CopyLines,
    TableRows,
    Transactions,
    chunk_of,
    partial_changes,
    records_of,
    rows_of,
)
from engine.records.window_stream import MOST_BYTES, MOST_ROWS, PRUNED_AT_ONCE, RestedLook, WindowStream, begin_at
from engine.sources.postgres.connect import SOURCE, Connector
from engine.sources.postgres.copy_out import COPY_KINDS, copy_out
from engine.sources.postgres_triggers.change_triggers import BY_APPLICATION
from engine.sources.postgres_triggers.json_rows import FIELDS, JsonForm, PrintedRows, printed_rows
from engine.sources.postgres_triggers.objects import PARTIAL, SHADOW_LOG_GONE, WINDOW_CHANNEL, is_installed
from engine.sources.postgres_triggers.structures import Structure, Structures, unreadable
from engine.sources.postgres_triggers.terms import POSTGRES_TRIGGERS_TERMS
from engine.sources.postgres_triggers.tickets import NO_TABLE, markers_in
from engine.sources.postgres_triggers.windows import Pruned, Windows, close_if_unread, next_windows, numbered, prune

_TRANSACTIONS_AT_ONCE = 10_000
"""Transactions that the cursor over the windows brings as one row; some tens of bytes each. Not measured."""
_STATEMENT_TIMEOUT_MS = 21_600_000
"""Limit of a statement (6 hours): the first windows after a long pause may hold very many changes. Not measured."""
_NAME_BREAK = "\x01"
READER_LOCK = "hashtextextended('penstock reader ' || %s::text, 0)"
"""Key of the advisory lock that the session of a reader's stream holds."""

_INSIDE = """
(c.xid >= pg_snapshot_xmax({before}) OR c.xid = ANY(ARRAY(SELECT pg_snapshot_xip({before}))))
AND c.xid < pg_snapshot_xmax({this}) AND pg_visible_in_snapshot(c.xid, {this})
"""
_TRANSACTIONS = (
    """
SELECT string_agg(concat_ws(E'\\t', number, rows, size, time_us, no), E'\\n' ORDER BY place) || E'\\n' FROM (
    SELECT t.*, w.no, row_number() OVER (ORDER BY w.no, t.greatest) - 1 AS place
    FROM (SELECT c.xid::text::bigint AS number, count(*) FILTER (WHERE c.relation = ANY({followed}::oid[])) AS rows,
                 coalesce(sum(coalesce(pg_column_size(c.old), 0) + coalesce(pg_column_size(c.new), 0)), 0)::bigint AS size,
                 greatest(0, extract(epoch FROM max(c.at)) * 1000000)::bigint AS time_us, max(c.no) AS greatest, c.xid
          FROM penstock.changes c WHERE """
    + _INSIDE
    + """ GROUP BY c.xid) AS t
    CROSS JOIN LATERAL ({window}) AS w) AS numbered
GROUP BY place / {at_once} ORDER BY place / {at_once}
"""
)
"""Each transaction with its changes of followed tables, and the window in which it became visible; many as lines of one text."""
_ONLY_WINDOW = "SELECT {last}::bigint AS no"
_FIRST_WINDOW = """
SELECT min(w.no) AS no FROM penstock.windows w
WHERE w.no > {after} AND w.no <= {last} AND pg_visible_in_snapshot(t.xid, w.snapshot)
"""
_JSON_ROWS = """
SELECT c.no, c.xid, c.relation, c.op, c.old, c.new FROM penstock.changes c
WHERE c.relation = ANY({relations}::oid[]) AND (c.op IN ('I', 'T') OR c.relation <> ALL({inserts_only}::oid[])) AND {page}
"""
_PRESENT = (
    "SELECT DISTINCT c.relation::bigint FROM penstock.changes c WHERE c.relation = ANY({relations}::oid[]) AND {page}"
)
_FOLLOWED = "SELECT relation::bigint, inserts_only, row_filter, triggers FROM penstock.followed WHERE reader = %s"
_BORDER = "SELECT max(no) FROM (SELECT no FROM penstock.changes WHERE xid = %s::text::xid8 AND no > %s ORDER BY no LIMIT %s) AS part"
_NAMES = "array_to_string(ARRAY(SELECT json_object_keys(coalesce(c.new, c.old))), chr(1))"
_LACKS_TEXT = "c.op <> 'T' AND c.new_row IS NULL AND c.old_row IS NULL"
"""Also true for _IS_PARTIAL."""
_IS_PARTIAL = f"(c.op = '{PARTIAL}')"
_UNCONVERTIBLE = {**COPY_KINDS, "22": FaultKind.TABLE_STRUCTURE_CHANGED, "23": FaultKind.TABLE_STRUCTURE_CHANGED}
"""A recorded value is none of the column's type or domain any more: its labels or its checks were changed."""
_KINDS_OF_ROWS = (
    "SELECT CASE WHEN c.op = 'T' THEN NULL ELSE "
    + _NAMES
    + f" END, bool_and(coalesce(c.new_row, c.old_row) IS NOT NULL), c.op = '{PARTIAL}' FROM penstock.changes c"
    " WHERE {rows} GROUP BY 1, 3 ORDER BY min(c.no)"
)
_RECORDS = """
FROM penstock.changes c CROSS JOIN LATERAL (
    SELECT CASE WHEN c.old_row IS NULL THEN json_populate_record(NULL::{table}, c.old) ELSE c.old_row::{table} END AS o,
           CASE WHEN c.new_row IS NULL THEN json_populate_record(NULL::{table}, c.new) ELSE c.new_row::{table} END AS n OFFSET 0) AS v
"""
_ROWS = "SELECT c.no, c.xid, c.op{columns} " + _RECORDS + "WHERE {rows}"
_FILTERED_ROWS = (
    "SELECT c.no, c.xid, CASE WHEN c.op <> 'U' OR f.o AND f.n THEN c.op WHEN f.n THEN 'I' ELSE 'D' END{columns} "
    + _RECORDS
    + """CROSS JOIN LATERAL (
    SELECT c.op IN ('U', 'D') AND coalesce((SELECT ({condition}) FROM (SELECT {old}) AS r), false) AS o,
           c.op IN ('I', 'U') AND coalesce((SELECT ({condition}) FROM (SELECT {new}) AS r), false) AS n OFFSET 0) AS f
WHERE {rows} AND (c.op = 'T' OR f.o OR f.n)"""
)
"""As publications do: an update of a row that begins to meet the row filter is an insert, of one that ends to meet it a delete."""
_PARTIAL_ROWS = """
SELECT c.no, c.xid{columns}{how} FROM penstock.changes c CROSS JOIN LATERAL (
    SELECT json_populate_record(NULL::{table}, (
        SELECT json_object_agg(e.key, CASE WHEN json_typeof(e.value) = 'array' THEN e.value -> 0 ELSE e.value END)
        FROM json_each(c.new) AS e)) AS n OFFSET 0) AS v
WHERE {rows}
"""
_HOW_RECORDED = ", CASE WHEN (c.new -> {name})::text = '[]' THEN 'u' WHEN json_typeof(c.new -> {name}) = 'array' THEN 'k' ELSE 'v' END"
_CONFIRM = "UPDATE penstock.readers SET durable = %s, at = clock_timestamp() WHERE name = %s AND durable < %s RETURNING durable"


@dataclass(frozen=True, slots=True)
class _Listed:
    """Transactions before their rows are read: int64 by fields. `rows`: of followed tables; `sizes`: in bytes."""

    facts: Array

    @property
    def rows(self) -> Array:
        found: Array = self.facts[1]
        return found

    @property
    def sizes(self) -> Array:
        found: Array = self.facts[2]
        return found

    @property
    def transactions(self) -> Transactions:
        return Transactions(self.facts[0], self.facts[4].astype(np.uint64), self.facts[3])

    def part(self, begin: int, end: int | None = None) -> _Listed:
        return _Listed(self.facts[:, begin:end])

    def followed_by(self, more: _Listed) -> _Listed:
        return _Listed(np.concatenate([self.facts, more.facts], axis=1))

    def page(self) -> int:
        """How many of the first ones are read at once."""
        fits = (np.cumsum(self.rows) <= MOST_ROWS) & (np.cumsum(self.sizes) <= MOST_BYTES)
        return max(1, int(np.count_nonzero(fits)))

    @property
    def is_large(self) -> bool:
        """Whether it is one transaction that is read in parts."""
        return len(self.rows) == 1 and bool(self.rows[0] > MOST_ROWS or self.sizes[0] > 2 * MOST_BYTES)


@dataclass(frozen=True, slots=True)
class _Page:
    """Changes that are read at once: those of some transactions, or a part of one, by change number."""

    transactions: Transactions
    after: int | None = None
    upto: int | None = None
    begins: bool = True
    ends: bool = True


class TriggerWindows:
    """`WindowLog` of PostgreSQL. `before`: the snapshot of the last window that was read, as text."""

    def __init__(self, connector: Connector, connection: PostgresConnection, reader: str, before: str) -> None:
        self._connector = connector
        self._connection = connection
        self._reader = reader
        self._before = before
        self._structures = Structures(connection)
        self._inexact: set[int] = set()
        """Tables whose rows JSON does not hold exactly."""
        self._announced: dict[int, bytes] = {}
        self._inserts_only: set[int] = set()
        self._filters: dict[int, str] = {}
        """Row filters by table."""
        self._by_application: set[int] = set()
        self._pruned = Pruned()
        self._close_if_unread = RestedLook(lambda: close_if_unread(connection, self._before))
        connection.execute(f"LISTEN {WINDOW_CHANNEL}")
        # The shadow log grows from nothing and shrinks again: by its statistics, the planner would read all of it for a part.
        connection.execute("SET enable_seqscan = off")

    @contextlib.contextmanager
    def faults(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise SOURCE.fault(error, self._reader, SHADOW_LOG_GONE) from error

    def next_windows(self, after: int) -> Windows | None:
        return next_windows(self._connection, after, self._before)

    def close_if_unread(self) -> bool:
        return self._close_if_unread()

    def wait(self, seconds: float, wake: int | None) -> bool:
        readers = [self._connection.fileno(), *([] if wake is None else [wake])]
        readable, _, _ = select.select(readers, [], [], seconds)
        if self._connection.fileno() in readable:
            for _ in self._connection.notifies(timeout=0, stop_after=1_000):
                pass
        return wake not in readable if wake is not None else True

    def confirm(self, window: int) -> bool:
        self._connection.execute(_CONFIRM, [window, self._reader, window])
        self._pruned = prune(self._connection, PRUNED_AT_ONCE, self._pruned)
        return True

    def close(self) -> None:
        self._connection.close()

    def chunks(self, windows: Windows) -> Iterator[RecordChunk]:
        rows = self._connection.execute(_FOLLOWED, [self._reader]).fetchall()
        followed = {NO_TABLE, *(oid for oid, *_ in rows)}
        self._inserts_only = {oid for oid, inserts_only, *_ in rows if inserts_only}
        self._filters = {oid: row_filter for oid, _, row_filter, _ in rows if row_filter is not None}
        self._by_application = {oid for oid, *_, triggers in rows if triggers == BY_APPLICATION}
        reached = end_of(windows.after)
        for page in self._pages_of(windows, followed):
            chunk = self._read_page(page, followed, windows, reached)
            reached = chunk.wal_end
            yield chunk
        self._before = windows.snapshot

    def _pages_of(self, windows: Windows, followed: set[int]) -> Iterator[_Page]:
        held = _Listed(np.empty((5, 0), np.int64))
        for listed in self._transactions(windows, followed):
            held = held.followed_by(_Listed(listed.facts[:, listed.rows > 0]))
            while (end := held.page()) < len(held.rows):
                yield from self._page_of(held.part(0, end))
                held = held.part(end)
        if len(held.rows):
            yield from self._page_of(held)

    def _page_of(self, listed: _Listed) -> Iterator[_Page]:
        if listed.is_large:
            yield from self._parts_of(listed)
        else:
            yield _Page(listed.transactions)

    def _transactions(self, windows: Windows, followed: set[int]) -> Iterator[_Listed]:
        """The transactions in their order, numbered in each window whatever tables this reader follows.

        No transaction stays open meanwhile, which would hold back VACUUM: the server keeps the cursor's rows, and rows of closed windows do
        not change until the reader has confirmed them.
        """
        after, last = sql.Literal(windows.after), sql.Literal(windows.last)
        window = _ONLY_WINDOW if windows.last == windows.after + 1 else _FIRST_WINDOW
        inside = sql.SQL(_TRANSACTIONS).format(
            before=_snapshot(windows.before),
            this=_snapshot(windows.snapshot),
            followed=_numbers(followed),
            window=sql.SQL(window).format(after=after, last=last),
            at_once=sql.Literal(_TRANSACTIONS_AT_ONCE),
        )
        number, before = 0, windows.after
        with self._connection.cursor(name="penstock_windows", withhold=True) as cursor:
            cursor.itersize = 1
            cursor.execute(inside)
            for (text,) in cursor:
                facts = CopyLines.of(text.encode(), 5).numbers(5)
                windows_of = facts[4]
                numbers = numbered(windows_of, before, number)
                before, number = int(windows_of[-1]), int(numbers[-1])
                facts[4] = places_in(windows_of, numbers)
                yield _Listed(facts)

    def _parts_of(self, one: _Listed) -> Iterator[_Page]:
        """A large transaction in parts of change numbers."""
        xid, rows, size = (int(fact) for fact in one.facts[:3, 0])
        most = max(1, min(MOST_ROWS, MOST_BYTES * rows // max(1, size)))
        after = 0
        upto = self._border(xid, after, most)
        while upto is not None:
            following = self._border(xid, upto, most)
            yield _Page(one.transactions, after, upto, begins=after == 0, ends=following is None)
            after, upto = upto, following

    def _border(self, xid: int, after: int, rows: int) -> int | None:
        found = self._connection.execute(_BORDER, [str(xid), after, rows]).fetchall()[0][0]
        return None if found is None else int(found)

    def _read_page(self, page: _Page, followed: set[int], windows: Windows, reached: Lsn) -> RecordChunk:
        converted = followed & (self._inexact | self._filters.keys())
        printed = self._printed(page, followed - converted)
        has_markers = printed.pop(NO_TABLE, None) is not None
        markers = [markers_in(self._connection, _inside(page), page.transactions)] if has_markers else []
        relations = {*printed, *self._present(page, converted)}
        while True:
            structures = self._structures.look(relations, windows.before)
            self._inexact.update(oid for oid, one in structures.items() if one.is_exact)
            announced = dict(self._announced)
            tables: list[TableRows] = []
            for oid, structure in sorted(structures.items()):
                rows = None
                if (
                    oid in printed
                    and structure.json is not None
                    and unreadable(structure.names, structure, ordered=True) is None
                ):
                    rows = self._by_json(structure, structure.json, printed.pop(oid), announced)
                tables += self._read_table(structure, page, windows, announced) if rows is None else [rows]
            again = self._structures.look(relations, windows.before)
            if {oid: one.mark for oid, one in again.items()} == {oid: one.mark for oid, one in structures.items()}:
                break
        self._announced = announced
        end = Lsn(int(page.transactions.ends[-1])) if page.ends else reached
        return chunk_of(page.transactions, [*tables, *markers], end, begins=page.begins, ends=page.ends)

    def _printed(self, page: _Page, relations: set[int]) -> dict[int, PrintedRows]:
        """The rows of these tables as JSON, by table."""
        query = sql.SQL(_JSON_ROWS).format(
            relations=_numbers(relations), inserts_only=_numbers(self._inserts_only), page=_inside(page)
        )
        statement = query.as_string(self._connection)
        text = b"".join(copy_out(self._connector, self._connection, statement, "the shadow log", SHADOW_LOG_GONE))
        lines = CopyLines.of(text, FIELDS)
        return printed_rows(lines)

    def _present(self, page: _Page, relations: set[int]) -> set[int]:
        """Those of these tables that have rows."""
        if not relations:
            return set()
        query = sql.SQL(_PRESENT).format(relations=_numbers(relations), page=_inside(page))
        return {int(row[0]) for row in self._connection.execute(query).fetchall()}

    def _by_json(
        self, structure: Structure, form: JsonForm, printed: PrintedRows, announced: dict[int, bytes]
    ) -> TableRows | None:
        """The records of rows as JSON; None if one has not the structure's form."""
        changes = printed.changes(form, structure.keys(structure.columns))
        if changes is None:
            return None
        return self._records(structure, changes, structure.columns, announced)

    def _records(
        self, structure: Structure, changes: Changes, columns: Sequence[str], announced: dict[int, bytes]
    ) -> TableRows | None:
        """None: updates lack whole old rows, which the table's present identity needs."""
        if structure.is_whole and changes.partial is not None and changes.partial.any():
            return None
        keys = structure.keys(columns)
        announcement = self._announcement(structure, columns, announced) if len(changes.no) else None
        relation = RelationId(structure.table.oid)
        return records_of(changes, relation, keys, whole=structure.is_whole, announcement=announcement)

    def _announcement(self, structure: Structure, columns: Sequence[str], announced: dict[int, bytes]) -> bytes | None:
        """The relation record of rows with these columns, if it is not the last one that was sent."""
        record = structure.record(columns)
        if announced.get(structure.table.oid) == record:
            return None
        announced[structure.table.oid] = record
        return record

    def _read_table(
        self, structure: Structure, page: _Page, windows: Windows, announced: dict[int, bytes]
    ) -> Iterator[TableRows]:
        rows = _condition(structure.table.oid, page)
        if structure.table.oid in self._inserts_only:
            rows += sql.SQL(" AND c.op IN ('I', 'T')")
        filtered = self._read_by_filter(structure.table.oid)
        lacking = not filtered.issubset(structure.columns)
        lacking = lacking or self._any(rows, _LACKS_TEXT if structure.is_exact else _IS_PARTIAL)
        if structure.is_settled(windows.before) and not lacking:
            yield self._rows(structure, structure.columns, rows, announced)
            return
        for names, is_text, is_partial in self._connection.execute(
            sql.SQL(_KINDS_OF_ROWS).format(rows=rows)
        ).fetchall():
            if names is None:  # TRUNCATE
                yield self._rows(structure, structure.columns, rows + sql.SQL(" AND c.op = 'T'"), announced)
                continue
            found = names.split(_NAME_BREAK)
            these = rows + sql.SQL(" AND c.op <> 'T' AND {} = " + _IS_PARTIAL + " AND " + _NAMES + " = {}").format(
                sql.Literal(is_partial), sql.Literal(names)
            )
            wrong = unreadable(found, structure, ordered=structure.table.oid not in self._by_application)
            if wrong is None and is_text and tuple(found) != structure.names:
                wrong = found[0]  # The text has no names.
            if wrong is None and structure.is_exact and not is_text:
                wrong = found[0]  # Recorded before the table got a column that JSON does not hold exactly.
            if wrong is None and not filtered.issubset(found):
                wrong = found[0]
            if wrong is not None:
                yield self._unread(structure, wrong, these, announced)
                continue
            columns = tuple(name for name in structure.columns if name in found)
            read = self._partial_rows if is_partial else self._rows
            yield read(structure, columns, these, announced)

    def _any(self, rows: sql.Composable, condition: LiteralString) -> bool:
        query = sql.SQL("SELECT EXISTS (SELECT FROM penstock.changes c WHERE {} AND " + condition + ")").format(rows)
        return bool(self._connection.execute(query).fetchall()[0][0])

    def _partial_rows(
        self, structure: Structure, columns: Sequence[str], rows: sql.Composable, announced: dict[int, bytes]
    ) -> TableRows:
        """Updates that were recorded with their changed columns only, as PostgreSQL reads their values. A row filter needs whole rows."""
        table = structure.table
        query = sql.SQL(_PARTIAL_ROWS).format(
            columns=sql.SQL("").join(sql.SQL(", (v.n).{}").format(sql.Identifier(name)) for name in columns),
            how=sql.SQL("").join(sql.SQL(_HOW_RECORDED).format(name=sql.Literal(name)) for name in columns),
            table=sql.Identifier(table.name.schema, table.name.name),
            rows=rows,
        )
        changes = records = None
        if table.oid not in self._filters:
            text = self._copied(query.as_string(self._connection), f"relation {table.oid}")
            changes = None if text is None else partial_changes(text, len(columns), structure.keys(columns))
        if changes is not None:
            records = self._records(structure, changes, columns, announced)
        return self._unread(structure, columns[0], rows, announced) if records is None else records

    def _read_by_filter(self, relation: int) -> frozenset[str]:
        """The columns that the table's row filter reads. It is part of statements, so it is checked again.

        Raises EngineFault(LOG_UNREADABLE) if others replaced it by something that is none.
        """
        condition = self._filters.get(relation)
        try:
            return frozenset() if condition is None else columns_of(condition)
        except UnfitFilterError as error:
            detail = f"the row filter of relation {relation} in penstock.followed: {error}"
            raise EngineFault(FaultKind.LOG_UNREADABLE, self._reader, detail) from error

    def _rows(
        self, structure: Structure, columns: Sequence[str], rows: sql.Composable, announced: dict[int, bytes]
    ) -> TableRows:
        table = structure.table
        values = [sql.SQL(", (v.{}).{}").format(sql.SQL(row), sql.Identifier(name)) for row in "on" for name in columns]
        query = sql.SQL(_ROWS if table.oid not in self._filters else _FILTERED_ROWS).format(
            columns=sql.SQL("").join(values),
            table=sql.Identifier(table.name.schema, table.name.name),
            rows=rows,
            **self._filter(table.oid),
        )
        text = self._copied(query.as_string(self._connection), f"relation {table.oid}")
        if text is None:
            return self._unread(structure, columns[0], rows, announced)
        announcement = self._announcement(structure, columns, announced) if text else None
        keys = structure.keys(columns)
        return rows_of(
            text, RelationId(table.oid), len(columns), keys, whole=structure.is_whole, announcement=announcement
        )

    def _filter(self, relation: int) -> dict[str, sql.Composable]:
        """The parts of _FILTERED_ROWS, of a table with a row filter."""
        names = sorted(self._read_by_filter(relation))

        def columns(row: str) -> sql.Composable:
            return sql.SQL(", ").join(
                sql.SQL("(v.{}).{} AS {}").format(sql.SQL(row), sql.Identifier(name), sql.Identifier(name))
                for name in names
            )

        return {"condition": sql.SQL(self._filters.get(relation, "")), "old": columns("o"), "new": columns("n")}

    def _copied(self, query: str, subject: str) -> bytes | None:
        """COPY output of recorded rows; None if a value cannot be converted any more."""
        try:
            return b"".join(copy_out(self._connector, self._connection, query, subject, _UNCONVERTIBLE))
        except EngineFault as fault:
            if fault.kind is FaultKind.TABLE_STRUCTURE_CHANGED:
                return None
            raise

    def _unread(
        self, structure: Structure, column: str, rows: sql.Composable, announced: dict[int, bytes]
    ) -> TableRows:
        """In place of rows that cannot be read: a record that no structure matches, so that the table is copied again. In each transaction,
        since the first ones may have been applied before this session."""
        query = sql.SQL("SELECT min(no), xid::text::bigint FROM penstock.changes c WHERE {} GROUP BY xid").format(rows)
        found = np.array(self._connection.execute(query).fetchall(), np.int64).reshape(-1, 2)
        announced[structure.table.oid] = record = structure.unreadable_record(column)
        offsets = np.arange(len(found) + 1, dtype=np.int64) * len(record)
        return TableRows(found[:, 0], found[:, 1], np.frombuffer(record * len(found), np.uint8), offsets)


def _condition(relation: int, page: _Page) -> sql.Composed:
    return sql.SQL("c.relation = {} AND ").format(sql.Literal(relation)) + _inside(page)


def _inside(page: _Page) -> sql.Composed:
    xids = "{" + ",".join(map(str, page.transactions.ids.tolist())) + "}"
    found = sql.SQL("c.xid = ANY({}::xid8[])").format(sql.Literal(xids))
    if page.after is not None:
        found += sql.SQL(" AND c.no > {} AND c.no <= {}").format(sql.Literal(page.after), sql.Literal(page.upto))
    return found


def _numbers(values: Collection[int]) -> sql.Literal:
    return sql.Literal("{" + ",".join(map(str, values)) + "}")


def _snapshot(text: str) -> sql.Composable:
    return sql.SQL("{}::pg_snapshot").format(sql.Literal(text))


def open_stream(
    connector: Connector, reader: str, start: Lsn, application: str, last: LastCommit | None, wake: int | None
) -> WindowStream[Windows]:
    """See LogSource.open_stream.

    Raises EngineFault: LOG_GAP if the reader does not exist or its windows were removed, SLOT_IN_USE if another session reads for it.
    """
    connection = connector.open(application, statement_timeout_ms=_STATEMENT_TIMEOUT_MS)
    try:
        durable = _attached(connection, reader)
        begin = begin_at(reader, durable, start, last, POSTGRES_TRIGGERS_TERMS)
        found = connection.execute(
            "SELECT snapshot::text FROM penstock.windows WHERE no = %s", [begin.after]
        ).fetchone()
        if found is None:
            raise EngineFault(FaultKind.LOG_GAP, reader, f"window {begin.after} of the shadow log is gone")
        log = TriggerWindows(connector, connection, reader, str(found[0]))
        return WindowStream(log, begin, wake)
    except psycopg.Error as error:
        connection.close()
        raise SOURCE.fault(error, reader) from error
    except BaseException:
        connection.close()
        raise


def _attached(connection: PostgresConnection, reader: str) -> int:
    """Take the reader's lock for this session; returns the last window that was confirmed for it."""
    if not is_installed(connection):
        raise EngineFault(FaultKind.LOG_GAP, reader, "the shadow log does not exist")
    if not connection.execute("SELECT pg_try_advisory_lock(" + READER_LOCK + ")", [reader]).fetchall()[0][0]:
        raise EngineFault(FaultKind.SLOT_IN_USE, reader, "another session reads for it")
    row = connection.execute("SELECT durable FROM penstock.readers WHERE name = %s", [reader]).fetchone()
    if row is None:
        raise EngineFault(FaultKind.LOG_GAP, reader, "the reader does not exist any more")
    return int(row[0])
