"""The kind of target that a behaviour is tried with."""

from __future__ import annotations

import pytest


@pytest.fixture
def target_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)
