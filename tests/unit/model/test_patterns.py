"""Which names a pattern takes."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.identity import TableName
from engine.model.patterns import TablePattern, matches

SHORT = st.text("ab*", max_size=8)


@given(SHORT, st.text("ab", max_size=8))
def test_an_asterisk_stands_for_anything_and_every_other_character_for_itself(pattern: str, name: str) -> None:
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert matches(pattern, name) == (re.fullmatch(expression, name) is not None)


@pytest.mark.parametrize("name", ["a.b", "a\nb", "a[b]", "ä%"])
def test_characters_that_mean_something_elsewhere_mean_nothing_here(name: str) -> None:
    assert matches(name, name)
    assert matches(f"*{name[1:]}", name)
    assert not matches(name.replace(name[1], "x"), name)


def test_many_asterisks_take_no_more_time() -> None:
    started = time.monotonic()
    assert not matches("*a" * 100 + "*b", "a" * 255)
    assert time.monotonic() - started < 1


def test_a_pattern_is_of_one_schema_and_leaves_out_what_it_excludes() -> None:
    pattern = TablePattern("public", "order_*", ("*_old", "order_7"))
    taken = [TableName("public", name) for name in ("order_", "order_1")]
    left = [TableName("public", name) for name in ("order_old", "order_7", "orders")] + [TableName("other", "order_1")]
    assert [pattern.takes(table) for table in [*taken, *left]] == [True, True, False, False, False, False]
