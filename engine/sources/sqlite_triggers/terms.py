"""What a SQLite file captured by triggers calls the things of every source."""

from __future__ import annotations

from engine.model.positions.windows import WindowForm
from engine.model.source import SourceTerms

SQLITE_TRIGGERS_TERMS = SourceTerms(
    WindowForm("ask for `now` after the commit"),
    database="file",
    history="history",
    reader="reader of the shadow log",
    sent_tables="triggers",
)
