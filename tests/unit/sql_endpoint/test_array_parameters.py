"""Arrays and exact numbers as parameters of the SQL endpoint."""

from __future__ import annotations

import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.target import QueryRefused
from engine.postgres.array_literals import array_elements, array_literal
from engine.postgres.wire_types import ARRAY_OF, TypeOid
from engine.sql_endpoint.postgres.binary_parameters import numeric_text
from engine.sql_endpoint.postgres.statements import cast_parameters
from engine.sql_endpoint.postgres.types import cast_of
from engine.targets.duckdb.query_process import bound_values

_NUMBERS = ARRAY_OF[TypeOid.NUMERIC]


@given(st.lists(st.none() | st.text(st.sampled_from('a,b{}"\\ \tNULnul') | st.characters(exclude_categories=["Cs"]))))
def test_what_is_written_is_read(texts: list[str | None]) -> None:
    assert array_elements(array_literal(texts)) == texts


@pytest.mark.parametrize(
    ("literal", "elements"),
    [
        ("{}", []),
        (" { } ", []),
        ('{ a b , NULL,null ,"NULL"}', ["a b", None, None, "NULL"]),
        (r'{a\,b,"c\"d",\N}', ["a,b", 'c"d', "N"]),
        ('{""}', [""]),
    ],
)
def test_literals_that_clients_write(literal: str, elements: list[str | None]) -> None:
    assert array_elements(literal) == elements


@pytest.mark.parametrize(
    "literal",
    [
        "",
        "a",
        "{",
        "}",
        "{a",
        "a}",
        "{a,}",
        "{,a}",
        "{{1},{2}}",
        "[0:1]={1,2}",
        "{a}b",
        '{"a}',
        '{"a"b}',
        "{a\\}",
        "{a\\ }",
    ],
)
def test_what_is_no_array_of_one_dimension_is_refused(literal: str) -> None:
    with pytest.raises(ValueError, match="array literal"):
        array_elements(literal)


@pytest.mark.parametrize(
    "literal", ["{" + " " * 200_000, "{" + "a " * 100_000, "{" + "\\a" * 100_000, '{"' + "a" * 200_000]
)
def test_long_malformed_literals_are_refused_at_once(literal: str) -> None:
    with pytest.raises(ValueError, match="array literal"):
        array_elements(literal)


@pytest.mark.parametrize(
    ("oid", "value", "cast"),
    [
        (ARRAY_OF[TypeOid.INT8], "{1}", "BIGINT[]"),
        (ARRAY_OF[TypeOid.TEXT], None, "TEXT[]"),
        (ARRAY_OF[TypeOid.UUID], "{}", "UUID[]"),
        (ARRAY_OF[TypeOid.BYTEA], "{}", "BYTEA[]"),
        (ARRAY_OF[TypeOid.OID], "{}", None),
        (TypeOid.BYTEA, None, "BYTEA"),
        (TypeOid.INT4, "1", "INTEGER"),
        (TypeOid.NUMERIC, "-1.50", "DECIMAL(3,2)"),
        (TypeOid.NUMERIC, None, "DECIMAL(1,0)"),
        (TypeOid.NUMERIC, "Infinity", None),
        (TypeOid.NUMERIC, "9" * 38, "DECIMAL(38,0)"),
        (TypeOid.NUMERIC, "1E+38", None),
        (_NUMBERS, None, "DECIMAL(1,0)[]"),
        (_NUMBERS, "{NULL}", "DECIMAL(1,0)[]"),
        (_NUMBERS, "{1.50,-20}", "DECIMAL(4,2)[]"),
        (_NUMBERS, "{0.001,1E+5}", "DECIMAL(9,3)[]"),
        (_NUMBERS, "{NaN,1}", None),
        (_NUMBERS, "{{1},{2}}", None),
        (_NUMBERS, "{x}", None),
    ],
)
def test_the_type_of_a_declared_parameter(oid: int, value: str | None, cast: str | None) -> None:
    assert cast_of(oid, value) == cast


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**12), max_value=10**12)))
def test_the_type_of_numbers_holds_them_exactly(numbers: list[Decimal]) -> None:
    cast = cast_of(_NUMBERS, array_literal([str(number) for number in numbers]))
    assert cast is not None
    precision, scale = map(int, cast.removeprefix("DECIMAL(").removesuffix(")[]").split(","))
    for number in numbers:
        digits = number.as_tuple()
        assert isinstance(digits.exponent, int)
        assert -digits.exponent <= scale
        assert len(digits.digits) + digits.exponent <= precision - scale


