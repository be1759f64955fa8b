"""Sources whose changes no stamp shows reliably refuse the methods by stamps, with the reason and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from engine.connectors import SOURCES

STAMPED = {"method": "timestamp", "stamp_column": "at"}
FLAGGED = {"method": "timestamp_delete_flag", "stamp_column": "at", "flag_column": "deleted"}


def _capture(kind: str, declared: dict[str, Any]) -> Any:
    document = {"kind": "query_diff", "tables": {"main.orders": declared}}
    return SOURCES[kind, "query_diff"].capture.model_validate(document)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("adbc", "committed late"),
        ("odbc", "committed late"),
        ("files", "no database sets stamps in files"),
        ("duckdb", "made again"),
    ],
)
def test_stamps_that_show_too_little_are_refused_with_reason_and_remedy(kind: str, reason: str) -> None:
    with pytest.raises(ValidationError, match="method timestamp is not possible with this kind") as refused:
        _capture(kind, STAMPED)
    words = str(refused.value)
    assert reason in words
    assert "without a method all rows are compared" in words
    with pytest.raises(ValidationError, match="timestamp_delete_flag is not possible"):
        _capture(kind, FLAGGED)


@pytest.mark.parametrize("declared", [STAMPED, FLAGGED])
def test_sqlite_takes_stamps_and_flags(declared: dict[str, Any]) -> None:
    (one,) = _capture("sqlite", declared).tables.values()
    assert one.stamp_column == "at"
