"""Random choices of the order-entry load: ranges, skew, shares, and the documents of its tables."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.tpcc import Kind, Scale, TpccWorkload
from bench.tpcc.inputs import LOAD_NAME_C, MIX, RUN_NAME_C, Inputs, Skew, last_name, nurand
from bench.tpcc.load import Loader
from server.declarations.table_body import TableBody

SMALL = Scale(warehouses=3, items=500, customers=60)


def inputs(scale: Scale = SMALL, seed: int = 1) -> Inputs:
    return Inputs(scale, Random(seed), Skew.drawn(Random(seed)))


def numbers(literal: str | None) -> list[int]:
    assert literal is not None
    return [int(part) for part in literal.strip("{}").split(",")]


@given(
    seed=st.integers(),
    a=st.sampled_from([255, 1023, 8191]),
    low=st.integers(0, 1),
    size=st.integers(1, 100_000),
    c=st.integers(0, 8191),
)
def test_skewed_numbers_stay_in_their_range(seed: int, a: int, low: int, size: int, c: int) -> None:
    assert low <= nurand(Random(seed), a, low, low + size - 1, c) < low + size


def test_skewed_numbers_reach_all_and_prefer_some() -> None:
    rng = Random(5)
    seen = Counter(nurand(rng, 1023, 1, 3000, 259) for _ in range(60_000))
    assert min(seen) == 1
    assert max(seen) == 3000
    hot = sum(count for _, count in seen.most_common(300))
    # Evenly drawn, the most frequent tenth would get some 13 percent.
    assert 0.25 < hot / 60_000 < 0.7


def test_last_names_are_spelled_by_three_digits() -> None:
    assert last_name(0) == "BARBARBAR"
    assert last_name(371) == "PRICALLYOUGHT"
    assert last_name(999) == "EINGEINGEING"
    names = {last_name(number) for number in range(1000)}
    assert len(names) == 1000
    assert max(map(len, names)) <= 16


def test_constants_of_last_names_are_as_far_apart_as_prescribed() -> None:
    apart = abs(RUN_NAME_C - LOAD_NAME_C)
    assert 65 <= apart <= 119
    assert apart not in {96, 112}


def test_mix_has_its_shares() -> None:
    assert MIX == {
        Kind.NEW_ORDER: 45,
        Kind.PAYMENT: 43,
        Kind.ORDER_STATUS: 4,
        Kind.DELIVERY: 4,
        Kind.STOCK_LEVEL: 4,
    }
    some = inputs()
    drawn = Counter(some.draw()[0] for _ in range(20_000))
    assert all(abs(drawn[kind] / 200 - share) < 1.5 for kind, share in MIX.items())


def test_new_orders_are_as_prescribed() -> None:
    some = inputs()
    remote, lines_seen, unknown = 0, 0, 0
    for _ in range(5_000):
        home, district, customer, items, suppliers, quantities = some.new_order()
        lines = list(zip(numbers(suppliers), numbers(items), numbers(quantities), strict=True))
        assert 5 <= len(lines) <= 15
        assert 1 <= int(home or 0) <= 3
        assert 1 <= int(district or 0) <= 10
        assert 1 <= int(customer or 0) <= 60
        assert all(1 <= supplier <= 3 and 1 <= quantity <= 10 for supplier, _, quantity in lines)
        known = [line for line in lines if line[1] <= SMALL.items]
        assert known == sorted(known)
        assert known == lines or (lines[:-1] == known and lines[-1][1] == SMALL.items + 1)
        unknown += known != lines
        remote += sum(supplier != int(home or 0) for supplier, _, _ in lines)
        lines_seen += len(lines)
    assert 20 <= unknown <= 90
    assert 0.006 < remote / lines_seen < 0.014


def test_payments_are_as_prescribed() -> None:
    some, remote, named = inputs(), 0, 0
    for _ in range(5_000):
        home, district, theirs, their_district, customer, name, amount = some.payment()
        assert (customer is None) != (name is None)
        assert 1 <= float(amount or 0) <= 5000
        assert home != theirs or district == their_district
        remote += home != theirs
        named += name is not None
    assert abs(remote / 50 - 15) < 2
    assert abs(named / 50 - 60) < 3


def test_one_warehouse_has_no_remote_ones() -> None:
    some = inputs(Scale(warehouses=1, items=100, customers=10))
    for _ in range(500):
        home, _, _, _, suppliers, _ = some.new_order()
        assert home == "1"
        assert set(numbers(suppliers)) == {1}
        assert some.payment()[2] == "1"


def test_names_asked_for_are_in_every_district() -> None:
    held = {last_name(number) for number in range(SMALL.customers)}
    some = inputs()
    asked = {name for name in (some.order_status()[3] for _ in range(2_000)) if name is not None}
    assert asked <= held
    assert len(asked) > 10


def test_same_seed_draws_the_same() -> None:
    first, second, other = inputs(seed=4), inputs(seed=4), inputs(seed=5)
    drawn = [first.draw() for _ in range(50)]
    assert drawn == [second.draw() for _ in range(50)]
    assert drawn != [other.draw() for _ in range(50)]


def test_tables_are_documents_of_a_subscription() -> None:
    bodies = [TableBody.model_validate(document) for document in TpccWorkload.tables]
    assert len({body.name for body in bodies}) == 9
    assert {body.schema_name for body in bodies} == {"tpcc"}
    assert [body.name for body in bodies if body.insert_only] == ["history"]


def test_scale_of_one_is_the_specifications() -> None:
    assert Scale.reduced(2, 1) == Scale(2) == Scale(warehouses=2, items=100_000, customers=3_000)
    assert Scale(1).delivered == 2_100
    assert Scale.reduced(1, 0.01) == Scale(1, 1_000, 30)
    with pytest.raises(ValueError, match="multiple of ten"):
        Scale(1, customers=15)


def test_first_rows_are_as_prescribed() -> None:
    rows = Loader(Scale(1, items=2_000, customers=1_500), 1, "2026-01-01 00:00:00+00")
    customers = [line.rstrip("\n").split("\t") for line in rows.customers(1, 1)]
    assert [row[5] for row in customers[:1000]] == [last_name(number) for number in range(1000)]
    assert 0.05 < sum(row[13] == "BC" for row in customers) / 1500 < 0.15
    data = [line.rstrip("\n").split("\t")[4] for line in rows.items()]
    assert all(26 <= len(text) <= 50 for text in data)
    assert 0.06 < sum("ORIGINAL" in text for text in data) / 2000 < 0.14
    orders, lines, waiting = rows.orders(1, 1)
    assert sorted(int(line.split("\t")[3]) for line in orders) == list(range(1, 1501))
    assert (len(waiting), sum("\\N" in line for line in orders)) == (450, 450)
    assert len(lines) == sum(int(line.split("\t")[6]) for line in orders)
