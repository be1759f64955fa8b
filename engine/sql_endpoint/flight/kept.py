"""What clients come back for: rows of statements that run, and prepared statements. Each belongs to the token that made it."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.sql_endpoint.answers import Answer
from engine.sql_endpoint.flight.errors import refused
from engine.sql_endpoint.flight.rows import Rows

KEPT_S = 60.0
"""Seconds for which the rows of a statement wait for the client to fetch them."""
_MOST_PREPARED = 1000
"""Prepared statements; beyond that, the one that was used longest ago is closed. Each has at most MAX_SQL_CHARACTERS."""
_HANDLE_BYTES = 16
"""128 random bits, which cannot be guessed."""


@dataclass(slots=True)
class Running:
    """A statement that runs, and its rows."""

    answer: Answer
    rows: Rows


@dataclass(slots=True)
class Prepared:
    """A prepared statement. `parameters`: those bound last."""

    sql: str
    schema: Any
    count: int
    """Of parameters."""
    parameters: Sequence[str | None] | None = field(default=None, repr=False)


class KeptRows:
    """Statements whose rows were not fetched yet. For any thread."""

    def __init__(self, most: int, later: Callable[[float, Callable[[], None]], None]) -> None:
        """`most`: at once. `later(seconds, call)`: calls later, in any thread."""
        self._most = most
        self._later = later
        self._lock = threading.Lock()
        self._kept: dict[bytes, tuple[str, Running]] = {}

    def keep(self, owner: str, running: Running) -> bytes:
        """Keep it for KEPT_S seconds; returns its handle. If there are too many, closes it and raises FlightUnavailableError."""
        handle = secrets.token_bytes(_HANDLE_BYTES)
        with self._lock:
            is_full = len(self._kept) >= self._most
            if not is_full:
                self._kept[handle] = owner, running
        if is_full:
            running.rows.close()
            raise refused(
                "query_unavailable", f"{self._most} statements have rows that were not fetched", "Fetch or cancel them."
            )
        self._later(KEPT_S, lambda: self._drop(handle))
        return handle

    def take(self, owner: str, handle: bytes) -> Running | None:
        """The statement of this handle, once; None if it is not this owner's, or was taken or dropped."""
        with self._lock:
            kept = self._kept.get(handle)
            if kept is None or kept[0] != owner:
                return None
            del self._kept[handle]
        return kept[1]

    def _drop(self, handle: bytes) -> None:
        with self._lock:
            kept = self._kept.pop(handle, None)
        if kept is not None:
            kept[1].rows.close()


class PreparedStatements:
    """Prepared statements by handle. For any thread."""

    def __init__(self, most: int = _MOST_PREPARED) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, bytes], Prepared] = OrderedDict()

    def add(self, owner: str, prepared: Prepared) -> bytes:
        handle = secrets.token_bytes(_HANDLE_BYTES)
        with self._lock:
            self._known[owner, handle] = prepared
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return handle

    def find(self, owner: str, handle: bytes) -> Prepared:
        """Raises FlightServerError if this owner has no such statement."""
        with self._lock:
            found = self._known.get((owner, handle))
            if found is not None:
                self._known.move_to_end((owner, handle))
        if found is None:
            raise refused("not_found", "there is no such prepared statement, or it was closed", "Prepare it again.")
        return found

    def remove(self, owner: str, handle: bytes) -> None:
        """No effect if there is none."""
        with self._lock:
            self._known.pop((owner, handle), None)
