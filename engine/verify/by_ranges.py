"""Compares a table by digests of key ranges, which source and target compute: only rows of ranges that differ are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.model.copies import KeyBound
from engine.model.ranges import (
    KeyInterval,
    NotByRanges,
    RangeDigest,
    RangedRows,
    RangeSource,
    SampledRange,
    TargetDigests,
    in_parts,
)
from engine.model.schema import TableSchema
from engine.model.source import ExportedSnapshot, Source, TableSplit
from engine.verify.progress import Progress

READ_BYTES = 64 * 1024**2
"""Bytes of a table, estimated, that the source digests in one round trip: about a second, in which the comparison cannot be cancelled."""
RANGE_BYTES = 256 * 1024
"""Bytes of a range, estimated: its digest costs some 50 bytes on the wire, and one differing row in it makes RANGE_BYTES be read again."""
MOST_RANGES = 65_536
"""Ranges after which their size is doubled, so that the memory for them is bounded (about 100 MB for a billion rows)."""
PART_ROWS = 150
"""Rows of the parts into which differing ranges are cut before rows are read: their texts are as long as 200 digests."""
MOST_KEPT = 4_000_000
"""Most rows in differing ranges for which ranges are read one by one; if there are more, the whole table is compared by rows."""
FEW_ROWS = 50_000
"""Rows in differing ranges above which that is also so if more than a quarter of the ranges differ: a column may print differently on the
target, so that all of them do."""


ReadRows = Callable[[Sequence[TableSplit]], AbstractContextManager[Iterator[Any]]]
"""The splits' decoded rows, as pyarrow.RecordBatch, read ahead within the block."""


@dataclass(frozen=True, slots=True)
class RangesFound:
    """Result of a comparison by ranges. `differences`: as those of TargetReader.compare."""

    source_rows: int
    target_rows: int
    differences: list[dict[str, Any]]
    equal: bool
    ranges: int
    different: int

    def and_(self, other: RangesFound) -> RangesFound:
        """The result for these ranges and others."""
        return RangesFound(
            self.source_rows + other.source_rows,
            self.target_rows + other.target_rows,
            [*self.differences, *other.differences],
            self.equal and other.equal,
            self.ranges + other.ranges,
            self.different + other.different,
        )


