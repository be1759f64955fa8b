"""Each kind's positions are read back as they were written, in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.connectors import SOURCES
from engine.model.position import Lsn, MalformedPosition
from engine.model.positions import PositionForm, WholeNumberForm, is_position, single_mark
from engine.sources.postgres_log.position_form import PostgresLogForm

ALL = [*(kind.terms.form for kind in SOURCES.values()), WholeNumberForm()]
POSITION = st.integers(0, 2**64 - 1).map(Lsn)
every_form = pytest.mark.parametrize("form", ALL, ids=lambda form: type(form).__name__)


@every_form
@given(first=POSITION, second=POSITION)
def test_text_is_read_back_and_keeps_the_order(form: PositionForm, first: Lsn, second: Lsn) -> None:
    one, other = (form.parse(form.text(single_mark(each))) for each in (first, second))
    assert one == single_mark(first)
    assert (one <= other) == (first <= second)


@every_form
def test_the_example_is_taken_and_is_written_the_same(form: PositionForm) -> None:
    assert form.text(form.parse(form.example)) == form.example


@every_form
@pytest.mark.parametrize(
    "text", ["", " ", "-1", "0x10", "1e3", "+1", "٣", "x", "1/", "/1", "18446744073709551616", "1 "]
)
def test_anything_else_is_refused(form: PositionForm, text: str) -> None:
    with pytest.raises(MalformedPosition):
        form.parse(text)


@every_form
@given(position=POSITION)
def test_its_texts_are_known_as_positions(form: PositionForm, position: Lsn) -> None:
    assert is_position(form.text(single_mark(position)))


@pytest.mark.parametrize("text", ["", "latests", "0/", "0/16B3748 ", "007", "-1", "0/123456789", "nightly"])
def test_other_texts_are_no_positions(text: str) -> None:
    assert not is_position(text)


def test_lag_is_in_bytes_or_unknown() -> None:
    assert PostgresLogForm().lag(Lsn(100), Lsn(40)) == 60
    assert PostgresLogForm().lag(Lsn(40), Lsn(100)) == 0
    assert WholeNumberForm().lag(Lsn(100), Lsn(40)) is None


def test_a_leading_zero_is_refused_so_that_a_position_has_one_text() -> None:
    with pytest.raises(MalformedPosition):
        WholeNumberForm().parse("007")
