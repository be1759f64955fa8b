"""Registers the fixtures that all test folders share, and lets tests of a group run on one worker."""

from __future__ import annotations

from typing import Any

import pytest

pytest_plugins = ["tests.fixtures.postgres", "tests.fixtures.replication"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """pytest-xdist 3.8 notes a test's group where pytest 9.2 does not look any more: the scheduler would never see it."""
    if getattr(config.option, "loadgroup", False):
        for item in items:
            grouped = getattr(item, "_nodeid", None)
            if grouped is not None and item.nodeid != grouped:
                item._id = type(item._id).parse(grouped)
