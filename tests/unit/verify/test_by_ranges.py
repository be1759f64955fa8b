"""Comparison by digests of ranges, on a source and a target in memory whose digests are sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.copies import KeyBound
from engine.model.identity import RelationId, TableId
from engine.model.position import Lsn
from engine.model.ranges import KeyInterval, NotByRanges, RangeDigest, RowForm, TargetDigests
from engine.model.source import ExportedSnapshot, KeyedSplit, KeyWalk, TableSplit
from engine.verify import by_ranges
from engine.verify.by_ranges import ByRanges, RangesFound
from engine.verify.progress import Progress

Rows = dict[int, int]
"""Values by key."""


def within(keys: KeyInterval, key: int) -> bool:
    after, upto = (None if bound is None else int(bound.values[0]) for bound in (keys.after, keys.upto))
    return (after is None or key > after) and (upto is None or key <= upto)


def bound_of(key: int) -> KeyBound:
    return KeyBound((str(key),))


def image(row: tuple[int, int]) -> int:
    return hash((row, 7)) >> 20


def _of(rows: Sequence[tuple[int, int]], key: int) -> list[tuple[int, int]]:
    return sorted(row for row in rows if row[0] == key)


class MemorySource:
    """A walk with `step` keys a split, and digests of its rows."""

    def __init__(self, rows: Rows, step: int) -> None:
        self.rows = dict(sorted(rows.items()))
        self.step = step
        self.columns = ()
        self.form = RowForm.ROW
        self.copies = self
        self.asked = 0

    def walk_key(self, schema: object, after: KeyBound | None, split_bytes: int, most_splits: int) -> KeyWalk:
        left = [key for key in self.rows if within(KeyInterval(after, None), key)]
        upto = bound_of(left[self.step - 1]) if len(left) > self.step else None
        split = TableSplit(RelationId(1), "", self.step, self.step)
        return KeyWalk((KeyedSplit(split, upto),), len(self.rows), len(self.rows))

    def digests(self, intervals: Sequence[KeyInterval], rows: int, snapshot: str) -> list[RangeDigest]:
        self.asked += 1
        found = []
        for keys in intervals:
            held = [row for row in self.rows.items() if within(keys, row[0])]
            after = keys.after
            for begin in range(0, max(len(held), 1), rows):
                part = held[begin : begin + rows]
                upto = keys.upto if begin + rows >= len(held) else bound_of(part[-1][0])
                total = sum(map(image, part))
                found.append(RangeDigest(KeyInterval(after, upto), len(part), total, -total, len(part)))
                after = upto
        return found

    def split(self, keys: KeyInterval, rows: int) -> Any:
        return [row for row in self.rows.items() if within(keys, row[0])]


class MemoryTarget:
    """Rows of a target, among which a key may be more than once."""

    def __init__(self, rows: Sequence[tuple[int, int]]) -> None:
        self.rows = list(rows)

    def digests(self, bounds: Sequence[KeyBound], check: Callable[[], None], form: object) -> TargetDigests:
        check()
        found = np.zeros((2, len(bounds) + 1), np.int64)
        for row in self.rows:
            at = self._range(bounds, row[0])
            found[:, at] += 1, image(row)
        return TargetDigests(found[0], found[1], -found[1])

    def keep(self, bounds: Sequence[KeyBound], wanted: Sequence[bool]) -> None:
        self.rows = [row for row in self.rows if wanted[self._range(bounds, row[0])]]

    def compare(self, source: Any, limit: int) -> tuple[int, int, list[dict[str, Any]]]:
        theirs, ours = sorted(row for batch in source for row in batch), sorted(self.rows)
        keys = {key for key, _ in theirs} | {key for key, _ in ours}
        differ = [key for key in sorted(keys) if [r for r in theirs if r[0] == key] != [r for r in ours if r[0] == key]]
        return len(theirs), len(ours), [{"key": [str(key)], "kind": "different"} for key in differ][:limit]

    def _range(self, bounds: Sequence[KeyBound], key: int) -> int:
        return next((i for i, bound in enumerate(bounds) if key <= int(bound.values[0])), len(bounds))


@contextmanager
def read(splits: Sequence[Any]) -> Iterator[Iterator[Any]]:
    yield iter(splits)


def compared(
    source: MemorySource, target: MemoryTarget, check: Callable[[], None] = lambda: None
) -> tuple[RangesFound, Progress]:
    progress = Progress(TableId("t"), lambda report: None)
    snapshot = ExportedSnapshot("snap", Lsn(1))
    ours = ByRanges(cast("Any", source), snapshot, cast("Any", SimpleNamespace()), cast("Any", source), check, progress)
    return ours.compare(ours.base(), cast("Any", target), read, 100), progress


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_ranges, "RANGE_BYTES", 7)
        patch.setattr(by_ranges, "PART_ROWS", 3)
        yield


ROWS = st.dictionaries(st.integers(-60, 60), st.integers(0, 3), max_size=90)


@given(ROWS, ROWS, st.lists(st.tuples(st.integers(-70, 70), st.integers(0, 3)), max_size=4), st.integers(1, 40))
def test_every_difference_is_found_and_nothing_else(
    rows: Rows, changed: Rows, added: list[tuple[int, int]], step: int
) -> None:
    target = [*{**rows, **dict(list(changed.items())[:5])}.items(), *added]
    found, _ = compared(MemorySource(rows, step), MemoryTarget(target))
    source = list(rows.items())
    keys = sorted({key for key, _ in [*source, *target]})
    differ = [key for key in keys if _of(source, key) != _of(target, key)]
    assert [each["key"] for each in found.differences] == [[str(key)] for key in differ]
    assert found.equal == (not differ)
    assert (found.source_rows, found.target_rows) == (len(source), len(target))


def test_one_difference_makes_few_rows_travel_and_two_digests() -> None:
    rows = {key: key for key in range(1000)}
    source = MemorySource(rows, 100)
    found, progress = compared(source, MemoryTarget(list({**rows, 500: -1}.items())))
    assert (len(found.differences), found.different) == (1, 1)
    assert found.ranges == 10 * 15
    assert source.asked == 10 + 1
    assert progress.rows == 1000 + 7


def test_a_table_that_differs_everywhere_is_left_to_a_comparison_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_ranges, "FEW_ROWS", 100)
    rows = {key: key for key in range(300)}
    with pytest.raises(NotByRanges, match="many differing ranges"):
        compared(MemorySource(rows, 100), MemoryTarget([(key, -1) for key in rows]))
    monkeypatch.setattr(by_ranges, "MOST_KEPT", 50)
    with pytest.raises(NotByRanges, match="many differing ranges"):
        compared(MemorySource(rows, 100), MemoryTarget([*rows.items(), *((5, i) for i in range(60))]))


def test_a_cancel_ends_it_between_two_answers() -> None:
    source = MemorySource({key: key for key in range(1000)}, 100)

    def check() -> None:
        if source.asked == 3:
            raise KeyError("cancelled")

    with pytest.raises(KeyError, match="cancelled"):
        compared(source, MemoryTarget([]), check)
    assert source.asked == 3


def test_ranges_grow_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_ranges, "MOST_RANGES", 10)
    rows = {key: key for key in range(2000)}
    found, _ = compared(MemorySource(rows, 100), MemoryTarget(list(rows.items())))
    assert found.equal
    assert found.ranges < 80
