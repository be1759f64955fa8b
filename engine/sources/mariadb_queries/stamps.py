"""Rows by stamps: a column of a time type that every insert and update sets.

The server sets stamps to the time at which a statement began. The statement may wait before its transaction begins, and then the
transaction may stay open. So both count for how old a stamp may be that is not visible yet: statements that run, and open transactions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine.model.fault import EngineFault, FaultKind
from engine.model.schema import TableSchema
from engine.model.source import TableSplit
from engine.sources.mariadb.catalog import MariaDbTable
from engine.sources.mariadb.connect import (
    ERRORS,
    Connector,
    MariaDbConnection,
    close_quietly,
    fault_of,
    literal,
    quoted,
    rows,
    run,
)
from engine.sources.mariadb.splits import and_kept, printed_values, select_lines, split_of
from engine.sources.mariadb.types import ColumnFacts, read_line
from engine.sources.query_diff.stamps import UNKNOWN_S, Since, Stamp

TYPES = frozenset({"timestamp", "datetime", "date"})
"""Types that a stamp may have, as the catalog names them."""
BEFORE_SNAPSHOT = "@penstock_before"
"""A variable of the session that has a snapshot: the server's time in UTC shortly before the snapshot was taken."""
_ZONELESS = frozenset({"datetime", "date"})
"""Types whose values are local times: the server's clock shows some of them twice, where it has daylight saving time."""
_FARTHEST_HOURS = 14
"""Hours by which a local time may be ahead of UTC."""
_DAY_S = 86_400
"""Seconds before and after now in which a change of the clocks counts: more than a cycle takes. Not measured."""
_MOST_SHIFT_S = 7_200
"""Seconds by which a clock may be set for daylight saving time, if the server does not say its time zone's."""
_EVER_S = 1e11
"""Age in seconds of a transaction that may be as old as any stamp: 3,170 years."""
_LOOKS = 5
"""Tries to see the present transactions."""
_LOOK_S = 0.15
"""Seconds between two of them. The server lists what it listed before, unless no session has read the list for 0.1 s."""
_FOLDS_S = (1_800, 3_600, 7_200)
"""Seconds by which clocks are set back. The list has local times of the server's system; of two moments with one, the earlier counts."""
_WITHOUT_STATEMENT = ("Sleep", "Daemon", "Binlog Dump", "Slave_IO", "Slave_SQL", "Slave_worker")
"""States of sessions in which no statement of a client runs. What a replica's sessions write is seen by `_ELSEWHERE`."""
_RUNNING = f"""
SELECT id, time_ms / 1000 FROM information_schema.processlist
WHERE id <> CONNECTION_ID() AND command NOT IN ({", ".join(map(literal, _WITHOUT_STATEMENT))})
"""
_FOLD = ", ".join(f"IF(FROM_UNIXTIME(UNIX_TIMESTAMP(trx_started) - {s}) = trx_started, {s}, 0)" for s in _FOLDS_S)
_OPEN = f"""
SELECT trx_mysql_thread_id, trx_is_read_only, UNIX_TIMESTAMP() + 1 - UNIX_TIMESTAMP(trx_started) + GREATEST({_FOLD})
FROM information_schema.innodb_trx
"""
"""Beginnings have whole seconds, as the present time here."""
_ELSEWHERE = """
SELECT COUNT(*), @@GLOBAL.gtid_slave_pos FROM information_schema.global_status
WHERE (variable_name = 'SLAVES_RUNNING' AND variable_value > 0) OR (variable_name = 'WSREP_CLUSTER_SIZE' AND variable_value > 1)
"""
"""Whether transactions of other servers are written here, whose beginnings cannot be seen."""

Read = Callable[[TableSplit], Iterator[bytes]]
"""Reads a split under the cycle's snapshot."""


@dataclass(frozen=True, slots=True)
class StampedTable:
    """A table whose recent rows are read. `table`: as the catalog has it now."""

    table: MariaDbTable
    schema: TableSchema
    read: Read

    def rows(self, since: Since) -> Iterator[bytes]:
        """See ComparedDatabase.rows_since."""
        query = f"{select_lines(self.table, self.schema)} WHERE {self.condition(since)}{and_kept(self.schema)}"
        return self._read(query)

    def left(self, since: Stamp) -> Iterator[bytes]:
        """See ComparedDatabase.left_since."""
        values, kept = printed_values(self.table, self.schema), self.schema.row_filter
        key = read_line([values[column.on_source] for column in self.schema.key_columns])
        gone = f"({'TRUE' if kept is None else kept.text}) IS NOT TRUE"
        return self._read(f"SELECT {key} FROM {self._name} WHERE {self.condition(since)} AND {gone}")

    def condition(self, since: Since) -> str:
        """SQL that holds for rows whose stamps are not older, and for those without one."""
        if not isinstance(since, Stamp):
            raise EngineFault(FaultKind.INTERNAL, str(self.schema.name), "views of MariaDB have no stamps below them")
        facts = self._facts(since.column)
        name = quoted(facts.name)
        newer = [f"{name} >= {literal(cut(facts, since.value))}", f"{name} = '0000-00-00'"]
        return f"({' OR '.join([*newer, f'{name} IS NULL'] if facts.nullable else newer)})"

    def newest(self, column: str, overlap_s: float) -> str | None:
        """See ComparedDatabase.newest_stamp. Stamps after the snapshot are no times of changes, and are left out."""
        facts = self._facts(column)
        zoneless = facts.data_type in _ZONELESS
        shift = _shift(overlap_s) if zoneless else "0"
        ahead = _FARTHEST_HOURS if zoneless else 0
        latest = f"CAST({BEFORE_SNAPSHOT} AS DATETIME(6)) + INTERVAL {ahead} HOUR"
        [(limit, shift_s)] = _fields(self._read(f"SELECT CONCAT({latest}, '\\t', {shift})"))
        name, back_s = quoted(column), overlap_s + float(shift_s) + _rounded_s(facts)
        value = f"CAST(MAX({name}) AS DATETIME(6)) - INTERVAL {back_s:.6f} SECOND"
        where = f"WHERE {name} <= {literal(cut(facts, limit))}"
        [(found,)] = _fields(self._read(f"SELECT IFNULL(CAST({value} AS CHAR), '') FROM {self._name} {where}"))
        return found or None

    def _facts(self, column: str) -> ColumnFacts:
        found = next((facts for facts in self.table.columns if facts.name == column), None)
        if found is None or found.data_type not in TYPES:
            raise EngineFault(
                FaultKind.TABLE_STRUCTURE_CHANGED, str(self.schema.name), f"{column} is no stamp any more"
            )
        return found

    @property
    def _name(self) -> str:
        return quoted(self.table.name.schema, self.table.name.name)

    def _read(self, query: str) -> Iterator[bytes]:
        return self.read(split_of(self.schema, query))


