"""What folders of files captured by queries call the things of every source."""

from __future__ import annotations

from engine.model.positions.windows import CycleForm
from engine.model.source import SourceTerms

FILES_QUERIES_TERMS = SourceTerms(
    CycleForm(), database="folder", history="history", reader="reader of cycles", sent_tables="followed tables"
)
