"""How tables are compared with their source."""

from __future__ import annotations

from enum import StrEnum


class VerificationMethod(StrEnum):
    """How a table is compared."""

    ROWS = "rows"
    """All rows are read from the source."""
    CHECKSUM = "checksum"
    """Both sides compute digests of key ranges, and rows of ranges that differ are read."""
