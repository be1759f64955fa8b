"""Numbers of keys: they sort as the keys do, and each number has a key at it or shortly before it."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.sources.mariadb.key_numbers import key_number, key_texts, numbers_of
from engine.sources.mariadb.types import ColumnFacts, printed

_TEXTS = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("aA \0\x01\ud7ff\ue000\uffff😀\U0010ffff"), max_size=6
)
KINDS: dict[str, tuple[ColumnFacts, Any]] = {
    "bigint": (ColumnFacts("a", "bigint", "bigint(20)", 19, 0, None, False), st.integers(-(2**63), 2**63 - 1)),
    "unsigned": (ColumnFacts("b", "bigint", "bigint(20) unsigned", 20, 0, None, False), st.integers(0, 2**64 - 1)),
    "decimal": (
        ColumnFacts("c", "decimal", "decimal(38,5)", 38, 5, None, False),
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}e-5")),
    ),
    "date": (ColumnFacts("d", "date", "date", None, None, None, False), st.dates(date(1000, 1, 1))),
    "datetime": (
        ColumnFacts("e", "datetime", "datetime(6)", None, None, 6, False),
        st.datetimes(datetime(1000, 1, 1)),  # noqa: DTZ001
    ),
    "text": (ColumnFacts("f", "varchar", "varchar(6)", None, None, None, False, "utf8mb4_nopad_bin"), _TEXTS),
    "bytes": (ColumnFacts("g", "varbinary", "varbinary(5)", None, None, None, False), st.binary(max_size=5)),
}


def shown(value: Any) -> str:
    """As the source prints the value."""
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


@given(st.data())
def test_numbers_sort_as_keys_do(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3))
    facts, strategies = zip(*(KINDS[kind] for kind in kinds), strict=True)
    columns = []
    for each in facts:
        how = printed(each)
        assert how is not None
        columns.append(numbers_of(each, how))
    one, other = data.draw(st.tuples(*strategies)), data.draw(st.tuples(*strategies))
    low, high = sorted(key_number(columns, [*map(shown, key)]) for key in (one, other))
    assert key_number(columns, [*map(shown, min(one, other))]) == low
    assert (low == high) is (one == other)
    middle = (low + high) // 2
    if not {"date", "datetime"} & set(kinds):  # Of these, each month has 28 days.
        assert key_number(columns, key_texts(columns, middle)) <= middle
        assert key_texts(columns, low) == [*map(shown, min(one, other))]
