"""COPY's text form comes out as the rows that went in."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.control.verification import leaving_out
from engine.copy.split_task import decoded_but_refused
from engine.model.fault import EngineFault, FaultKind
from engine.model.quarantine import RefusedCause, Texts
from engine.net import decode_copy_text
from tests.unit.net.batch_builder import column, table

_ESCAPES = {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_THREE = table([column("a"), column("b", "int4"), column("c")], ["a"])
_TEXT = st.text(st.characters(exclude_characters="\0", codec="utf-8")) | st.text('\\\t\n\r\b\f\vNnt"')


def write(rows: list[tuple[str | None, ...]]) -> bytes:
    """As COPY TO writes it."""
    lines = ("\t".join("\\N" if v is None else "".join(_ESCAPES.get(c, c) for c in v) for v in row) for row in rows)
    return "".join(f"{line}\n" for line in lines).encode()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.none() | _TEXT, st.none() | st.integers(-9, 9), st.none() | _TEXT)))
@example([("\\N", None, "")])
@example([("\\", 1, "N"), ("", None, None)])
def test_round_trip(rows: list[tuple[str | None, int | None, str | None]]) -> None:
    text = write([(a, None if b is None else str(b), c) for a, b, c in rows])
    kept = bytes(text)
    batch = decode_copy_text(text, _THREE)
    assert batch.schema.names == ["c0", "c1", "c2"]
    assert list(zip(*(batch.column(i).to_pylist() for i in range(3)), strict=True)) == rows
    assert text == kept


def test_one_column() -> None:
    schema = table([column("a")], ["a"])
    assert decode_copy_text(b"\n\\N\nx\n", schema).column(0).to_pylist() == ["", None, "x"]


@pytest.mark.parametrize("text", [b"a\t1\n", b"a\t1\tb\tc\n", b"a\t1\tb\na\n", b"a\t1\tb", b"a\t1\tb\nrest", b"\n"])
def test_lines_of_another_shape_are_a_fault(text: bytes) -> None:
    with pytest.raises(EngineFault) as caught:
        decode_copy_text(text, _THREE)
    assert caught.value.kind is FaultKind.TABLE_STRUCTURE_CHANGED


def test_a_value_out_of_its_domain_is_a_fault_without_the_value() -> None:
    with pytest.raises(EngineFault) as caught:
        decode_copy_text(b"a\t99999999999\tb\n", _THREE)
    assert caught.value.kind is FaultKind.VALUE_OUT_OF_DOMAIN
    assert "column b" in caught.value.detail
    assert "999" not in str(caught.value)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(kind: type[bytes]) -> None:
    assert decode_copy_text(kind(b"a\t1\tb\\tc\n"), _THREE).to_pylist() == [{"c0": "a", "c1": 1, "c2": "b\tc"}]


def test_rows_that_cannot_be_decoded_are_left_out_up_to_a_number() -> None:
    text = write([("a", "1", "x"), ("b\t\\", "no", None), ("c", "3", "y"), (None, "nor this", "\r\n")])
    refused: list[tuple[Texts, RefusedCause]] = []
    found = decoded_but_refused(text, _THREE, decode_copy_text, refused, 2)
    assert [row["c0"] for batch in found for row in batch.to_pylist()] == ["a", "c"]
    assert [values for values, _ in refused] == [("b\t\\", "no", None), (None, "nor this", "\r\n")]
    assert {cause.code for _, cause in refused} == {"value_out_of_domain"}
    lenient = leaving_out(2)(text, _THREE)
    assert (lenient.num_rows, leaving_out(9)(write([("a", "no", "x")]), _THREE).num_rows) == (2, 0)
    for most in (0, 1):
        with pytest.raises(EngineFault):
            leaving_out(most)(text, _THREE)
