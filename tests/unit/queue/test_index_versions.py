"""Indexes that earlier versions wrote: a queue survives an upgrade of the engine.

`tests/golden/queue/version_<n>` are queues as the code of index version n wrote them; they are never written again.
"""

from __future__ import annotations

import shutil
import struct
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.control import CONTROL_FIELDS, ControlKind
from engine.model.identity import Ordinal
from engine.model.position import Lsn
from engine.model.source import Landed
from engine.queue import SegmentWriter, SessionHead, read_block, recover
from engine.queue.index import DamagedFrameError, Head, encode_head, encode_landed, read_frames
from engine.records.scan import find_controls
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.queue.test_queue_segments import chunk

_GOLDEN = Path(__file__).parents[2] / "golden" / "queue"
_T = 1_700_000_000_000_000
_K = ControlKind
_WRITTEN = [
    [(_K.SESSION, 0, 0, 1, 0, 0, 0)],
    [
        (_K.RELATION, 0, 0, 0, 0, 0, 0),
        (_K.BEGIN, 1, 700, 0, 0, 0, 0),
        (_K.COMMIT, 3, 0, 2, 0x200, _T, 0x1F0),
        (_K.STREAM_START, 4, 701, 0, 0, 0, 0),
        (_K.RELATION, 5, 701, 0, 0, 0, 0),
        (_K.STREAM_STOP, 7, 2, 1, 0, 0, 0),
    ],
    [
        (_K.BEGIN, 8, 702, 0, 0, 0, 0),
        (_K.TRUNCATE, 9, 0, 0, 0, 0, 0),
        (_K.COMMIT, 10, 0, 2, 0x300, _T + 5, 0x2F0),
        (_K.STREAM_ABORT, 11, 701, 703, 0, 0, 0),
        (_K.STREAM_COMMIT, 12, 701, 0, 0x400, _T + 9, 0),
    ],
    [(_K.SESSION, 13, 0, 1, 0, 0, 0)],
    [
        (_K.RELATION, 13, 0, 0, 0, 0, 0),
        (_K.BEGIN, 14, 704, 0, 0, 0, 0),
        (_K.COMMIT, 16, 0, 2, 0x500, _T + 20, 0x4F0),
    ],
]
"""The control records of the queues in the folder, by landing."""
_FIELDS_1 = ["kind", "ordinal", "xid", "subxid", "end_lsn", "time_us"]
_FORM_1 = np.dtype([(name, form) for name, form in CONTROL_FIELDS if name in _FIELDS_1])


def copied(version: int, folder: Path) -> Path:
    return Path(shutil.copytree(_GOLDEN / f"version_{version}", folder / "queue"))


def shown(landed: list[Landed]) -> list[list[tuple[int, ...]]]:
    return [[tuple(map(int, record)) for record in one.controls.tolist()] for one in landed]


def as_of(version: int) -> list[list[tuple[int, ...]]]:
    """What a queue of this version says."""
    return [[(*record[:-1], record[-1] if version > 1 else 0) for record in landing] for landing in _WRITTEN]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("thorough", [False, True])
def test_a_queue_of_any_version_is_recovered_whole(version: int, thorough: bool, tmp_path: Path) -> None:
    folder = copied(version, tmp_path)
    found = recover(folder, thorough=thorough)
    assert not found.damaged
    assert shown(found.landed) == as_of(version)
    assert all(one.controls.dtype == np.dtype(CONTROL_FIELDS) for one in found.landed)
    assert (found.begin, found.end, found.next_ordinal) == (Lsn(0x100), Lsn(0x510), 17)
    assert [sorted(one.relations) for one in found.landed] == [[], [0, 5], [], [], [13]]
    assert found.relations == (pgoutput.relation(16384, ["id", "name"]), pgoutput.relation(16390, ["id"]))


@pytest.mark.parametrize("version", [1, 2])
def test_its_records_are_those_that_its_control_records_name(version: int, tmp_path: Path) -> None:
    for one in recover(copied(version, tmp_path)).landed:
        if one.block is None:
            continue
        data, offsets = read_block(one.block)
        controls, _ = find_controls(data, np.asarray(offsets), 0)
        assert controls["kind"].tolist() == one.controls["kind"].tolist()
        assert (controls["ordinal"] + one.block.first).tolist() == one.controls["ordinal"].tolist()


