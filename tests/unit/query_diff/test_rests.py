"""How long cycles rest: by their share of the time, by bytes, and by how much slower the source is than it was."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.identity import TableName
from engine.sources.query_diff import rests
from engine.sources.query_diff.given import Manners
from engine.sources.query_diff.rests import Read, Rests

ORDERS, LINES = TableName("public", "orders"), TableName("public", "lines")
DAY_S = 86_400.0


def read(seconds: float, amount: int, *, scan: str | None = "rows", table: TableName = ORDERS) -> Read:
    return Read(table, scan, seconds, amount, amount)


def test_no_more_bytes_arrive_in_a_second_than_permitted() -> None:
    at_most = Rests(Manners(bytes_per_s=1000))
    assert at_most.after(read(1.0, 5000)) == pytest.approx(4.0)
    assert at_most.after(read(1.0, 500)) == 0.0, "a slower read needs no rest"
    assert Rests(Manners(bytes_per_s=1000, time_share=0.1)).after(read(1.0, 5000)) == pytest.approx(9.0)


def test_a_source_that_is_three_times_slower_is_read_for_a_third_of_the_time() -> None:
    giving = Rests(Manners(give_way=True))
    assert giving.after(read(1.0, 3000)) == 0.0
    assert giving.after(read(1.0, 1000)) == pytest.approx(2.0)
    assert giving.after(read(1.1, 3000)) == 0.0, "a little slower is usual"
    assert giving.after(read(1.0, 1)) == pytest.approx(9.0), "a tenth of the time is left"
    assert Rests(Manners()).after(read(1.0, 1)) == 0.0


def test_only_reads_of_one_kind_and_table_are_compared() -> None:
    giving = Rests(Manners(give_way=True))
    assert giving.after(read(1.0, 3000)) == 0.0
    assert giving.after(read(1.0, 1000, table=LINES)) == 0.0
    assert giving.after(read(1.0, 1000, scan="hashes")) == 0.0
    assert giving.after(read(1.0, 1000, scan=None)) == 0.0, "rows that were looked for"
    assert giving.after(read(0.001, 1)) == 0.0, "too short to say anything"
    assert giving.after(read(1.0, 0)) == 0.0, "an empty table"


def test_a_source_that_became_slower_for_good_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(rests, "time", SimpleNamespace(monotonic=lambda: now.s))
    giving = Rests(Manners(give_way=True))
    assert giving.after(read(1.0, 4000)) == 0.0
    now.s = DAY_S
    assert giving.after(read(1.0, 1000)) == pytest.approx(1.0)
    now.s = 2 * DAY_S
    assert giving.after(read(1.0, 1000)) == 0.0
    assert giving.after(read(1.0, 4000)) == 0.0, "and a fast read is the fastest one then"
    assert giving.after(read(1.0, 1000)) == pytest.approx(3.0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.integers(0, 10**9)), max_size=30), st.floats(0.05, 1.0))
def test_a_rest_is_never_negative_and_never_endless(reads: list[tuple[float, int]], share: float) -> None:
    giving = Rests(Manners(give_way=True, time_share=share))
    for seconds, amount in reads:
        rest = giving.after(read(seconds, amount))
        assert 0.0 <= rest <= seconds * max(9.0, 1 / share - 1) + 1e-9
