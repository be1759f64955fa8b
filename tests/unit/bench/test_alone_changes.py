"""The made-up changes of `techniques`, and every way of applying them on a small scale."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.isolated import changes as made
from bench.isolated.techniques import TECHNIQUES, Technique, measure
from bench.techniques import describe_technique

SMALL = made.make(2_000, 1)


def test_the_same_changes_are_made_every_time() -> None:
    again = made.make(2_000, 1)
    assert np.array_equal(again.delta, SMALL.delta)
    assert all(np.array_equal(again.keys[table], SMALL.keys[table]) for table in made.KEYED)


@pytest.mark.parametrize("table", made.KEYED)
def test_images_hold_the_running_balance_of_their_row(table: str) -> None:
    balances: dict[int, int] = {}
    for key, delta, image in zip(SMALL.keys[table], SMALL.delta, SMALL.balances[table], strict=True):
        balances[int(key)] = balances.get(int(key), 0) + int(delta)
        assert image == balances[int(key)]
    rows = made.sizes(1)[table]
    assert SMALL.balances_after(table, SMALL.transactions, rows).tolist() == [
        balances.get(key, 0) for key in range(rows)
    ]


@pytest.mark.parametrize("table", made.KEYED)
def test_net_changes_are_the_last_of_each_row(table: str) -> None:
    part = slice(100, 700)
    last = {int(key): number for number, key in enumerate(SMALL.keys[table].tolist()) if 100 <= number < 700}
    assert sorted(np.asarray(made.net(SMALL, table, part)).tolist()) == sorted(last.values())


@pytest.mark.parametrize("table", made.KEYED)
def test_runs_cover_a_slice_and_hold_no_row_twice(table: str) -> None:
    found = list(made.runs(SMALL, table, slice(100, 400)))
    assert [number for one in found for number in range(one.start, one.stop)] == list(range(100, 400))
    for one in found:
        keys = SMALL.keys[table][one].tolist()
        assert len(keys) == len(set(keys)) > 0


@pytest.mark.parametrize("technique", TECHNIQUES, ids=lambda one: f"{one.name}-{one.netted}-{one.group}")
def test_every_way_ends_with_the_right_tables(technique: Technique, tmp_path: Path) -> None:
    few = made.make(120 if technique.group > 1 else 12, 1)
    found = measure(technique, few, 1, 60.0, tmp_path)
    assert found["equal"]
    assert (found["transactions"], found["row_changes"]) == (few.transactions, few.transactions * 4)
    assert found["rows_per_s"] > 0
    assert list(tmp_path.iterdir()) == []
    assert technique.name in describe_technique(found)


def test_wrong_tables_are_noticed(tmp_path: Path) -> None:
    lazy = Technique("nothing at all", False, 10, lambda connection, changes, part: None)
    assert not measure(lazy, SMALL, 1, 0.0, tmp_path)["equal"]


def test_a_way_stops_behind_the_group_in_which_its_time_is_over(tmp_path: Path) -> None:
    bulk = next(one for one in TECHNIQUES if one.netted and one.group == 10)
    assert measure(bulk, SMALL, 1, 0.0, tmp_path)["transactions"] == 10
