"""Registers the fixtures that all folders share, says where tests write, sets Hypothesis up, and keeps tests of a group on one worker."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings

_IN_MEMORY = Path("/dev/shm")
_ENOUGH_BYTES = 12 * 1024**3


def _work_in_memory() -> None:
    """Put the files and databases that tests write into memory where there is enough of it; all are removed in the end.

    A database of its own for each test means some hundred new files; on a disk those take a third of the whole run. TMPDIR is
    kept where the user has set it, and this process's children get it.
    """
    if "TMPDIR" in os.environ or not os.access(_IN_MEMORY, os.W_OK):
        return
    if min(shutil.disk_usage(_IN_MEMORY).free, psutil.virtual_memory().available) >= _ENOUGH_BYTES:
        os.environ["TMPDIR"] = str(_IN_MEMORY)
        tempfile.tempdir = None


_work_in_memory()

# The time of an example says nothing about what it tests, as other tests run concurrently.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")

pytest_plugins = ["tests.fixtures.mariadb", "tests.fixtures.postgres", "tests.fixtures.replication"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """pytest-xdist 3.8 notes a test's group where pytest 9.2 does not look any more: the scheduler would never see it."""
    if getattr(config.option, "loadgroup", False):
        for item in items:
            grouped = getattr(item, "_nodeid", None)
            if grouped is not None and item.nodeid != grouped:
                item._id = type(item._id).parse(grouped)
