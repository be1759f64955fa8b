"""Interfaces of `model.source` that depend on features of PostgreSQL: partitions, DDL messages, tickets.

The protocols document the methods.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from engine.model.ddl import DdlCapture, DdlMessage
from engine.model.identity import RelationId, TableName, TicketId
from engine.model.partitions import Partition
from engine.model.schema import TableSchema
from engine.model.subscription import TableSpec
from engine.model.ticket import TicketWritten
from engine.sources.postgres.catalog import roots_of
from engine.sources.postgres.connect import Connector
from engine.sources.postgres.partition_watch import mark_told, marks_of
from engine.sources.postgres.partitions import partitions
from engine.sources.postgres_log import ddl_capture, position
from engine.sources.postgres_log.ddl_message import read_ddl_message
from engine.sources.postgres_log.given_tables import GivenTables


class PostgresPartitions:
    """`PartitionedTables` over the catalog."""

    def __init__(self, connector: Connector, given: GivenTables | None) -> None:
        self._connector = connector
        self._given = given

    def fingerprints(self, tables: Sequence[TableSpec]) -> dict[TableName, str]:
        marks = marks_of(self._connector, {table.source for table in tables})
        return marks if self._given is None else self._given.marked(tables, marks)

    def with_observed(self, mark: str, below: Mapping[RelationId, TableName]) -> str:
        return mark_told(mark, below)

    def roots(self, relations: Collection[RelationId]) -> dict[RelationId, TableName]:
        with self._connector.session() as connection:
            return {RelationId(oid): name for oid, name in roots_of(connection, relations).items()}

    def partitions(self, schema: TableSchema, snapshot: str | None = None) -> list[Partition]:
        return partitions(self._connector, schema, snapshot)


class PostgresDdlReports:
    """`DdlReports` by event triggers."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._capture = ddl_capture.CaptureWatch()

    def parse(self, payload: bytes) -> DdlMessage:
        return read_ddl_message(payload)

    def mark(self) -> str:
        with self._connector.session() as connection:
            return self._capture.in_force(connection)

    def status(self) -> DdlCapture:
        return ddl_capture.read_capture(self._connector)

    def install(self) -> DdlCapture:
        return ddl_capture.install(self._connector)

    def uninstall(self) -> DdlCapture:
        return ddl_capture.remove(self._connector)


class PostgresTickets:
    """`TicketWriter` by logical messages."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def write(self, ticket: TicketId) -> TicketWritten:
        return position.write_ticket(self._connector, ticket)
