"""How tables are compared with their source."""

from __future__ import annotations

from enum import StrEnum


class VerificationMethod(StrEnum):
    """How a table is compared."""

    ROWS = "rows"
    """All rows are read from the source."""
    CHECKSUM = "checksum"
    """Both sides compute digests of key ranges, and rows of ranges that differ are read."""


class RepairMode(StrEnum):
    """What a verification does with rows that differ."""

    NONE = "none"
    PREVIEW = "preview"
    """Nothing; it says what a repair would write."""
    APPLY = "apply"
    """They are replaced by the source's rows, and their tables are compared again."""
