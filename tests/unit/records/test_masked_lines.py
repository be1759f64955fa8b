"""COPY text is masked as records of the log are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.identity import RelationId, TableName
from engine.model.masks import HashType, Mask, MaskMethod, mark_of, masking
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.net.copy_text import decode_copy_text
from engine.records.masked_lines import mask_lines

KEY = "a key of 16 or more"
MASKS = [
    Mask(MaskMethod.NULL),
    Mask(MaskMethod.CONSTANT, "a\tb\\c\n\\N"),
    Mask(MaskMethod.HASH),
    Mask(MaskMethod.HASH, type=HashType.BYTEA),
]
SCHEMA = TableSchema(
    TableName("s", "t"),
    RelationId(1),
    tuple(Column(name, SourceType("text"), number) for number, name in enumerate("abc", start=1)),
    (),
    KeyMode.BAG,
    ReplicaIdentity.FULL,
)
SPECIAL = {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
letters = st.characters(exclude_characters="\0", codec="utf-8") | st.sampled_from("\t\n\r\b\f\v\\N")
rows = st.lists(st.tuples(*[st.none() | st.text(letters)] * 3), max_size=5)


def copied(value: str | None) -> str:
    return "\\N" if value is None else "".join(SPECIAL.get(each, each) for each in value)


@given(rows, st.sampled_from(MASKS))
def test_lines_hold_what_the_function_of_the_mask_gives(values: list[tuple[str | None, ...]], mask: Mask) -> None:
    text = "".join("\t".join(map(copied, row)) + "\n" for row in values).encode()
    found = decode_copy_text(mask_lines([(1, mask)], KEY)(text), SCHEMA)
    function = masking(mask, KEY)

    def masked(value: str | None) -> str | None:
        given = None if value is None else function(value.encode())
        return None if given is None else given.decode()

    assert found.column(0).to_pylist() == [row[0] for row in values]
    assert found.column(1).to_pylist() == [masked(row[1]) for row in values]
    assert found.column(2).to_pylist() == [row[2] for row in values]


def test_hashes_need_a_key_and_depend_on_it() -> None:
    text = Mask(MaskMethod.HASH)
    assert masking(text, KEY)(b"a") != masking(text, KEY + "2")(b"a")
    assert masking(MASKS[3], KEY)(b"a") == b"\\x" + (masking(text, KEY)(b"a") or b"")
    for key in (None, "", "short"):
        with pytest.raises(ValueError, match="needs a key"):
            masking(text, key)
        assert mark_of(key) is None
    assert mark_of(KEY) not in {None, mark_of(KEY + "2")}


@pytest.mark.parametrize("mask", [(MaskMethod.CONSTANT,), (MaskMethod.HASH, "v"), (MaskMethod.CONSTANT, "a\0")])
def test_a_mask_that_makes_no_sense(mask: tuple[MaskMethod, str]) -> None:
    with pytest.raises(ValueError, match="value"):
        Mask(*mask)
