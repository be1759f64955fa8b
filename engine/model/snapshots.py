"""Snapshots of a copy as files: their formats, and why one is refused."""

from __future__ import annotations

from enum import StrEnum


class SnapshotFormat(StrEnum):
    """Format of a snapshot's files."""

    PARQUET = "parquet"
    """One Parquet file for each table."""
    DUCKDB = "duckdb"
    """One DuckDB file with all tables."""


class SnapshotRefused(Exception):
    """A snapshot cannot be made or deleted. `code` is stable, `detail` says what happened, without row values."""

    def __init__(self, status: int, code: str, detail: str, remedy: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.remedy = remedy
