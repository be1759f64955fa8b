"""Measures the server's commits per second: with almost no log, and with full log buffers."""

from __future__ import annotations

from time import monotonic

from engine.model.target import CommitRates
from engine.postgres.sessions import PostgresConnection

_FOR_S = 0.2
"""Longest time of a measurement in seconds, except that one commit is always made: the first batches in order wait for it. Not measured."""
_MOST_COMMITS = 200
"""Most small commits that are measured: enough for the mean, should commits take less than a millisecond. Not measured."""
_FULL_COMMITS = 3
"""Most commits with full log buffers: each may write _MOST_BYTES of log."""
_MOST_BYTES = 16 * 1024 * 1024
"""Most bytes of log of one such commit: `wal_buffers` is at most one segment of 16 MB unless it is set."""
_MESSAGE = "SELECT pg_logical_emit_message(true, 'penstock-rate', repeat('x', %s::int4))"


def measured_rates(connection: PostgresConnection) -> CommitRates:
    """Commits logical messages without a consumer; only log remains. Takes some tenths of a second, writes at most 48 MB of log."""
    buffer = connection.execute(
        "SELECT least(setting::int8 * 8192, %s)::int4 FROM pg_settings WHERE name = 'wal_buffers'", [_MOST_BYTES]
    ).fetchall()[0][0]
    high = _rate(connection, 1, _MOST_COMMITS)
    return CommitRates(min(_rate(connection, max(buffer, 64 * 1024), _FULL_COMMITS), high), high)


def _rate(connection: PostgresConnection, size: int, most: int) -> float:
    began, commits = monotonic(), 0
    while commits < most and (commits == 0 or monotonic() - began < _FOR_S):
        connection.execute(_MESSAGE, [size])
        commits += 1
    return commits / max(monotonic() - began, 1e-6)
