"""What several PostgreSQL databases as one source call the things of every source."""

from __future__ import annotations

from engine.model.positions import SeveralLogsForm
from engine.model.source import SourceTerms

POSTGRES_LOGS_TERMS = SourceTerms(
    SeveralLogsForm(),
    database="set of nodes",
    history="timeline",
    reader="replication slots",
    sent_tables="publications",
)
