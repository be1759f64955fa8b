"""Durations and table names as written on the command line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.cli.arguments import duration_ms, table_name


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 500), ("30", 30_000), ("30s", 30_000), ("1.5s", 1500), (" 5m ", 300_000), ("1h", 3_600_000), ("0", 0)],
)
def test_duration(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "s", "-1s", "5 days", "1e3", "1m30s", "½s"])
def test_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", ("public", "orders")),
        ("sales.orders", ("sales", "orders")),
        ('"a.b".c', ("a.b", "c")),
        ('a."say ""hi"""', ("a", 'say "hi"')),
        ("Straße.Ärger/1", ("Straße", "Ärger/1")),
    ],
)
def test_table_name(text: str, expected: tuple[str, str]) -> None:
    assert table_name(text) == expected


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a.b.c", '"a', 'a"b', '"a"b', '""', 'a.""', '"a".'])
def test_not_a_table_name(text: str) -> None:
    with pytest.raises(ValueError, match="not a table"):
        table_name(text)


_NAMES = st.text(st.sampled_from('aB."ß /'), min_size=1, max_size=6)


@given(_NAMES, _NAMES)
def test_any_name_can_be_written_in_quotes(schema: str, name: str) -> None:
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, name))
    assert table_name(quoted) == (schema, name)
