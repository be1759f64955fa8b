"""Tickets in the shadow log: rows of no table, which every reader finds."""

from __future__ import annotations

import numpy as np
from psycopg import errors, sql

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TicketId
from engine.model.position import Lsn
from engine.model.positions.windows import end_of
from engine.model.ticket import TicketMarker, TicketWritten
from engine.postgres.sessions import PostgresConnection
from engine.records.landing import TableRows, Transactions
from engine.records.messages import marker_record
from engine.sources.postgres.connect import Connector
from engine.sources.postgres_triggers.objects import is_installed
from engine.sources.postgres_triggers.windows import close_window

NO_TABLE = 0
"""In place of a table's OID in rows that are markers."""
_WRITE = """
INSERT INTO penstock.changes (xid, relation, op, at, new)
VALUES (pg_current_xact_id(), 0, 'M', clock_timestamp(), json_build_object('ticket', %s::text))
RETURNING (extract(epoch FROM at) * 1000000)::bigint
"""
_READ = """
SELECT c.no, c.xid::text::bigint, c.new ->> 'ticket', (extract(epoch FROM c.at) * 1000000)::bigint FROM penstock.changes c
WHERE c.relation = 0 AND c.op = 'M' AND {page} ORDER BY c.no
"""


class ShadowLogTickets:
    """`TicketWriter` by a row of the shadow log, in a transaction of its own."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def write(self, ticket: TicketId) -> TicketWritten:
        with self._connector.session() as connection:
            if not is_installed(connection):
                raise EngineFault(FaultKind.LOG_GAP, self._connector.name, "the shadow log does not exist")
            try:
                at_us = int(connection.execute(_WRITE, [ticket]).fetchall()[0][0])
            except (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction) as error:
                detail = "it takes no writes, or its user may not insert into penstock.changes"
                raise EngineFault(FaultKind.SOURCE_PRIVILEGE, self._connector.name, detail) from error
        return TicketWritten(at_us, end_of(close_window(self._connector)))


def markers_in(connection: PostgresConnection, page: sql.Composable, transactions: Transactions) -> TableRows:
    """The markers among the changes of a page, each with the position of its transaction."""
    rows = connection.execute(sql.SQL(_READ).format(page=page)).fetchall()
    numbers = np.array([row[:2] for row in rows], np.int64).reshape(-1, 2)
    ends = transactions.ends[transactions.ranks(numbers[:, 1])].tolist()
    records = [
        marker_record(TicketMarker(TicketId(ticket), Lsn(end), at_us))
        for (_, _, ticket, at_us), end in zip(rows, ends, strict=True)
    ]
    offsets = np.concatenate([[0], np.cumsum([len(record) for record in records], dtype=np.int64)]).astype(np.int64)
    return TableRows(numbers[:, 0], numbers[:, 1], np.frombuffer(b"".join(records), np.uint8), offsets)
