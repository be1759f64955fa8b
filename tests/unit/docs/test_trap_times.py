"""How long what others do past the triggers of a capture stays unnoticed at most, with the usual settings, and what the pages say of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.platform.settings import EngineSettings

HOW_TO = Path(__file__).parents[3] / "docs/how-to"


@pytest.mark.parametrize("page", ["capture-by-triggers.md", "capture-mariadb.md", "capture-sqlite.md"])
def test_a_check_comes_as_often_as_the_page_says(page: str) -> None:
    """That one check is enough is tested with each source."""
    interval_s = EngineSettings.model_fields["guard_interval_s"].default
    assert interval_s <= 5
    assert f"every {interval_s:g} s (`guard_interval_s`)" in " ".join((HOW_TO / page).read_text().split())
