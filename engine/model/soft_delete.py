"""Soft delete: a row that is deleted on the source stays on the target, marked with the time of its deletion."""

from __future__ import annotations

from enum import StrEnum

DELETED_AT = "_deleted_at"
"""Column of the target's table: commit time of the transaction that deleted the row; NULL for a row that the source has."""


class DeleteMode(StrEnum):
    """What happens on the target to a row that the source deletes."""

    DELETE = "delete"
    """It is deleted."""
    MARK = "mark"
    """It stays with its last values, and `_deleted_at` is set."""
