"""What a database captured by triggers calls the things of every source."""

from __future__ import annotations

from engine.model.positions.windows import WindowForm
from engine.model.source import SourceTerms

POSTGRES_TRIGGERS_TERMS = SourceTerms(
    WindowForm("SELECT penstock.close_window() on the source, after the commit"),
    database="database",
    history="timeline",
    reader="reader of the shadow log",
    sent_tables="triggers",
)
