"""Tickets in the merged log."""

from __future__ import annotations

from engine.model.identity import TicketId
from engine.sources.postgres_logs.reader_folder import ReaderFolder, required
from engine.sources.postgres_logs.reader_socket import request_ticket


class PartitionedTickets:
    """`TicketWriter` by the log reader. The merged log exists in the queue only, so what a reader did not land is not in it."""

    def __init__(self, folder: ReaderFolder | None) -> None:
        self._folder = folder

    def write(self, ticket: TicketId) -> None:
        request_ticket(required(self._folder).path, ticket)
