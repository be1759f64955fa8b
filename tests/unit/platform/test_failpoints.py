"""Failpoints do nothing until they are armed, and then exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.model.fault import EngineFault
from engine.platform.failpoints import Failpoint, arm, hit, watch


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose files arm failpoints of this process."""
    watch(tmp_path)
    yield tmp_path
    watch(None)


def test_unarmed_points_are_inert() -> None:
    for point in Failpoint:
        assert hit(point) is None  # type: ignore[func-returns-value]


def test_raises_at_the_nth_passing_only() -> None:
    arm(f"{Failpoint.COMMIT_BEFORE.value}=raise@3")
    hit(Failpoint.COMMIT_BEFORE)
    hit(Failpoint.COMMIT_AFTER)
    hit(Failpoint.COMMIT_BEFORE)
    with pytest.raises(EngineFault):
        hit(Failpoint.COMMIT_BEFORE)
    hit(Failpoint.COMMIT_BEFORE)


@pytest.mark.parametrize("text", ["nonsense=kill", "commit.before=explode", "commit.before"])
def test_unknown_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a failpoint"):
        arm(text)


def test_a_file_arms_a_running_process_once(folder: Path) -> None:
    hit(Failpoint.COMMIT_BEFORE)
    file = folder / Failpoint.COMMIT_BEFORE.value
    file.write_text("raise@2")
    hit(Failpoint.COMMIT_AFTER)
    hit(Failpoint.COMMIT_BEFORE)
    assert file.exists()
    with pytest.raises(EngineFault):
        hit(Failpoint.COMMIT_BEFORE)
    assert not file.exists()
    hit(Failpoint.COMMIT_BEFORE)


def test_a_file_written_again_counts_anew(folder: Path) -> None:
    file = folder / Failpoint.COMMIT_BEFORE.value
    file.write_text("raise@1")
    with pytest.raises(EngineFault):
        hit(Failpoint.COMMIT_BEFORE)
    file.write_text("raise@2")
    hit(Failpoint.COMMIT_BEFORE)
    with pytest.raises(EngineFault):
        hit(Failpoint.COMMIT_BEFORE)


def test_a_file_that_says_something_else_is_refused(folder: Path) -> None:
    (folder / Failpoint.COMMIT_BEFORE.value).write_text("explode")
    with pytest.raises(ValueError, match="must hold"):
        hit(Failpoint.COMMIT_BEFORE)
