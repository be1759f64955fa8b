"""Hypothesis strategies for histories. A run of steps is drawn as bytes in one go: drawing would cost more than the test."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from tests.unit.net.history_model import Step

_VERBS = ["insert"] * 10 + ["delete"] * 6 + ["truncate"] * 2 + ["swap"] * 4 + ["move"] * 7 + ["update"] * 12
_BYTES = 3


def _steps(drawn: bytes) -> Sequence[Step]:
    whole = len(drawn) - len(drawn) % _BYTES
    return [_step(*drawn[at : at + _BYTES]) for at in range(0, whole, _BYTES)]


def _step(verb: int, row: int, other: int) -> Step:
    return Step(_VERBS[verb % len(_VERBS)], row % 8, other % 8, other // 8 % 8, verb >= 128, row // 8)


STEPS = st.binary(min_size=_BYTES, max_size=6 * _BYTES).map(_steps)
ENDINGS = st.sampled_from(["top", "top", "top", "saved", "rolled_back", "nest", "nest", "undo", "release"])
PARTS = st.lists(st.tuples(ENDINGS, STEPS), max_size=4)
"""`Transaction.parts`."""
