"""Every behaviour of a source, with every kind of target."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["duckdb", "postgres"])
def target_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)
