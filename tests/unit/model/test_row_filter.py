"""Which conditions may be row filters. What is pasted into SQL must not be able to leave its parentheses, or to call anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.row_filter import UnfitFilterError, columns_of, row_filter


@pytest.mark.parametrize(
    ("condition", "columns"),
    [
        ("a = 1", {"a"}),
        ("A = 'x''y' AND not (\"Odd \"\"name\" IS NULL)", {"a", 'Odd "name'}),
        ("a in (1, 2.5, -3) or b not like 'p%' and c", {"a", "b", "c"}),
        ("a between b and c or a is distinct from b", {"a", "b", "c"}),
        ("état <> 'x;y--z/*' or É_A % 2 = 0", {"état", "É_a"}),
        ("(a ~* '^x') or (b || c = 'd') or true", {"a", "b", "c"}),
    ],
)
def test_conditions_of_columns_and_literals(condition: str, columns: set[str]) -> None:
    assert columns_of(condition) == columns


@pytest.mark.parametrize(
    "condition",
    [
        "true) ; drop table users --",
        "true) ; drop table users; select (a",
        "a = 1; select 1",
        "a) or (b",
        "(a",
        "a = 1 -- comment",
        "a = 1 /* comment */",
        "a = pg_sleep(1)",
        'a = "pg_sleep"(1)',
        "a = pg_catalog.pg_sleep (1)",
        "a in (select 1 from (b))",
        "exists (select 1)",
        "a = $1",
        "a = $$x$$",
        "a = $q$x$q$",
        "a = E'\\''",
        "a = e'x'",
        "a = U&'x'",
        "a = 'x\\' or b = '",
        "a = 'open",
        'a = "open',
        "t.a = 1",
        "a = 1.e5",
        "a = 12abc",
        "a::text = 'b'",
        "a[1] = 2",
        "a @> b",
        "a = '\0'",
        "1 = 1",
        "true",
        "",
        "a\u00a0=\u20281",
        "a = b --c",
        "a = :b",
        "a ? 'b'",
    ],
)
def test_what_else_a_condition_may_hold_is_refused(condition: str) -> None:
    if condition in {"a in (select 1 from (b))", "a\u00a0=\u20281"}:
        # Words and odd letters are names of columns, which the table does not have.
        with pytest.raises(UnfitFilterError):
            row_filter(condition, {"a": 1, "b": 2})
        return
    with pytest.raises(UnfitFilterError):
        row_filter(condition, {"a": 1, "b": 2, "t": 3, "users": 4})


PARTS = ["a", "b", "(", ")", "'", '"', "--", "/*", "*/", ";", "=", "and", " ", "1", "\\", "$", "E", "'x'", "select"]


@given(st.lists(st.sampled_from(PARTS)))
def test_an_accepted_condition_stays_within_its_parentheses(parts: list[str]) -> None:
    condition = "".join(parts)
    try:
        columns_of(condition)
    except UnfitFilterError:
        return
    depth, quote, outside = 0, "", ""
    for letter in condition:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
            outside += "?"
        else:
            outside += letter
            depth += {"(": 1, ")": -1}.get(letter, 0)
            assert depth >= 0
    assert (depth, quote) == (0, "")
    assert not any(part in outside for part in (";", "\\", "--", "/*"))


def test_numbers_of_columns() -> None:
    assert row_filter("b > a", {"a": 4, "b": 9, "c": 1}).columns == ((4, "a"), (9, "b"))
    with pytest.raises(UnfitFilterError, match="does not have these columns of the row filter: current_user"):
        row_filter("a = current_user", {"a": 1})
