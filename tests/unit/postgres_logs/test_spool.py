"""The file of rows that wait for the merge, against a model of its places, and with a disk that fails."""

from __future__ import annotations

import itertools
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.fault import EngineFault, FaultKind
from engine.platform.compiled import Array
from engine.sources.postgres_logs.spool import Kept, Place, Spool


def descriptors(folder: Path) -> list[int]:
    """This process's open files that are in the folder."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = entry.readlink()
        except FileNotFoundError:
            continue
        if target.is_relative_to(folder):
            found.append(int(entry.name))
    return found


def arrays(first: int, count: int) -> list[Array]:
    """Arrays that are like those of no other number."""
    return [
        np.arange(first, first + count, dtype=np.int64),
        np.arange(first, first + count // 2, dtype=np.int32),
        np.full(count % 7, first % 256, np.uint8),
    ]


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file of this process can become larger."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 10), st.booleans()), max_size=40))
def test_arrays_are_read_as_they_were_put_and_the_file_ends_with_the_last_ones(
    steps: list[tuple[int, int, bool]],
) -> None:
    held: list[tuple[Place, list[Array]]] = []
    with closing(Spool(None)) as spool:
        for number, (count, at, is_freed) in enumerate(steps):
            if is_freed and held:
                spool.free(held.pop(at % len(held))[0])
            else:
                given_arrays = arrays(1000 * number, count)
                held.append((spool.put(given_arrays), given_arrays))
            for place, expected in held:
                found = spool.get(place)
                assert [each.dtype for each in found] == [each.dtype for each in expected]
                assert all(each.flags.aligned for each in found)
                assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))
            assert spool.bytes == sum(place.size for place, _ in held)
            places = sorted((place.start, place.start + place.size) for place, _ in held)
            assert all(one[1] <= other[0] for one, other in itertools.pairwise(places))
            assert spool.size == (places[-1][1] if places else 0)


def test_space_is_used_again(tmp_path: Path) -> None:
    with closing(Spool(tmp_path)) as spool:
        places = [spool.put(arrays(number, 20)) for number in range(4)]
        for place in places[1:3]:
            spool.free(place)
        again = [spool.put(arrays(number, 20)) for number in range(2)]
        assert {place.start for place in again} == {place.start for place in places[1:3]}
        (descriptor,) = descriptors(tmp_path)
        for place in (places[3], *again):
            spool.free(place)
        assert os.fstat(descriptor).st_size == places[0].size


def test_the_file_has_no_name_and_is_closed_to_other_users(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    with closing(Spool(folder)) as spool:
        assert not folder.exists()
        spool.put(arrays(1, 10))
        (descriptor,) = descriptors(folder)
        state = os.fstat(descriptor)
        assert stat.S_IMODE(state.st_mode) == 0o600
        assert state.st_nlink == 0
        assert not os.get_inheritable(descriptor)
        assert list(folder.iterdir()) == []
    assert descriptors(folder) == []
    spool.close()


def test_a_full_disk_says_what_to_do_and_what_was_put_before_stays(tmp_path: Path) -> None:
    with closing(Spool(tmp_path)) as spool:
        first = spool.put(arrays(1, 100))
        with files_up_to(2000), pytest.raises(EngineFault) as caught:
            spool.put(arrays(2, 200))
        assert caught.value.kind is FaultKind.QUEUE_DISK_FULL
        assert caught.value.subject == str(tmp_path)
        assert "free space on this disk" in caught.value.detail
        assert np.array_equal(spool.get(first)[0], arrays(1, 100)[0])
        assert spool.bytes == first.size
        assert spool.put(arrays(3, 200)).start == first.size


@pytest.mark.parametrize("damage", ["changed", "shortened"])
def test_rows_that_are_not_read_as_written_are_a_fault(tmp_path: Path, damage: str) -> None:
    with closing(Spool(tmp_path)) as spool:
        place = spool.put(arrays(1, 100))
        (descriptor,) = descriptors(tmp_path)
        if damage == "changed":
            os.pwrite(descriptor, b"\xff", place.size - 1)
        else:
            os.ftruncate(descriptor, place.size - 1)
        with pytest.raises(EngineFault) as caught:
            spool.get(place)
        assert caught.value.kind is FaultKind.QUEUE_CORRUPT


def test_a_folder_that_cannot_be_made_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with closing(Spool(tmp_path / "file")) as spool, pytest.raises(EngineFault) as caught:
        spool.put(arrays(1, 10))
    assert caught.value.kind is FaultKind.QUEUE_CORRUPT


def test_kept_arrays_are_the_same_wherever_they_are(tmp_path: Path) -> None:
    with closing(Spool(tmp_path)) as spool:
        expected = arrays(5, 30)
        kept = Kept(expected, spool)
        for move in (kept.move, kept.move, kept.bring_back, kept.bring_back, kept.move):
            move()
            assert all(np.array_equal(one, other) for one, other in zip(kept.read(), expected, strict=True))
            assert (kept.memory_bytes == 0) == (spool.bytes > 0)
        kept.drop()
        kept.drop()
        assert (spool.bytes, spool.size, kept.memory_bytes, kept.read()) == (0, 0, 0, ())
