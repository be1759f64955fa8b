"""Every kind of fault has a policy with a remedy that a person can follow."""

from __future__ import annotations

import pytest

from engine.model.fault import FaultKind
from engine.platform.fault_policy import POLICIES, policy


@pytest.mark.parametrize("kind", list(FaultKind))
def test_every_kind_has_a_row(kind: FaultKind) -> None:
    row = policy(kind)
    assert row.remedy.endswith(".")
    assert len(row.remedy) > 20


def test_no_rows_for_kinds_that_are_gone() -> None:
    assert set(POLICIES) == set(FaultKind)
