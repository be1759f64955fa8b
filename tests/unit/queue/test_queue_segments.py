"""Segments of the queue: what was appended is read back, what precedes damage survives it, and records are released in whole files."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.batch import BlockRef, LogRange
from engine.model.control import CONTROL_FIELDS, ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Ordinal
from engine.model.position import ZERO, Lsn
from engine.model.source import Landed, RecordChunk
from engine.queue import QueueCatalog, SegmentWriter, SessionHead, files, open_folder, read_block, read_blocks, recover
from engine.queue.block import encode_block


def chunk(
    records: list[bytes],
    wal_end: int,
    controls: list[tuple[ControlKind, int, int, int, int, int, int]] | None = None,
    relations: dict[int, bytes] | None = None,
) -> RecordChunk:
    data = np.frombuffer(b"".join(records), np.uint8)
    offsets = np.concatenate(([0], np.cumsum([len(r) for r in records]))).astype(np.int32)
    return RecordChunk(data, offsets, np.array(controls or [], np.dtype(CONTROL_FIELDS)), relations or {}, Lsn(wal_end))


def records_of(landed: Landed) -> list[bytes]:
    assert landed.block is not None
    data, offsets = read_block(landed.block)
    return [bytes(data[a:b]) for a, b in pairwise(offsets)]


def writer(folder: Path, first: int = 0, **options: Any) -> SegmentWriter:
    options.setdefault("fsync", False)
    return SegmentWriter(folder, Ordinal(first), **options)


def relation(oid: int, text: bytes, xid: int | None = None) -> bytes:
    return b"R" + (xid.to_bytes(4, "big") if xid is not None else b"") + oid.to_bytes(4, "big") + text


@settings(max_examples=60, deadline=None)
@given(
    chunks=st.lists(st.lists(st.binary(max_size=40), max_size=6), max_size=12),
    segment_bytes=st.integers(1, 3000),
    fsync=st.booleans(),
)
def test_whatever_was_appended_is_read_back_before_and_after_recovery(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[list[bytes]], segment_bytes: int, fsync: bool
) -> None:
    folder = tmp_path_factory.mktemp("queue")
    queue = writer(folder, 5, segment_bytes=segment_bytes, fsync=fsync, session=SessionHead(Lsn(1)))
    landed = [queue.append(chunk(records, 10 + n)) for n, records in enumerate(chunks)]
    queue.sync()
    written = [one for one in landed if one.block is not None]
    assert [records_of(one) for one in written] == [records for records in chunks if records]
    queue.close()

    found = recover(folder)
    assert not found.damaged
    assert [one.block for one in found.landed if one.block is not None] == [one.block for one in written]
    assert found.next_ordinal == 5 + sum(len(records) for records in chunks)
    assert found.begin == Lsn(1)
    if fsync:
        assert found.end == Lsn(9 + len(chunks) if chunks else 1)


def test_controls_and_relations_get_ordinals_of_the_queue(tmp_path: Path) -> None:
    queue = writer(tmp_path, 100)
    queue.append(chunk([b"x"], 10))
    landed = queue.append(
        chunk(
            [b"B", b"R....", b"C"],
            30,
            [
                (ControlKind.BEGIN, 0, 7, 0, 0, 0, 0),
                (ControlKind.RELATION, 1, 0, 0, 0, 0, 0),
                (ControlKind.COMMIT, 2, 0, 0, 30, 99, 0),
            ],
            {1: b"R...."},
        )
    )
    queue.close()
    assert landed.controls["ordinal"].tolist() == [101, 102, 103]
    assert landed.relations == {102: b"R...."}
    again = recover(tmp_path).landed[-1]
    assert again.controls.tobytes() == landed.controls.tobytes()
    assert (again.relations, again.wal_end, again.block) == (landed.relations, Lsn(30), landed.block)


def test_a_session_mark_stands_where_a_writer_opened_the_queue(tmp_path: Path) -> None:
    for first in (0, 1):
        queue = writer(tmp_path, first)
        queue.append(chunk([b"x"], 10))
        queue.close()
    kinds = [one.controls["kind"].tolist() for one in recover(tmp_path).landed]
    assert kinds == [[ControlKind.SESSION], [], [ControlKind.SESSION], []]


def test_a_finished_segment_is_a_plain_arrow_stream(tmp_path: Path) -> None:
    queue = writer(tmp_path)
    queue.append(chunk([b"one", b"", b"two"], 1))
    queue.append(chunk([b"three"], 2))
    path = queue.path
    queue.close()
    with pa.OSFile(str(path)) as file:
        assert pa.ipc.open_stream(file).read_all().column("record").to_pylist() == [b"one", b"", b"two", b"three"]


def test_segments_roll_and_a_record_larger_than_a_segment_fits(tmp_path: Path) -> None:
    queue = writer(tmp_path, segment_bytes=1600)
    landed = [queue.append(chunk([bytes([n]) * size], n)) for n, size in enumerate([300, 5000, 300, 300])]
    queue.close()
    assert [records_of(one)[0] for one in landed] == [bytes([n]) * s for n, s in enumerate([300, 5000, 300, 300])]
    assert len(files.list_segments(tmp_path)) == 3


@pytest.mark.parametrize("fsync", [False, True])
def test_a_position_without_records_is_durable_only_after_sync(tmp_path: Path, fsync: bool) -> None:
    queue = writer(tmp_path, fsync=fsync)
    queue.append(chunk([b"x"], 10))
    moved = queue.append(chunk([], 50))
    assert (moved.block, moved.wal_end) == (None, Lsn(50))
    queue.sync()
    assert recover(tmp_path).end == Lsn(50 if fsync else 10)
    queue.close()


def test_relations_at_the_end_leave_out_what_was_never_committed(tmp_path: Path) -> None:
    queue = writer(tmp_path, session=SessionHead(relations=[relation(1, b"old"), relation(2, b"two")]))
    kinds = ControlKind
    queue.append(
        chunk(
            [b"?"] * 8,
            1,
            [
                (kinds.RELATION, 0, 0, 0, 0, 0, 0),
                (kinds.RELATION, 1, 70, 0, 0, 0, 0),
                (kinds.RELATION, 2, 71, 0, 0, 0, 0),
                (kinds.RELATION, 3, 72, 0, 0, 0, 0),
                (kinds.STREAM_ABORT, 4, 70, 75, 0, 0, 0),
                (kinds.STREAM_COMMIT, 5, 70, 0, 9, 0, 0),
                (kinds.STREAM_ABORT, 6, 71, 71, 0, 0, 0),
            ],
            {0: relation(1, b"new"), 1: relation(3, b"s", 70), 2: relation(4, b"no", 71), 3: relation(5, b"open", 72)},
        )
    )
    queue.close()
    found = recover(tmp_path)
    assert set(found.relations) == {relation(1, b"new"), relation(2, b"two"), relation(3, b"s")}
    again = writer(tmp_path, found.next_ordinal, session=SessionHead(relations=found.relations))
    again.close()
    assert set(recover(tmp_path).relations) == set(found.relations)


def _three_segments(folder: Path) -> list[Landed]:
    queue = writer(folder, segment_bytes=1, fsync=True)
    landed = [queue.append(chunk([b"a" * 50, bytes([n])], n + 1)) for n in range(3)]
    queue.sync()
    queue.close()
    return landed


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_torn_index_ends_the_queue_at_the_last_whole_landing(tmp_path: Path, cut: int) -> None:
    landed = _three_segments(tmp_path)
    index = files.list_segments(tmp_path)[-1].index(tmp_path)
    os.truncate(index, index.stat().st_size - cut)
    found = recover(tmp_path)
    assert found.damaged
    assert [one.block for one in found.landed if one.block] == [one.block for one in landed[:2]]
    assert (found.next_ordinal, found.end) == (4, Lsn(2))
    assert recover(tmp_path).damaged is False
    queue = writer(tmp_path, found.next_ordinal)
    assert records_of(queue.append(chunk([b"again"], 3))) == [b"again"]
    queue.close()
    assert recover(tmp_path).damaged is False


def test_a_half_written_block_of_the_last_segment_is_found(tmp_path: Path) -> None:
    landed = _three_segments(tmp_path)
    block = landed[2].block
    assert block is not None
    with Path(block.path).open("r+b") as file:
        file.seek(block.offset + block.length - 8)
        file.write(b"\xff")
    found = recover(tmp_path)
    assert found.damaged
    assert found.end == Lsn(2)


def test_a_damaged_block_in_the_middle_is_found_by_a_thorough_recovery_only(tmp_path: Path) -> None:
    landed = _three_segments(tmp_path)
    assert landed[1].block is not None
    _flip(Path(landed[1].block.path))
    assert recover(tmp_path).damaged is False
    found = recover(tmp_path, thorough=True)
    assert (found.damaged, found.next_ordinal, found.end) == (True, 2, Lsn(1))
    assert [one.block for one in found.landed if one.block] == [landed[0].block]
    assert recover(tmp_path, thorough=True).damaged is False
    queue = writer(tmp_path, found.next_ordinal)
    assert records_of(queue.append(chunk([b"again"], 2))) == [b"again"]
    queue.close()
    assert [one.block is None for one in recover(tmp_path, thorough=True).landed].count(False) == 2


def test_a_missing_segment_in_the_middle_ends_the_queue_before_it(tmp_path: Path) -> None:
    _three_segments(tmp_path)
    name = files.list_segments(tmp_path)[1]
    name.segment(tmp_path).unlink()
    name.index(tmp_path).unlink()
    found = recover(tmp_path)
    assert (found.damaged, found.next_ordinal, found.end) == (True, 2, Lsn(1))
    assert len(files.list_segments(tmp_path)) == 1


def test_an_empty_folder_is_an_empty_queue(tmp_path: Path) -> None:
    found = recover(tmp_path)
    assert (found.landed, found.next_ordinal, found.begin, found.damaged) == ([], 0, ZERO, False)


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [lambda p: p.unlink(), lambda p: os.truncate(p, p.stat().st_size - 30), _flip],
    ids=["gone", "short", "bit"],
)
def test_a_damaged_segment_is_a_fault_and_never_wrong_records(tmp_path: Path, damage: Any) -> None:
    queue = writer(tmp_path)
    landed = queue.append(chunk([b"x" * 500], 1))
    path = queue.path
    queue.close()
    assert landed.block is not None
    damage(path)
    with pytest.raises(EngineFault) as raised:
        read_block(landed.block)
    assert raised.value.kind is FaultKind.QUEUE_CORRUPT


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.lists(st.integers(0, 200), min_size=1, max_size=5), min_size=1, max_size=12),
    segment_bytes=st.integers(1, 3000),
    run_bytes=st.integers(1, 4000),
    left_out=st.sets(st.integers(0, 11)),
    torn=st.none() | st.integers(0, 11),
)
def test_blocks_side_by_side_are_read_as_each_by_itself(
    lengths: list[list[int]], segment_bytes: int, run_bytes: int, left_out: set[int], torn: int | None
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.queue.block.RUN_BYTES", run_bytes)
        queue = writer(Path(folder), segment_bytes=segment_bytes)
        written = [[bytes([i]) * length for length in of_block] for i, of_block in enumerate(lengths)]
        landed = [queue.append(chunk(records, 1)) for records in written]
        queue.close()
        wanted = [i for i in range(len(landed)) if i not in left_out]
        refs = [one for i in wanted if (one := landed[i].block) is not None]
        if torn in wanted:
            refs[wanted.index(torn)] = replace(refs[wanted.index(torn)], crc=1)
            with pytest.raises(EngineFault, match="checksum"):
                list(read_blocks(refs))
        else:
            found = [[bytes(data[a:b]) for a, b in pairwise(offsets)] for data, offsets in read_blocks(refs)]
            assert found == [written[i] for i in wanted]


def test_a_full_disk_is_a_fault_and_the_next_append_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = writer(tmp_path)
    first = queue.append(chunk([b"first"], 1))
    real = os.pwrite
    room = [30]

    def full(fd: int, data: Any, offset: int) -> int:
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, "full")
        part = bytes(data)[: room[0]]
        room[0] -= len(part)
        return real(fd, part, offset)

    monkeypatch.setattr(os, "pwrite", full)
    second_chunk = chunk([b"second" * 20], 2)
    in_the_index = encode_block(second_chunk.data, second_chunk.offsets).size + 10
    for space in (30, in_the_index):
        room[0] = space
        with pytest.raises(EngineFault) as raised:
            queue.append(second_chunk)
        assert raised.value.kind is FaultKind.QUEUE_DISK_FULL
    monkeypatch.setattr(os, "pwrite", real)
    second = queue.append(second_chunk)
    queue.close()
    assert (records_of(first), records_of(second)) == ([b"first"], [b"second" * 20])
    found = recover(tmp_path)
    assert (found.damaged, found.next_ordinal) == (False, 2)


def test_a_deleted_folder_is_noticed_before_anything_counts_as_durable(tmp_path: Path) -> None:
    folder = tmp_path / "queue"
    queue = writer(folder, fsync=True)
    queue.append(chunk([b"x"], 1))
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises(EngineFault) as raised:
        queue.sync()
    assert raised.value.kind is FaultKind.QUEUE_CORRUPT


def test_one_process_owns_a_queue_and_one_appends_to_it(tmp_path: Path) -> None:
    queue = writer(tmp_path)
    owner = open_folder(tmp_path)
    script = (
        "import sys; from pathlib import Path\n"
        "from engine.model.fault import EngineFault\n"
        "from engine.queue import SegmentWriter, open_folder\n"
        "for open_it in (lambda p: open_folder(p), lambda p: SegmentWriter(p, 9, False)):\n"
        "    try: open_it(Path(sys.argv[1])).close(); print('opened')\n"
        "    except EngineFault as fault: print(fault.kind.value)\n"
    )

    def other() -> list[str]:
        run = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
        return run.stdout.split()

    assert other() == ["slot_in_use", "slot_in_use"]
    queue.close()
    owner.close()
    assert other() == ["opened", "opened"]


def test_catalog_finds_blocks_sizes_and_lets_go_of_whole_segments(tmp_path: Path) -> None:
    queue = writer(tmp_path, segment_bytes=1000)
    catalog = QueueCatalog(tmp_path)
    landed = [queue.append(chunk([b"r" * 100] * 5, n)) for n in range(6)]
    blocks = [one.block for one in landed if one.block is not None]
    for block in blocks:
        catalog.add(block)
    assert catalog.next_ordinal == 30

    def found(*ranges: tuple[int, int]) -> list[int]:
        wanted = [LogRange(Ordinal(a), Ordinal(b), ZERO) for a, b in ranges]
        return [block.first for block in catalog.blocks_for(wanted)]

    assert found((4, 5)) == [0]
    assert found((4, 6)) == [0, 5]
    assert found((25, 30), (0, 1), (3, 4)) == [0, 25]
    assert found((10, 10)) == []
    assert found((30, 40)) == []
    assert catalog.bytes_between(Ordinal(0), Ordinal(30)) == catalog.size_bytes == sum(b.length for b in blocks)
    assert catalog.bytes_between(Ordinal(0), Ordinal(5)) == blocks[0].length
    half = catalog.bytes_between(Ordinal(1), Ordinal(3))
    assert abs(half - blocks[0].length * 2 / 5) <= 2

    names = files.list_segments(tmp_path)
    assert len(names) == 6
    catalog.retain(Ordinal(14), Lsn(2))
    assert [name.first for name in files.list_segments(tmp_path)] == [10, 15, 20, 25]
    assert found((0, 30)) == [10, 15, 20, 25]
    catalog.retain(Ordinal(1000), Lsn(5))
    assert [name.first for name in files.list_segments(tmp_path)] == [25]
    assert catalog.size_bytes == blocks[-1].length
    with pytest.raises(ValueError, match="ordinal"):
        catalog.add(blocks[-1])
    queue.close()


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=8), data=st.data())
def test_blocks_for_agrees_with_a_plain_search(sizes: list[int], data: st.DataObject) -> None:
    catalog = QueueCatalog(Path("unused"))
    blocks, first = [], 0
    for number, size in enumerate(sizes):
        first += data.draw(st.integers(0, 2))
        blocks.append(BlockRef(f"{number:020d}.arrow", 0, 10 * size, 0, Ordinal(first), size))
        first += size
        catalog.add(blocks[-1])
    start = data.draw(st.integers(0, first + 2))
    stop = data.draw(st.integers(start, first + 3))
    expected = [b for b in blocks if b.first < stop and b.first + b.count > start and start < stop]
    assert list(catalog.blocks_for([LogRange(Ordinal(start), Ordinal(stop), ZERO)])) == expected
    inside = sum(10 for b in blocks for o in range(b.first, b.first + b.count) if start <= o < stop)
    assert abs(catalog.bytes_between(Ordinal(start), Ordinal(stop)) - inside) <= 1


BEGIN, COMMIT = (ControlKind.BEGIN, 0, 7, 0, 0, 0, 0), (ControlKind.COMMIT, 0, 0, 0, 50, 99, 0)
START, STOP = (ControlKind.STREAM_START, 0, 8, 0, 0, 0, 0), (ControlKind.STREAM_STOP, 0, 0, 0, 0, 0, 0)
SEEN = (ControlKind.RELATION, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(("begun", "ended"), [(BEGIN, COMMIT), (START, STOP)])
def test_a_queue_that_begins_within_a_transaction_tells_nothing_of_that_one(
    tmp_path: Path, begun: tuple[Any, ...], ended: tuple[Any, ...]
) -> None:
    """The first segment was removed once the target had its records; a target that has less cannot continue from this queue."""
    queue = writer(tmp_path, segment_bytes=1)
    catalog = QueueCatalog(tmp_path)
    for controls in ([begun], [SEEN], [SEEN, ended, BEGIN], [COMMIT]):
        landed = queue.append(chunk([b"r"] * len(controls), 10, controls, {0: b"R...."}))
        assert landed.block is not None
        catalog.add(landed.block)
    catalog.retain(Ordinal(1), Lsn(44))
    queue.close()
    found = recover(tmp_path)
    assert not found.damaged
    assert [one.controls["kind"].tolist() for one in found.landed] == [[], [ControlKind.BEGIN], [ControlKind.COMMIT]]
    assert [one.block.first for one in found.landed if one.block is not None] == [1, 2, 5]
    assert found.begin == Lsn(44)


def test_a_note_of_what_is_whole_that_makes_no_sense_is_damage(tmp_path: Path) -> None:
    queue = writer(tmp_path, session=SessionHead(Lsn(3)))
    queue.append(chunk([b"x"], 10))
    queue.close()
    (tmp_path / "whole_from.mark").write_text("1/")
    found = recover(tmp_path)
    assert (found.damaged, found.begin, found.end) == (True, Lsn(10), Lsn(10))


def test_blocks_that_are_kept_for_hours_take_little_memory() -> None:
    catalog, count = QueueCatalog(Path("unused")), 20_000
    tracemalloc.start()
    for n in range(count):
        # As they come from another process: each with a text of its own.
        catalog.add(BlockRef("/".join(["queue", "00000000000000000000.arrow"]), n << 20, 1 << 20, n, Ordinal(n), 1))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / count < 100
