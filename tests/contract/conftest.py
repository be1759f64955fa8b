"""What the tests of every kind of target share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.targets import KINDS, OpenTarget, target_opener


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenTarget]:
    """Opens targets of the kind; each test runs for every kind."""
    with target_opener(str(request.param), request, tmp_path) as opener:
        yield opener