@dataclass(slots=True)
class ByRanges:
    """One table's comparison. `check` raises if the verification was cancelled."""

    source: Source
    snapshot: ExportedSnapshot
    schema: TableSchema
    ranges: RangeSource
    check: Callable[[], None]
    progress: Progress
    row_bytes: int = 1
    """Size of a row's text, after `base`: the average of the range in which it is the largest."""

    def base(self) -> list[RangeDigest]:
        """Digests of ranges that cover the table. Raises NotByRanges."""
        found: list[RangeDigest] = []
        after: KeyBound | None = None
        average = 0
        while True:
            self.check()
            walk = self.source.copies.walk_key(self.schema, after, READ_BYTES, 1)
            if walk is None:
                raise NotByRanges("a table whose key cannot be walked")
            ((split, upto),) = ((each.split, each.upto) for each in walk.splits)
            self.progress.expected = walk.table_bytes
            average = average or max(1, split.bytes_estimate // max(1, split.rows_estimate))
            rows = max(1, RANGE_BYTES // average) << (len(found) // MOST_RANGES)
            answer = self._digests([KeyInterval(after, upto)], rows)
            average = max(1, sum(each.bytes for each in answer) // max(1, sum(each.rows for each in answer)))
            self.row_bytes = max(self.row_bytes, *(each.bytes // max(1, each.rows) for each in answer))
            found += answer
            self.progress.advance(split.bytes_estimate)
            if upto is None:
                return found
            after = upto

    def base_of(self, sample: Sequence[SampledRange], row_bytes: int) -> list[RangeDigest]:
        """Digests of ranges that cover these ones; for a target that has no rows between them. Raises NotByRanges."""
        found: list[RangeDigest] = []
        for part in in_parts(sample, READ_BYTES):
            self.check()
            answer = self._digests([each.keys for each in part], max(1, RANGE_BYTES // row_bytes))
            self.row_bytes = max(self.row_bytes, *(each.bytes // max(1, each.rows) for each in answer))
            found += answer
        return found

    def compare(self, base: Sequence[RangeDigest], target: RangedRows, read: ReadRows, limit: int) -> RangesFound:
        """Compare the target's ranges with the source's. Raises NotByRanges if too many rows are in differing ranges."""
        found = target.digests(_bounds(base), self.check, self.ranges.form)
        wanted = _differing(base, found)
        source_rows, target_rows = sum(each.rows for each in base), int(found.rows.sum())
        if not wanted.any():
            return RangesFound(source_rows, target_rows, [], True, len(base), 0)
        kept = sum(each.rows for each, keep in zip(base, wanted, strict=True) if keep)
        kept = max(kept, int(found.rows[wanted].sum()))
        if kept > MOST_KEPT or (kept > FEW_ROWS and 4 * int(wanted.sum()) > len(base)):
            raise NotByRanges("many differing ranges")
        target.keep(_bounds(base), wanted.tolist())
        parts = list(self._parts([each for each, keep in zip(base, wanted, strict=True) if keep]))
        unequal = _differing(parts, target.digests(_bounds(parts), self.check, self.ranges.form))
        target.keep(_bounds(parts), unequal.tolist())
        splits = [self.ranges.split(each.keys, each.rows) for each in _merged(parts, unequal)]
        with read(splits) as rows:
            seen, held, differences = target.compare(rows, limit)
        equal = source_rows == target_rows and seen == held and not differences
        return RangesFound(source_rows, target_rows, differences, equal, len(base), int(wanted.sum()))

    def _parts(self, differing: Sequence[RangeDigest]) -> Iterator[RangeDigest]:
        """The parts of differing ranges. Between two of these the target has no rows any more, so that the next part may begin there."""
        at_once = max(1, READ_BYTES // max(1, self.row_bytes * max(each.rows for each in differing)))
        for begin in range(0, len(differing), min(at_once, 256)):
            self.check()
            intervals = [each.keys for each in differing[begin : begin + min(at_once, 256)]]
            yield from self._digests(intervals, PART_ROWS)

    def _digests(self, intervals: Sequence[KeyInterval], rows: int) -> list[RangeDigest]:
        answer = self.ranges.digests(intervals, rows, self.snapshot.name)
        count = sum(each.rows for each in answer)
        self.progress.came(count, sum(map(_answer_bytes, answer)))
        return answer


def _answer_bytes(found: RangeDigest) -> int:
    """Bytes of a range in an answer: texts of three numbers and two counters, lengths of fields, and the last key."""
    last = found.keys.upto
    return 80 + (sum(len(value) + 4 for value in last.values) if last is not None else 0)


def _bounds(ranges: Sequence[RangeDigest]) -> list[KeyBound]:
    return [each.keys.upto for each in ranges[:-1] if each.keys.upto is not None]


def _differing(ranges: Sequence[RangeDigest], target: TargetDigests) -> Any:
    """Which ranges differ, as a numpy array of bool."""
    own = np.array([(each.rows, each.low, each.high) for each in ranges], np.int64).reshape(-1, 3)
    return (own != np.stack([target.rows, target.low, target.high], axis=1)).any(axis=1)


def _merged(ranges: Sequence[RangeDigest], chosen: Sequence[bool]) -> list[RangeDigest]:
    """The chosen ranges; neighbours are one range, without digests."""
    found: list[RangeDigest] = []
    for each, keep in zip(ranges, chosen, strict=True):
        if not keep:
            continue
        if found and found[-1].keys.upto == each.keys.after:
            keys = KeyInterval(found[-1].keys.after, each.keys.upto)
            found[-1] = RangeDigest(keys, found[-1].rows + each.rows, 0, 0, 0)
        else:
            found.append(RangeDigest(each.keys, each.rows, 0, 0, 0))
    return found
