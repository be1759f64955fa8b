"""What the tests of every kind of target share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from server.demo.embedded import EmbeddedPostgres
from tests.contract.targets import EACH_KIND, OpenTarget, target_opener


@pytest.fixture(params=EACH_KIND)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenTarget]:
    """Opens targets of the kind; each test runs for every kind."""
    with target_opener(str(request.param), request, tmp_path) as opener:
        yield opener


@pytest.fixture(params=[pytest.param(16, marks=pytest.mark.chaos), 18], ids=["pg16", "pg18"])
def pg(request: pytest.FixtureRequest) -> EmbeddedPostgres:
    """A PostgreSQL of each version that is tested as a target."""
    cluster: EmbeddedPostgres = request.getfixturevalue(f"pg{request.param}")
    return cluster