@pytest.mark.parametrize("version", [1, 2])
def test_an_upgraded_engine_appends_segments_of_its_own_version(version: int, tmp_path: Path) -> None:
    folder = copied(version, tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    found = recover(folder)
    queue = SegmentWriter(folder, found.next_ordinal, True, SessionHead(found.end, found.relations))
    mark = 63 << 56 | 0x600
    queue.append(chunk([b"B", b"C"], 0x700, [(_K.BEGIN, 0, 9, 0, 0, 0, 0), (_K.COMMIT, 1, 0, 1, 0x700, _T, mark)]))
    queue.close()
    assert {name: (folder / name).read_bytes() for name in before} == before
    again = recover(folder, thorough=True)
    assert not again.damaged
    added = [[(_K.SESSION, 17, 0, 1, 0, 0, 0)], [(_K.BEGIN, 17, 9, 0, 0, 0, 0), (_K.COMMIT, 18, 0, 1, 0x700, _T, mark)]]
    assert shown(again.landed) == as_of(version) + added
    newest = sorted(folder.glob("*.index"))[-1].read_bytes()
    assert newest[9:11] == struct.pack("<H", 2)


@pytest.mark.parametrize("version", [0, 3, 65_535])
def test_a_segment_of_an_unknown_version_is_not_guessed_at(version: int) -> None:
    data = as_version(encode_head(Head(Ordinal(0), -1, Lsn(0), ())), version)
    with pytest.raises(DamagedFrameError):
        list(read_frames(data, "unused"))


def test_a_landing_without_a_head_is_damage() -> None:
    landing = encode_landed(Landed(None, np.zeros(1, CONTROL_FIELDS), {}, Lsn(1)))
    with pytest.raises(DamagedFrameError):
        list(read_frames(landing, "unused"))


def as_version(frame: bytes, version: int) -> bytes:
    """This frame of a head with another version in it."""
    length, _, kind = struct.unpack_from("<IIB", frame)
    body = struct.pack("<H", version) + frame[11:]
    return struct.pack("<IIB", length, zlib.crc32(body, kind), kind) + body


def landing_of_version_1(landed: Landed) -> bytes:
    """The frame of a landing without block, as version 1 wrote it."""
    controls = np.empty(len(landed.controls), _FORM_1)
    for name in _FIELDS_1:
        controls[name] = landed.controls[name]
    head = struct.pack("<QQQIqIII", landed.wal_end.value, 0, 0, 0, 0, 0, len(controls), len(landed.relations))
    relations = [struct.pack("<qI", at, len(payload)) + payload for at, payload in landed.relations.items()]
    body = head + controls.tobytes() + b"".join(relations)
    return struct.pack("<IIB", len(body), zlib.crc32(body, 2), 2) + body


@st.composite
def landings(draw: st.DrawFn) -> Landed:
    sizes = {"u1": 8, "<u4": 32, "<u8": 64}
    fields = [
        st.integers(0, 2 ** sizes[form] - 1) if form in sizes else st.integers(-(2**63), 2**63 - 1)
        for _, form in CONTROL_FIELDS
    ]
    controls: Any = np.array(draw(st.lists(st.tuples(*fields), max_size=5)), CONTROL_FIELDS)
    relations = draw(st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=20), max_size=3))
    return Landed(None, controls, relations, Lsn(draw(st.integers(0, 2**64 - 1))))


@settings(max_examples=150, deadline=None)
@given(st.lists(landings(), max_size=4), st.sampled_from((1, 2)), st.data())
def test_every_landing_is_read_back_up_to_where_the_index_is_cut_off(
    written: list[Landed], version: int, data: st.DataObject
) -> None:
    encode = encode_landed if version == 2 else landing_of_version_1
    frames = [as_version(encode_head(Head(Ordinal(5), 2, Lsn(7), (b"R",))), version), *map(encode, written)]
    borders = np.cumsum([0, *(len(frame) for frame in frames)]).tolist()
    cut = data.draw(st.one_of(st.sampled_from(borders), st.integers(0, borders[-1])))
    found: list[Any] = []
    try:
        found += [frame for frame, _ in read_frames(b"".join(frames)[:cut], "unused")]
        whole = True
    except DamagedFrameError:
        whole = False
        found = frames_before_damage(b"".join(frames)[:cut])
    assert whole == (cut in borders)
    assert len(found) == sum(stop <= cut for _, stop in pairwise(borders))
    for one, expected in zip(found[1:], written, strict=False):
        names = [name for name, _ in CONTROL_FIELDS if version == 2 or name in _FIELDS_1]
        assert all((one.controls[name] == expected.controls[name]).all() for name in names)
        assert version == 2 or not one.controls["commit_lsn"].any()
        assert (len(one.controls), one.relations) == (len(expected.controls), expected.relations)


def frames_before_damage(data: bytes) -> list[Any]:
    found = []
    frames = read_frames(data, "unused")
    while True:
        try:
            found.append(next(frames)[0])
        except DamagedFrameError:
            return found
