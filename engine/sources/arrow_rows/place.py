"""A database read by a driver as the place of tables.

A snapshot is a session of the driver, and a copy of each table that was asked for: one statement reads it, as a whole, into a temporary
database of DuckDB. So all reads of a table in one snapshot are of the same rows; tables are as they were at different moments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any
from urllib.parse import quote

import duckdb

from engine.duckdb.value_text import quoted
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.source import Finding
from engine.model.subscription import ConnectionSpec
from engine.sources.arrow_rows.columns import UnfitColumnError, kinds_of, loaded
from engine.sources.arrow_rows.options import PASSWORD, SECRET_OPTIONS, options_of
from engine.sources.arrow_rows.process import DriverCall, DriverProcess, FoundColumn, FoundTable, KeptProcess
from engine.sources.duckdb.catalog import LiveTable, ReadStructure, keyed, row_ranges
from engine.sources.duckdb.connect import connected
from engine.sources.query_diff.given import given_by

_K = FaultKind
_STATEMENT_S = 21_600
"""Seconds of a statement that reads a table, where no limit is declared: 6 hours. Not measured."""
_INCOMING = "penstock incoming"
"""The name of a driver's rows in DuckDB."""
_REACH = "Check the settings and secrets of the connection, and that the driver is installed for the engine."


def call_of(spec: ConnectionSpec, reference: str) -> DriverCall:
    """How the driver of a connection is opened. `reference`: its `Opener`."""
    secrets = {name: spec.secrets[name] for name in (PASSWORD, SECRET_OPTIONS) if spec.secrets.get(name)}
    texts = {*secrets.values(), *map(quote, secrets.values())}
    with suppress(ValueError):
        texts |= set(options_of(secrets.get(SECRET_OPTIONS, "")).values())
    return DriverCall(reference, spec.settings, secrets, tuple(text for text in texts if text))


class DriverPlace:
    """`Place` over a driver."""

    remedies: Mapping[str, str] = {
        _K.SOURCE_UNREACHABLE.value: _REACH,
        _K.SOURCE_TIMEOUT.value: "Check that the database answers; Penstock tries again.",
        _K.TABLE_NAME_COLLISION.value: "Rename one of the two tables, or leave one of them out.",
        "table": "Change the table or its `columns` in capture.tables, or take it out of the subscription.",
    }

    def __init__(self, spec: ConnectionSpec, call: DriverCall) -> None:
        self.name = spec.name
        given = given_by(spec)
        self._declared = given.tables
        self._secrets = spec.secrets
        self._call = call
        self._kept = KeptProcess(call, spec.name)
        self.rows_read: dict[TableName, int] = {}
        """How many rows tables had when they were last read."""
        self.statement_s = given.manners.statement_s or _STATEMENT_S

    def secret(self, name: str) -> str | None:
        return self._secrets.get(name)

    def close(self) -> None:
        self._kept.close()

    def check(self) -> None:
        with self._kept.use() as process:
            process.check()

    def declared_key(self, table: TableName) -> Sequence[str]:
        declared = self._declared.get(str(table))
        return () if declared is None else declared.key or ()

    def tables(self, names: Collection[TableName] | None = None) -> dict[TableName, LiveTable]:
        with self._kept.use() as process:
            found = process.tables(names, fresh=True)
        return {name: self.live(name, table) for name, table in found.items()}

    def live(self, name: TableName, table: FoundTable) -> LiveTable:
        """The table with the kinds of its columns."""
        declared = self._declared.get(str(name))
        try:
            if table.problem is not None:
                raise UnfitColumnError(table.problem)
            kinds = kinds_of(table.columns, {} if declared is None else declared.columns)
        except UnfitColumnError as unfit:
            return LiveTable(ReadStructure(name, (), (), declared=False), 0, 0, problem=str(unfit))
        structure, unreadable = keyed(name, kinds, table.key, self.declared_key(name))
        problem = None if structure.columns else "it has no column whose values can be replicated"
        return LiveTable(structure, self.rows_read.get(name, 0), 0, unreadable, problem)

    @contextmanager
    def hold(self) -> Iterator[HeldRows]:
        with closing(connected(None)) as connection, closing(HeldRows(self, connection)) as held:
            yield held

    def session(self) -> DriverProcess:
        """Another session. Raises EngineFault(SOURCE_UNREACHABLE)."""
        return DriverProcess(self._call, self.name)

    def rows_of(self, structure: ReadStructure) -> str:
        return quoted(f"table {structure.number}")

    def parts_of(self, table: LiveTable, most: int) -> list[str]:
        return row_ranges(table, most)

    def findings(self) -> list[Finding]:
        return []


class HeldRows:
    """`HeldTables` of one session. A table is as it was when it was first asked for."""

    def __init__(self, place: DriverPlace, connection: Any) -> None:
        self.connection = connection
        self._place = place
        self._process = place.session()
        self._broken = False
        self._ended = False
        self._found: dict[TableName, tuple[LiveTable, Mapping[str, FoundColumn]] | None] = {}
        self._read: set[TableName] = set()

    def close(self) -> None:
        self._process.close()

    def table(self, name: TableName) -> LiveTable | None:
        if name not in self._found:
            found = self._session(name).tables({name}).get(name)
            self._found[name] = (
                None if found is None else (self._place.live(name, found), {c.name: c for c in found.columns})
            )
        known = self._found[name]
        return None if known is None else known[0]

    def provide(self, table: LiveTable) -> None:
        name, known = table.structure.table_name, self._found[table.structure.table_name]
        if name in self._read or known is None:
            return
        session = self._session(name)
        columns = [known[1][column] for column in table.structure.names]
        target = self._place.rows_of(table.structure)
        query = loaded(list(zip(columns, table.structure.columns, strict=True)), quoted(_INCOMING))
        try:
            with session.rows(name, columns, self._place.statement_s) as rows:
                self.connection.register(_INCOMING, rows)
                count = self.connection.execute(f"CREATE TABLE {target} AS {query}").fetchall()[0][0]
        except BaseException as error:
            self._broken = True
            self.connection.execute(f"DROP TABLE IF EXISTS {target}").fetchall()
            if self._ended:
                raise self._over(name) from error
            raise
        finally:
            with suppress(duckdb.Error):
                self.connection.unregister(_INCOMING)
        self._read.add(name)
        self._place.rows_read[name] = int(count)

    def _session(self, name: TableName) -> DriverProcess:
        """The session; another one after a read that failed, whose rows may not have been taken to their end."""
        if self._ended:
            raise self._over(name)
        if self._broken:
            self._process.close()
            self._process = self._place.session()
            self._broken = False
        return self._process

    def _over(self, name: TableName) -> EngineFault:
        return EngineFault(_K.COPY_LOST, str(name), "the snapshot has ended")

    def interrupt(self) -> None:
        self._ended = True
        self.connection.interrupt()
        self._process.kill()

    def check(self, table: LiveTable, subject: str) -> None:
        """What was read stays as it is."""

    def fault(self, error: BaseException, subject: str) -> EngineFault:
        if isinstance(error, duckdb.InterruptException | duckdb.ConnectionException):
            return EngineFault(_K.COPY_LOST, subject, f"the read was ended ({type(error).__name__})")
        if isinstance(error, duckdb.OutOfMemoryException):
            return EngineFault(_K.SOURCE_TIMEOUT, subject, "DuckDB has not enough memory or disk for the table's rows")
        return EngineFault(_K.VALUE_OUT_OF_DOMAIN, subject, f"a value cannot be held exactly ({type(error).__name__})")
