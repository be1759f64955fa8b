"""Registers the fixtures that all test folders share, sets Hypothesis up, and lets tests of a group run on one worker."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

# How long an example takes says nothing of what it tests, and other tests run beside it.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")

pytest_plugins = ["tests.fixtures.postgres", "tests.fixtures.replication"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """pytest-xdist 3.8 notes a test's group where pytest 9.2 does not look any more: the scheduler would never see it."""
    if getattr(config.option, "loadgroup", False):
        for item in items:
            grouped = getattr(item, "_nodeid", None)
            if grouped is not None and item.nodeid != grouped:
                item._id = type(item._id).parse(grouped)
