"""The evaluation of the rounds of `lanes`: ratios, and what is reported where a condition does not hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench import budget, lanes, suite
from bench import workloads as catalogue
from bench.lanes import ONE, PAIRS, TWO, WAYS, position_wrong, ratios, turns, wrong_way
from bench.suite import Order
from bench.workload import Mode
from bench.workloads import WORKLOADS
from engine.model.position import Lsn

NAMES = list(dict.fromkeys(name for _, *pair in PAIRS for name in pair))


def _batch(mode: str = "transactional", **tuning: float) -> dict[str, Any]:
    return {"batch": 7, "mode": mode, "tuning": tuning}


def test_every_pair_has_the_ratio_of_two_connections_to_one() -> None:
    rates = {name: {"transactions_per_s": 100.0 * (at + 1)} for at, name in enumerate(NAMES)}
    expected = {name: round((NAMES.index(two) + 1) / (NAMES.index(one) + 1), 3) for name, one, two in PAIRS}
    assert ratios(rates) == expected
    assert expected["lanes, pessimistic"] == 2.0
    del rates[TWO.name]
    assert set(ratios(rates)) == set(expected) - {"lanes, pessimistic"}


def test_the_first_pair_is_one_lane_and_two_of_the_default_policy() -> None:
    assert PAIRS[0] == ("lanes, pessimistic", ONE.name, TWO.name)
    assert (ONE.policy, TWO.policy, ONE.lanes, TWO.lanes) == ("pessimistic", "pessimistic", 1, 2)
    assert ONE.name == "pessimistic, 1 connection"


def test_batches_that_were_written_in_another_way_are_named() -> None:
    assert wrong_way([_batch(lanes=2.0), _batch(lanes=2.0)], TWO) == []
    assert wrong_way([], TWO) == []
    (lanes_,) = wrong_way([_batch(lanes=2.0), _batch(lanes=1.0)], TWO)
    assert "batch 7 was written as transactional, over 1 lanes, instead of transactional over 2" in lanes_
    assert len(wrong_way([_batch("batch")], ONE)) == 1


def test_the_position_on_record_is_the_end_of_the_last_transaction() -> None:
    assert position_wrong(["0/A0"], ["0/A0"], Lsn(0x9F)) == []
    for recorded, ends, before in (
        (["0/90"], ["0/A0"], 0x80),
        (["0/A0"], ["0/A0"], 0xA0),
        ([], [], 0x80),
        (["0/A0", "0/A0"], ["0/A0", "0/A0"], 0x80),
    ):
        (told,) = position_wrong(recorded, ends, Lsn(before))
        assert str(Lsn(before)) in told


@pytest.mark.parametrize("quick", [True, False])
def test_every_second_round_can_be_the_other_way_round(quick: bool) -> None:
    size = Order(quick=quick).size(WORKLOADS["lanes"])
    assert size.rounds >= 2
    assert size.amount < 10_000 * size.scale, "transactions beside each other would share rows"
    ways, connections = turns(0)
    assert (ways, connections) == (list(WAYS), [1, 2])
    assert turns(1) == (ways[::-1], [2, 1])
    assert turns(2) == turns(0)


def test_it_fills_a_postgres_target_whatever_is_said() -> None:
    failed = suite.failure(WORKLOADS["lanes"], Order(target="duckdb"), "a reason")
    assert (failed["mode"], failed["target"], failed["apply"]) == ("lanes", lanes.TARGET, "transactional")


def test_it_has_nothing_beside_it_and_is_left_out_of_small_sizes() -> None:
    lane, order = WORKLOADS["lanes"], Order(against=True)
    assert Mode.LANES in catalogue.ONE_SIDED
    assert budget.seconds(lane, order) == budget.seconds(lane, replace(order, against=False)) > 0
    assert budget.seconds(lane, replace(order, rounds=2)) < budget.seconds(lane, order)
    assert (lane, Mode.LANES) in catalogue.everything(None, quick=False)
    assert (lane, Mode.LANES) not in catalogue.everything(None, quick=True)
    assert catalogue.everything(Mode.LANES, quick=True) == [(lane, Mode.LANES)]
