"""Failpoints do nothing until they are armed, and then exactly once."""

from __future__ import annotations

import pytest

from engine.model.fault import EngineFault
from engine.runtime.failpoints import Failpoint, arm, hit


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
