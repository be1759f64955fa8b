"""Positions parse and print as PostgreSQL does, and compare as the log orders them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.position import Lsn, MalformedPosition

VALUES = st.integers(min_value=0, max_value=2**64 - 1)


@given(VALUES)
def test_prints_and_parses(value: int) -> None:
    assert Lsn.parse(str(Lsn(value))).value == value


@given(VALUES, VALUES)
def test_orders_by_place_in_the_log(one: int, other: int) -> None:
    assert (Lsn(one) < Lsn(other)) == (one < other)
    assert (Lsn(one) >= Lsn(other)) == (one >= other)


@pytest.mark.parametrize(
    "text", ["", "0", "/", "0/", "/0", "0/xyz", "0/1/2", "-1/0", "0/123456789", " 0/1", "0/+1", "0x1/2", "１/0"]
)
def test_refuses_anything_else(text: str) -> None:
    with pytest.raises(MalformedPosition, match="0/16B3748"):
        Lsn.parse(text)


def test_example_of_the_documentation() -> None:
    assert str(Lsn.parse("0/16b3748")) == "0/16B3748"
