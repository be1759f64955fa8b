"""Texts of bytea are read as PostgreSQL reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.postgres.bytea_literals import bytea_value


@given(st.binary())
def test_both_formats_are_read_back(value: bytes) -> None:
    assert bytea_value("\\x" + value.hex()) == value
    escaped = "".join("\\\\" if one == 92 else chr(one) if 32 <= one < 127 else f"\\{one:03o}" for one in value)
    assert bytea_value(escaped) == value


@pytest.mark.parametrize(
    ("text", "value"), [(r"\x 00 fF", b"\0\xff"), ("é", b"\xc3\xa9"), (r"x\\x", rb"x\x"), ("", b"")]
)
def test_other_texts_that_postgresql_reads(text: str, value: bytes) -> None:
    assert bytea_value(text) == value


@pytest.mark.parametrize("text", [r"\x0", r"\x0 0", r"\xgg", r"\x00\xff", "\\", r"\400", r"\12", r"a\b"])
def test_what_is_malformed_is_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not bytea in ") as refused:
        bytea_value(text)
    assert text not in str(refused.value)
