"""Registers the fixtures that all test folders share."""

from __future__ import annotations

pytest_plugins = ["tests.fixtures.postgres", "tests.fixtures.replication"]