def cut(facts: ColumnFacts, value: str) -> str:
    """The text of a time with the digits that the column has: it cuts stamps so too, and times are not rounded up to a later one."""
    if facts.data_type == "date":
        return value[:10]
    whole, _, fraction = value.partition(".")
    return f"{whole}.{fraction[: facts.fraction]}" if facts.fraction and fraction else whole


def _rounded_s(facts: ColumnFacts) -> float:
    """Seconds by which a stamp may be later than its statement: sessions with TIME_ROUND_FRACTIONAL round fractions."""
    return 10.0 ** -(facts.fraction or 0)


def _shift(overlap_s: float) -> str:
    """SQL of the seconds by which local times of the server may go back in the next day, or went ahead in the window, or went back in the
    last day."""

    def ahead(at_s: float) -> str:
        utc = f"UTC_TIMESTAMP() + INTERVAL {at_s:.0f} SECOND"
        return f"TIMESTAMPDIFF(SECOND, {utc}, CONVERT_TZ({utc}, '+00:00', @@GLOBAL.time_zone))"

    most, least = (ahead(-_DAY_S), ahead(0)), (ahead(0), ahead(_DAY_S), ahead(-_DAY_S - overlap_s))
    return f"IFNULL(GREATEST({', '.join(most)}) - LEAST({', '.join(least)}), {_MOST_SHIFT_S})"


def _fields(pieces: Iterator[bytes]) -> list[list[str]]:
    return [line.split("\t") for line in b"".join(pieces).decode().split("\n")[:-1]]


def open_for_s(connector: Connector) -> float:
    """See ComparedDatabase.open_for_s. UNKNOWN_S or more without the right PROCESS, on a replica or a node of a cluster, and while others
    read the list of transactions so often that the server does not renew it."""
    began, connection = time.monotonic(), connector.open()
    try:
        found = _open_for_s(connection)
        connection.close()
    except ERRORS as error:
        raise fault_of(error, connector.name) from error
    finally:
        close_quietly(connection)
    return found + time.monotonic() - began


def _open_for_s(connection: MariaDbConnection) -> float:
    """In a session that had no transaction before: the list shows its own one only if it was made since."""
    # The list has times of the server's system.
    run(connection, "SET time_zone = 'SYSTEM'")
    run(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
    least = UNKNOWN_S if has_others(connection) else 0.0
    # Before the transactions: a statement that has ended since is part of one of these, or was committed.
    running = rows(connection, _RUNNING)
    listed = _transactions(connection)
    if listed is None:
        return max([UNKNOWN_S, *(float(age) for _, age in running)])
    if any(not session for session, _, _ in listed) and rows(connection, "XA RECOVER"):
        # Its session has ended. After a restart of the server its beginning is not known any more.
        return _EVER_S
    reading = {session for session, read_only, _ in listed if read_only}
    ages = [float(age) for session, age in running if session not in reading]
    ages += [float(age) for _, read_only, age in listed if not read_only]
    return max([least, *ages])


def _transactions(connection: MariaDbConnection) -> Sequence[tuple[Any, ...]] | None:
    """Session, whether it only reads, and age of each open transaction. None if the server shows only what was before, or nothing."""
    if not sees_transactions(connection):
        return None
    [(own,)] = rows(connection, "SELECT CONNECTION_ID()")
    for _ in range(_LOOKS):
        found = rows(connection, _OPEN)
        if any(session == own for session, _, _ in found):
            return found
        time.sleep(_LOOK_S)
    return None


def sees_transactions(connection: MariaDbConnection) -> bool:
    """Whether the user may see the transactions of others."""
    try:
        rows(connection, "SELECT COUNT(*) FROM information_schema.innodb_trx")
    except ERRORS as error:
        if fault_of(error, "").kind is not FaultKind.SOURCE_PRIVILEGE:
            raise
        return False
    return True


def has_others(connection: MariaDbConnection) -> bool:
    """Whether the server writes transactions of other servers, as a replica or a node of a cluster."""
    [(elsewhere, replicated)] = rows(connection, _ELSEWHERE)
    return bool(elsewhere or replicated)
