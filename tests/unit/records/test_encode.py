"""Records that we write are byte for byte those that PostgreSQL sends of the same changes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.control import ControlKind
from engine.model.fault import EngineFault
from engine.model.identity import RelationId, TableName
from engine.model.position import Lsn
from engine.model.schema import ReplicaIdentity
from engine.records.encode import (
    DELETE,
    INSERT,
    UPDATE,
    Texts,
    encode_rows,
    truncate_record,
)
from engine.records.messages import parse_truncate
from engine.records.relation import Announced, AnnouncedColumn, parse_relation, relation_record
from engine.records.scan import find_controls
from tests.fixtures.records import begin_record, commit_record
from tests.unit.net import pgoutput_encoder as wire

VALUE = st.none() | st.text(st.characters(codec="utf-8"), max_size=6)
SOME = RelationId(77)


@st.composite
def changes(draw: st.DrawFn) -> tuple[list[int], list[list[str | None]], list[list[str | None]]]:
    columns = draw(st.integers(1, 4))
    row = st.lists(VALUE, min_size=columns, max_size=columns)
    found = draw(st.lists(st.tuples(st.sampled_from([INSERT, UPDATE, DELETE]), row, row), max_size=8))
    return [each[0] for each in found], [each[1] for each in found], [each[2] for each in found]


@given(changes(), st.booleans())
def test_rows_become_the_records_of_pgoutput(made: tuple, whole: bool) -> None:
    operations, new, old = made
    columns = len(new[0]) if new else 1
    kind = "O" if whole else "K"
    data, offsets = encode_rows(
        SOME,
        np.array(operations, np.uint8),
        Texts.from_values(new, columns),
        Texts.from_values(old, columns),
        whole=whole,
    )
    expected = [
        {
            INSERT: lambda n=n: wire.insert(77, n),
            UPDATE: lambda n=n, o=o: wire.update(77, n, o, kind),
            DELETE: lambda o=o: wire.delete(77, o, kind),
        }[operation]()
        for operation, n, o in zip(operations, new, old, strict=True)
    ]
    assert [bytes(data[a:b]) for a, b in pairwise(offsets)] == expected


def test_updates_without_old_rows_have_none() -> None:
    data, _ = encode_rows(SOME, np.array([UPDATE], np.uint8), Texts.from_values([["1", None]], 2))
    assert bytes(data) == wire.update(77, ["1", None])


def test_a_delete_without_its_old_row_is_refused() -> None:
    with pytest.raises(ValueError, match="needs its old row"):
        encode_rows(SOME, np.array([INSERT, DELETE], np.uint8), Texts.from_values([["1"], ["2"]], 1))


def test_control_records_are_found_by_the_scanner() -> None:
    relation = wire.relation(77, ["id"])
    records = [begin_record(Lsn(900), 5, 7_000_000), relation, commit_record(Lsn(900), 7_000_000)]
    assert records == [wire.begin(899, 5, 7_000_000), relation, wire.commit(900, 900, 7_000_000)]
    data, offsets = wire.pack(records)
    controls = find_controls(data, offsets, 0)
    found = controls[0] if isinstance(controls, tuple) else controls
    assert found["kind"].tolist() == [ControlKind.BEGIN, ControlKind.RELATION, ControlKind.COMMIT]
    assert (found["end_lsn"][-1], found["time_us"][-1], found["xid"][0]) == (900, 7_000_000, 5)


@given(st.lists(st.integers(1, 2**32 - 1), max_size=4))
def test_truncates_are_read_back(relations: list[int]) -> None:
    record = truncate_record([RelationId(each) for each in relations])
    assert record == wire.truncate(relations)
    assert parse_truncate(record, streamed=False) == (0, tuple(relations))


NAME = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5)
COLUMN = st.builds(AnnouncedColumn, NAME, st.booleans(), st.integers(0, 2**32 - 1), st.integers(-(2**31), 2**31 - 1))


@given(
    st.builds(
        Announced,
        st.integers(0, 2**32 - 1).map(RelationId),
        st.builds(TableName, NAME, NAME),
        st.sampled_from(ReplicaIdentity),
        st.lists(COLUMN, max_size=4).map(tuple),
    )
)
def test_relation_records_are_read_back(announced: Announced) -> None:
    assert parse_relation(relation_record(announced)) == announced


def test_a_name_with_nul_is_refused() -> None:
    with pytest.raises(EngineFault, match="NUL"):
        relation_record(Announced(SOME, TableName("public", "a\0b"), ReplicaIdentity.FULL, ()))
