"""The transactions and sessions of a source that others depend on."""

from __future__ import annotations

from engine.model.redaction import redacted
from engine.sources.postgres.connect import Connector

_OLDEST_OPEN = """
SELECT who || ', open for ' || greatest(0, extract(epoch FROM clock_timestamp() - since))::bigint || ' s',
       greatest(0, extract(epoch FROM clock_timestamp() - since))::float8, statement
FROM (
    SELECT 'pid ' || pid AS who, xact_start AS since, coalesce(query, '') AS statement
    FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
    UNION ALL
    SELECT 'prepared transaction of ' || owner, prepared, '' FROM pg_prepared_xacts
) AS open_transactions
ORDER BY since LIMIT 1
"""


def oldest_open(connector: Connector) -> tuple[str, float, str] | None:
    """The oldest open transaction that has written: as `pid 123, open for 45 s`, its age in seconds, and its last statement, redacted."""
    with connector.session() as connection:
        row = connection.execute(_OLDEST_OPEN).fetchone()
    return (str(row[0]), float(row[1]), redacted(str(row[2]))) if row is not None else None


def family_of(application: str) -> str:
    """The application name of a session without the number of its engine's epoch at the end."""
    return application.encode()[:63].decode(errors="ignore").rstrip("0123456789")
