"""How batches are written: what was declared wins; else what costs less, with patience; and every change says why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.model.batch import LogRange, SealedBatch, TablePart
from engine.model.identity import BatchId, Ordinal, TableId, TableName
from engine.model.last_commit import LastCommit
from engine.model.merged_logs import MergedLogs, NodeLog
from engine.model.position import ZERO, Lsn
from engine.model.schema import KeyMode
from engine.model.subscription import ApplyMode, ApplyPolicy, LanePolicy
from engine.model.target import BatchCommit, CommitRates, InOrderPlan
from engine.pipeline.apply_mode import MOST_SINGLE, ApplyModeSelector, ApplyPlan
from engine.pipeline.cost_model import (
    IN_A_ROW,
    LANES_FROM,
    PROBE_EVERY,
    GroupTuner,
    LaneTuner,
    NettingCostModel,
    Written,
)
from engine.tables.planner import PlannedBatch
from engine.tables.state import Chunk
from tests.contract.target_material import structure

RATES = CommitRates(low=100.0, high=1100.0)
WHOLE = Chunk(1, structure(TableName("public", "t"), {"id": "int4"}, ["id"], KeyMode.KEYED), ZERO, None, first=True)


class Target:
    """A target that keeps transactions and has these rates."""

    def __init__(self) -> None:
        self.measured = 0

    def commit_in_order(self, batch: BatchCommit, way: InOrderPlan) -> int:
        raise NotImplementedError

    def commit_rates(self) -> CommitRates:
        self.measured += 1
        return RATES


def planned(
    records: int = 1000,
    transactions: int = 100,
    mode: KeyMode = KeyMode.KEYED,
    *,
    soft_delete: bool = False,
    scattered: bool = False,
    **more: object,
) -> PlannedBatch:
    schema = structure(TableName("public", "t"), {"id": "int4"}, ["id"] if mode is KeyMode.KEYED else [], mode)
    schema = replace(schema, soft_delete=soft_delete, scattered=scattered)
    ranges = (LogRange(Ordinal(1), Ordinal(1 + records), Lsn(200)),)
    batch = SealedBatch(Lsn(100), Lsn(200), transactions, ranges, (), 0, 0)
    given: dict[str, object] = {"restructured": frozenset(), **more}
    return PlannedBatch(BatchId(1), batch, ranges, (TablePart(TableId("t"), (schema,), Lsn(0)),), **given)  # type: ignore[arg-type]


def chooser(policy: ApplyPolicy) -> tuple[ApplyModeSelector, list[str]]:
    told: list[str] = []
    return ApplyModeSelector(policy, Target(), None, told.append), told


def test_a_pinned_mode_wins() -> None:
    assert chooser(ApplyPolicy(ApplyMode.BATCH))[0].choose(planned()) == ApplyPlan()
    policy = ApplyPolicy(ApplyMode.TRANSACTIONAL, LanePolicy.OPTIMISTIC, lanes=3)
    chosen = chooser(policy)[0].choose(planned())
    assert (chosen.mode, chosen.way) == (ApplyMode.TRANSACTIONAL, InOrderPlan(LanePolicy.OPTIMISTIC, 3, 1))
    chosen = chooser(ApplyPolicy(ApplyMode.GROUPED, lanes=1, group_size=7))[0].choose(planned())
    assert (chosen.mode, chosen.way) == (ApplyMode.GROUPED, InOrderPlan(lanes=1, group=7))
    assert chosen.tuning == {"lanes": 1, "group_size": 7}


@pytest.mark.parametrize("mode", [ApplyMode.TRANSACTIONAL, ApplyMode.GROUPED, ApplyMode.AUTO])
def test_batches_of_merged_logs_are_written_whole(mode: ApplyMode) -> None:
    # Between the transactions of a batch the target would have a position without the state of the logs at it.
    logs = MergedLogs((NodeLog.unknown(Lsn(1)),))
    single, merged = planned(1, 1), planned(1, 1)
    single = replace(single, batch=replace(single.batch, last=LastCommit.unknown(Lsn(200))))
    merged = replace(merged, batch=replace(merged.batch, last=LastCommit.unknown(Lsn(200), logs=logs)))
    chosen, told = chooser(ApplyPolicy(mode))
    assert {chosen.choose(merged).way for _ in range(4 * PROBE_EVERY)} == {None}
    assert ("the source merges several logs" in " ".join(told)) == (mode is not ApplyMode.AUTO)
    assert mode is ApplyMode.AUTO or chosen.choose(single).way is not None


def test_a_target_that_makes_batches_of_everything_gets_batches() -> None:
    policy = ApplyPolicy(ApplyMode.TRANSACTIONAL)
    assert ApplyModeSelector(policy, None, None, pytest.fail).choose(planned()) == ApplyPlan()


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (planned(chunks={TableId("t"): WHOLE}), "joins"),
        (planned(resumed=frozenset({TableId("t")})), "joins"),
        (planned(restructured=frozenset({TableId("t")})), "structure"),
        (planned(soft_delete=True), "deleted rows"),
        (planned(scattered=True), "on several nodes"),
    ],
)
def test_what_cannot_be_written_one_by_one_is_said_once(batch: PlannedBatch, why: str) -> None:
    made, told = chooser(ApplyPolicy(ApplyMode.TRANSACTIONAL, lanes=1))
    assert [made.choose(batch), made.choose(batch)] == [ApplyPlan(), ApplyPlan()]
    assert len(told) == 1
    assert why in told[0]
    assert made.choose(planned()).mode is ApplyMode.TRANSACTIONAL
    made.choose(batch)
    assert len(told) == 2


def test_rates_are_measured_once_and_shown() -> None:
    target = Target()
    made = ApplyModeSelector(ApplyPolicy(ApplyMode.GROUPED, lanes=1), target, None, pytest.fail)
    for _ in range(3):
        tuning = made.choose(planned()).tuning
    assert target.measured == 1
    assert tuning == {"lanes": 1, "commit_rate_low": 100, "commit_rate_high": 1100, "group_size": 1}


def test_groups_double_while_commits_come_often_and_halve_else() -> None:
    groups = GroupTuner(RATES)
    sizes = []
    for _ in range(12):
        # 3,200 source transactions a second, whatever the group.
        groups.learn(commits=3200 // groups.size, seconds=1.0)
        sizes.append(groups.size)
    assert sizes[:5] == [2, 4, 8, 16, 8]
    assert set(sizes[4:]) == {8, 16}
    for _ in range(5):
        groups.learn(commits=5, seconds=1.0)
    assert groups.size == 1


def lanes_after(costs: dict[int, float], batches: int) -> list[int]:
    tuner = LaneTuner()
    chosen = []
    for _ in range(batches):
        lanes = tuner.choose(LANES_FROM)
        chosen.append(lanes)
        tuner.learn(lanes, LANES_FROM, 1000, costs[lanes])
    return chosen


def test_more_lanes_are_kept_where_they_help() -> None:
    assert lanes_after({1: 1.0, 2: 0.5, 4: 0.3}, 20)[-1] == 4
    found = lanes_after({1: 1.0, 2: 1.1, 4: 9.9}, 3 * PROBE_EVERY)
    assert found.count(2) == 4
    assert 4 not in found
    assert found[-2] == 1


def test_both_neighbours_of_a_number_of_lanes_are_tried_again() -> None:
    tuner = LaneTuner()
    costs = {1: 1.0, 2: 0.5, 4: 0.9}
    for _ in range(10):
        lanes = tuner.choose(LANES_FROM)
        tuner.learn(lanes, LANES_FROM, 1000, costs[lanes])
    costs[1] = 0.1  # One lane has become the best.
    chosen = []
    for _ in range(12 * PROBE_EVERY):
        chosen.append(tuner.choose(LANES_FROM))
        tuner.learn(chosen[-1], LANES_FROM, 1000, costs[chosen[-1]])
    assert chosen[0] == 2
    assert chosen[-PROBE_EVERY // 2] == 1


def test_small_batches_tell_nothing_of_lanes() -> None:
    tuner = LaneTuner()
    assert [tuner.choose(LANES_FROM - 1) for _ in range(200)] == [1] * 200


def run(tuner: NettingCostModel, batches: int, changes: int, tables: int, net_rows: int) -> list[bool]:
    """On a target where a table costs 1 ms, a net row 8 us and a change by itself 16 us."""
    ways = []
    for _ in range(batches):
        net = tuner.choose(changes)
        ways.append(net)
        took = tables + net_rows * 0.008 if net else 1 + changes * 0.016
        tuner.learn(Written(changes, tables, net_rows if net else None, took))
    return ways


def test_few_changes_in_many_tables_are_written_one_by_one_and_many_as_net_changes() -> None:
    tuner = NettingCostModel()
    ways = run(tuner, 300, changes=40, tables=10, net_rows=40)
    assert ways[: IN_A_ROW - 1] == [True] * (IN_A_ROW - 1)
    assert ways[-PROBE_EVERY:].count(True) <= 1
    ways = run(tuner, 300, changes=50_000, tables=10, net_rows=50_000)
    assert ways[-PROBE_EVERY:].count(False) <= 1


def test_a_way_of_writing_that_was_slow_for_a_time_is_tried_again() -> None:
    """Each was slow for some batches, and far quicker than the other since."""
    for net_was_slow in (True, False):
        tuner = NettingCostModel()
        for _ in range(24):
            tuner.learn(Written(500, 2, 500 if net_was_slow else None, 20_000.0))
            tuner.learn(Written(500, 2, None if net_was_slow else 500, 50.0))
        tuner.costs.current = not net_was_slow
        for _ in range(1_000):
            net = tuner.choose(500)
            took = 5.0 if net is net_was_slow else 50.0
            tuner.learn(Written(500, 2, 500 if net else None, took))
        assert tuner.net is net_was_slow


def test_rows_that_change_again_and_again_are_worth_netting() -> None:
    tuner = NettingCostModel()
    run(tuner, 200, changes=2_000, tables=2, net_rows=20)
    assert tuner.net
    assert tuner.net_share < 0.1


def test_a_table_without_a_key_is_netted_unless_transactions_are_to_stay_apart() -> None:
    batch = planned(mode=KeyMode.BAG)
    made, _ = chooser(ApplyPolicy())
    assert [made.choose(batch) for _ in range(20)] == [ApplyPlan()] * 20
    assert chooser(ApplyPolicy(ApplyMode.TRANSACTIONAL))[0].choose(batch).way is not None


def test_auto_never_writes_a_large_batch_one_by_one() -> None:
    made, _ = chooser(ApplyPolicy())
    assert [made.choose(planned(records=MOST_SINGLE + 1)) for _ in range(3 * PROBE_EVERY)] == [
        ApplyPlan()
    ] * 3 * PROBE_EVERY


def test_one_odd_batch_changes_nothing() -> None:
    tuner = NettingCostModel()
    run(tuner, 100, changes=50_000, tables=4, net_rows=40_000)
    before = tuner.net
    for _ in range(IN_A_ROW - 1):
        tuner.choose(3)
    run(tuner, 1, changes=50_000, tables=4, net_rows=40_000)
    assert (before, tuner.net) == (True, True)


def test_auto_says_why_it_changes_and_keeps_a_batch_one_transaction() -> None:
    made, told = chooser(ApplyPolicy())
    for _ in range(100):
        chosen = made.choose(planned(records=30, transactions=10))
        took = 12.0 if chosen.way is None else 1.5
        made.learn(chosen, 10, Written(30, 8, 30 if chosen.way is None else None, took))
    assert chosen.mode is ApplyMode.GROUPED
    assert chosen.way == InOrderPlan(group=10)
    assert len(told) == 1
    assert told[0].startswith("changes one by one from now on: a batch of about 30 changes in")
    assert chosen.tuning["net_ms"] > chosen.tuning["single_ms"]
