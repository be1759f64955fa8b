"""What PostgreSQL calls the things of every source."""

from __future__ import annotations

from engine.model.source import SourceTerms
from engine.sources.postgres_log.position_form import PostgresLogForm

POSTGRES_LOG_TERMS = SourceTerms(
    PostgresLogForm(),
    database="database cluster",
    history="timeline",
    reader="replication slot",
    sent_tables="publications",
)
