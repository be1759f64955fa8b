"""What a database read by a driver of ODBC, captured by queries, calls the things of every source."""

from __future__ import annotations

from engine.model.positions.windows import CycleForm
from engine.model.source import SourceTerms

ODBC_QUERIES_TERMS = SourceTerms(
    CycleForm(), database="database", history="history", reader="reader of cycles", sent_tables="followed tables"
)
