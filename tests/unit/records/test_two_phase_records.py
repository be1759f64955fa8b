"""Records of prepared transactions: parsed one by one, and as control records of a chunk where they are asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.control import ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.position import Lsn
from engine.records.scan import find_controls
from engine.records.two_phase import TwoPhase, two_phase_of
from tests.unit.net import pgoutput_encoder as pgoutput

ENCODED = {
    ControlKind.BEGIN_PREPARE: pgoutput.begin_prepare,
    ControlKind.PREPARE: pgoutput.prepare,
    ControlKind.COMMIT_PREPARED: pgoutput.commit_prepared,
    ControlKind.ROLLBACK_PREPARED: pgoutput.rollback_prepared,
}
GIDS = st.binary(max_size=199).filter(lambda gid: 0 not in gid) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40
).map(str.encode)
RECORDS = st.builds(
    TwoPhase,
    st.sampled_from(list(ENCODED)),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**63 - 1).map(Lsn),
    st.integers(0, 2**63 - 1).map(Lsn),
    st.integers(pgoutput.PG_EPOCH_US, pgoutput.PG_EPOCH_US * 5),
    GIDS.map(lambda gid: gid.decode("utf-8", "surrogateescape")),
)


def encoded(record: TwoPhase) -> bytes:
    gid = record.gid.encode("utf-8", "surrogateescape")
    return ENCODED[record.kind](record.lsn.value, record.end.value, record.xid, gid, record.time_us)


@given(RECORDS)
def test_a_record_is_read_as_it_was_written(record: TwoPhase) -> None:
    assert two_phase_of(encoded(record)) == record


@given(RECORDS, st.data())
def test_a_record_of_another_form_is_refused(record: TwoPhase, data: st.DataObject) -> None:
    written = encoded(record)
    kinds = set(range(256)) - {written[0], *b"bPKr"}
    bad = data.draw(
        st.one_of(
            st.integers(0, len(written) - 1).map(lambda size: written[:size]),
            st.binary(min_size=1, max_size=9).map(lambda more: written + more),
            st.sampled_from(sorted(kinds)).map(lambda kind: bytes([kind]) + written[1:]),
            st.integers(1, 255).map(lambda flags: _flagged(written, flags)),
        )
    )
    with pytest.raises(EngineFault) as refused:
        two_phase_of(bad)
    assert refused.value.kind is FaultKind.LOG_UNREADABLE


def _flagged(written: bytes, flags: int) -> bytes:
    """With these flags; BEGIN PREPARE has none, and becomes a PREPARE that lacks them."""
    return b"P" + bytes([flags]) + written[1:] if written[:1] == b"b" else written[:1] + bytes([flags]) + written[2:]


@given(st.lists(RECORDS, max_size=8))
def test_control_records_are_those_of_the_parser(records: list[TwoPhase]) -> None:
    row = pgoutput.insert(1, ["1"])
    written = [part for record in records for part in (row, encoded(record))]
    found, stream = find_controls(*pgoutput.pack(written), 0, two_phase=True)
    assert stream == 0
    assert [tuple(int(value) for value in one) for one in found.tolist()] == [
        (one.kind, 2 * n + 1, one.xid, 0, one.end.value, one.time_us, 0) for n, one in enumerate(records)
    ]


@given(st.lists(RECORDS, min_size=1, max_size=8))
def test_where_they_are_not_asked_for_they_are_no_control_records(records: list[TwoPhase]) -> None:
    found, _ = find_controls(*pgoutput.pack([encoded(record) for record in records]), 0)
    assert len(found) == 0


@pytest.mark.parametrize("kind", ENCODED)
def test_a_control_record_that_is_too_short_is_refused(kind: ControlKind) -> None:
    shortest = ENCODED[kind](1, 2, 3, b"")
    for size in range(1, len(shortest)):
        with pytest.raises(EngineFault, match="record 1 is not") as refused:
            find_controls(*pgoutput.pack([pgoutput.begin(1, 1), shortest[:size]]), 0, two_phase=True)
        assert refused.value.kind is FaultKind.LOG_UNREADABLE
    assert len(find_controls(*pgoutput.pack([shortest]), 0, two_phase=True)[0]) == 1


def test_other_control_records_stay_as_they_are() -> None:
    records = [
        pgoutput.begin(0x500, 77),
        pgoutput.relation(1, ["id"]),
        pgoutput.insert(1, ["1"]),
        pgoutput.truncate([1, 2]),
        pgoutput.message("penstock", b"x"),
        pgoutput.commit(0x500, 0x538),
    ]
    plain, _ = find_controls(*pgoutput.pack(records), 0)
    asked, _ = find_controls(*pgoutput.pack(records), 0, two_phase=True)
    assert plain.tolist() == asked.tolist()
    assert len(plain) == 5
