"""Subscriptions of SQLite files, captured by queries."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.model.subscription import CaptureSpec
from tests.process.sqlite_triggers.conftest import File, replicate

__all__ = ["file", "replicate"]


@pytest.fixture(params=["WAL", "DELETE"])
def file(tmp_path: Path, request: pytest.FixtureRequest) -> File:
    return File(tmp_path / "shop.db", request.param, CaptureSpec("query_diff", {"every_seconds": 3600}))
