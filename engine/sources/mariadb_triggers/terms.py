"""What a MariaDB server captured by triggers calls the things of every source."""

from __future__ import annotations

from engine.model.positions.windows import WindowForm
from engine.model.source import SourceTerms

MARIADB_TRIGGERS_TERMS = SourceTerms(
    WindowForm(), database="server", history="history", reader="reader of the shadow log", sent_tables="triggers"
)
