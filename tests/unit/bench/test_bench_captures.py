"""The evaluation of the rounds of `triggers`."""

from __future__ import annotations

from bench.captures import CSV, LOG, NONE, TRIGGERS, WAYS, added, describe_round, kept, turn
from bench.report_tables import of_captures
from bench.suite import Order
from bench.workload import Mode
from bench.workloads import WORKLOADS


def test_each_way_is_first_in_turn() -> None:
    assert [turn(number)[0] for number in range(5)] == [*WAYS, WAYS[0]]
    assert all(set(turn(number)) == set(WAYS) for number in range(3))
    assert Order().size(WORKLOADS["triggers"]).rounds % len(WAYS) == 0


def test_what_is_kept_is_compared_with_the_uncaptured_source() -> None:
    rates = {NONE: 4000.0, LOG: 3900.0, TRIGGERS: 3000.0, CSV: 2600.0}
    sides = {way: {"transactions_per_s": rate, "drain_rows_per_s": 10 * rate} for way, rate in rates.items()}
    assert (kept(sides, LOG), kept(sides, TRIGGERS)) == (0.975, 0.75)
    line = describe_round({"sides": sides, "ratio": 0.75, "ratio_of_log": 0.975, "ratio_of_csv": 0.65})
    assert "98% with the log, 75% with triggers, 65% with CSV triggers" in line
    assert "triggers add 0.62 of the time that CSV triggers add" in line
    assert "triggers 30,000" in line
    assert "(triggers 1.1 times as fast as the CSV reader)" in line
    assert added({**sides, CSV: sides[NONE]}, TRIGGERS) is None


def test_the_goals_are_under_their_columns() -> None:
    figures = {"transactions_per_s": 100.0, "drain_rows_per_s": 1000.0}
    rates = {NONE: 100.0, LOG: 100.0, TRIGGERS: 80.0, CSV: 50.0}
    document = {
        "mode": Mode.CAPTURES.value,
        "sides": [NONE, LOG, TRIGGERS],
        "rounds": [
            {
                "sides": {
                    way: {"transactions_per_s": rates[way], "drain_rows_per_s": 250.0 if way == CSV else 1000.0}
                    for way in WAYS
                }
            }
        ],
        "summary": dict.fromkeys(WAYS, figures),
        "waits": {TRIGGERS: {"waits": {"p50_ms": 200.0, "p99_ms": 400.0}}},
    }
    ((_, _, (head, *rows, goals)),) = of_captures([document])
    found = {column: (row, goal) for column, row, goal in zip(head, rows[-1], goals, strict=True)}
    assert found.pop("capture") == (TRIGGERS, "goal for triggers")
    assert {column: values for column, values in found.items() if values[1] is not None} == {
        "of the uncaptured (all rounds)": (rows[-1][2], "at least 0.70"),
        "added time, of what CSV triggers add (all rounds)": ("0.25", "at most 0.80"),
        "rows/s drained": (1000.0, "at least 150,000"),
        "in multiples of the CSV reader's (all rounds)": ("4.00", "at least 3.0"),
        "median wait, ms": (200.0, "at most 300"),
    }
