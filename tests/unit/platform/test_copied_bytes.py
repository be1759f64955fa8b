"""Bytes are copied to their place, and no other byte is written."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.platform.compiled import copy_bytes


@given(data=st.binary(max_size=300), start=st.integers(0, 300), size=st.integers(0, 300), at=st.integers(0, 80))
def test_exactly_these_bytes_are_copied(data: bytes, start: int, size: int, at: int) -> None:
    start = min(start, len(data))
    size = min(size, len(data) - start)
    out = np.full(at + size + 40, 0xA5, np.uint8)
    copy_bytes(np.frombuffer(data, np.uint8), start, size, out, at)
    assert out.tobytes() == b"\xa5" * at + data[start : start + size] + b"\xa5" * 40


def test_a_negative_size_copies_nothing() -> None:
    out = np.zeros(4, np.uint8)
    copy_bytes(np.ones(4, np.uint8), 0, -1, out, 0)
    assert not out.any()
