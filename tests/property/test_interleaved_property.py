"""Whatever interleaves, rolls back or breaks off on the way: the target is at every batch's end what the source was there."""

from __future__ import annotations

import pytest
from hypothesis import Phase, find, given, seed, settings
from hypothesis import strategies as st

from tests.property.replica import Replica
from tests.property.source_history import KINDS, Case
from tests.unit.net.history_strategies import PARTS

pytestmark = pytest.mark.property

SHARDS = 42
QUICK_SHARDS = 1
"""So many run with every test run, all of them with the long ones."""
CASES_PER_SHARD = 250
_FATES = st.sampled_from(["commit"] * 7 + ["abort"] * 2 + ["open"])
CASES = st.builds(
    Case,
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4),
    rows=st.integers(0, 7),
    transactions=st.lists(st.tuples(_FATES, PARTS), min_size=1, max_size=10),
    tape=st.binary(min_size=512, max_size=512),
)


@pytest.mark.parametrize(
    "shard", [pytest.param(n, marks=[pytest.mark.chaos] if n >= QUICK_SHARDS else []) for n in range(SHARDS)]
)
def test_target_follows_the_source(shard: int) -> None:
    """Each shard's cases are drawn from its own seed and are the same every time."""
    ran = 0

    @seed(shard)
    @settings(max_examples=CASES_PER_SHARD, deadline=None, database=None)
    @given(CASES)
    def follow(case: Case) -> None:
        nonlocal ran
        ran += 1
        Replica(case).run()

    follow()
    assert ran >= CASES_PER_SHARD


def test_among_the_cases_are_batches_committed_behind_rows_that_were_early() -> None:
    """One in about fifty cases has such a batch."""

    def early(case: Case) -> bool:
        replica = Replica(case)
        replica.run()
        return replica.early_batches > 0

    found = find(
        CASES, early, settings=settings(max_examples=5000, phases=[Phase.generate], deadline=None, database=None)
    )
    assert found.transactions