@pytest.mark.parametrize(
    ("sql", "written"),
    [
        ("$1::numeric + $2", "CAST($1 AS DECIMAL(2,1)) + $2"),
        ("$1 :: /* exact */ NUMERIC", "CAST($1 AS DECIMAL(2,1))"),
        ("$1::numeric(10, 2)", "CAST($1 AS DECIMAL(2,1))::numeric(10, 2)"),
        ("$1::numeric[]", "CAST($1 AS DECIMAL(2,1))::numeric[]"),
        ("$1::int", "CAST($1 AS DECIMAL(2,1))::int"),
        ("$1::numeric::int", "CAST($1 AS DECIMAL(2,1))::int"),
        ("'$1::numeric'", "'$1::numeric'"),
        ("$1::", "CAST($1 AS DECIMAL(2,1))::"),
    ],
)
def test_a_number_is_not_rounded_by_a_cast_without_limits(sql: str, written: str) -> None:
    assert cast_parameters(sql, {1: "DECIMAL(2,1)"}) == written


def test_an_array_of_numbers_is_not_rounded_by_a_cast_without_limits() -> None:
    kind = "DECIMAL(2,1)[]"
    assert cast_parameters("x = ANY ($1::numeric[])", {1: kind}) == f"x = ANY (CAST($1 AS {kind}))"
    for kept in ("$1::numeric", "$1::numeric[][]", "$1::decimal(9, 2)[]"):
        assert cast_parameters(kept, {1: kind}) == kept.replace("$1", f"CAST($1 AS {kind})")


@given(st.integers(0, 10**60), st.integers(0, 40), st.booleans())
def test_binary_numbers_keep_all_their_digits(unscaled: int, scale: int, negative: bool) -> None:
    whole, part = divmod(unscaled, 10**scale)
    text = str(whole) + (f".{part:0{scale}}" if scale else "")
    assert numeric_text(_sent(whole, part, scale, negative=negative)) == ("-" if negative else "") + text


def _sent(whole: int, part: int, scale: int, *, negative: bool) -> bytes:
    """As numeric_send writes it: groups of four digits, without leading zero groups."""
    left = str(whole)
    left = left.rjust(-(-len(left) // 4) * 4, "0")
    right = f"{part:0{scale}}" if scale else ""
    right = right.ljust(-(-len(right) // 4) * 4, "0")
    groups = [int((left + right)[at : at + 4]) for at in range(0, len(left + right), 4)]
    weight = len(left) // 4 - 1
    while groups and groups[0] == 0:
        groups, weight = groups[1:], weight - 1
    header = struct.pack(">hhHh", len(groups), weight, 0x4000 if negative else 0, scale)
    return header + b"".join(struct.pack(">h", group) for group in groups)


def test_a_group_of_more_than_four_digits_is_malformed() -> None:
    with pytest.raises(ValueError, match="too large"):
        numeric_text(struct.pack(">hhHhh", 1, 0, 0, 0, -5))


def test_only_arrays_are_read_as_arrays() -> None:
    given = ["{1,NULL}", "{1}", "[1]", None]
    assert bound_values(["1", "2", "3", "4"], given, {"1", "3", "4"}) == {
        "1": ["1", None], "2": "{1}", "3": "[1]", "4": None,
    }  # fmt: skip
    with pytest.raises(QueryRefused, match=r"\$1 is not an array literal of one dimension") as refused:
        bound_values(["1"], ["{{secret}}"], {"1"})
    assert "secret" not in str(refused.value.detail)
