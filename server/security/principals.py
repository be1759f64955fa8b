"""Principals of tokens that were looked up lately: a lookup in the control database would cost more than most requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from server.db.database import Database
from server.db.signals import Change
from server.security import tokens
from server.security.principal import Principal

KEPT_S = 10.0
"""Time for which a lookup counts. Another process that revokes a token in the same control database is noticed after at most this time."""


class Principals:
    """Thread-safe. A token that this server revokes is refused from the commit on."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._found: dict[str, tuple[Principal, float]] = {}
        """By the token's digest, each with the time of its lookup. Unknown tokens are not kept: their number has no limit."""
        self._revocations = 0

    @classmethod
    @contextmanager
    def of(cls, database: Database) -> Iterator[Principals]:
        """Those of a control database, informed of revocations during the block."""
        made = cls(database)
        stop = database.signals.listen(made._note)
        try:
            yield made
        finally:
            stop()

    def known(self, token: str, now_s: float) -> Principal | None:
        """The principal of a token that was looked up in the last KEPT_S seconds. `now_s`: the time in seconds, of any clock that only
        moves forward."""
        with self._lock:
            principal, at = self._found.get(tokens.token_digest(token), (None, 0.0))
        return principal if now_s - at < KEPT_S else None

    def look_up(self, token: str, now_s: float) -> Principal | None:
        """The principal of a token, by the control database."""
        with self._lock:
            revocations = self._revocations
        with self._database.read() as session:
            principal = tokens.find_principal(session, token)
        with self._lock:
            # The lookup may have seen the token before a revocation, and end after it.
            if principal is not None and revocations == self._revocations:
                self._found[tokens.token_digest(token)] = principal, now_s
        return principal

    def _note(self, change: Change) -> None:
        if change.revoked:
            with self._lock:
                self._revocations += 1
                self._found.clear()
