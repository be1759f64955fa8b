"""Which ranges of keys a sample has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.copies import KeyBound
from engine.model.identity import RelationId, TableId
from engine.model.ranges import KeyInterval, KeySample, NotByRanges, SampledRange, SamplePart, in_parts
from engine.model.sample_sizes import LEAST_ROWS, RANGE_BYTES, RANGES, sizes
from engine.model.source import TableSplit
from engine.verify.sampling import Sampling, borders
from tests.unit.copy.copy_fakes import table_of

SCHEMA = table_of("a").schema


def ranges_between(cuts: Sequence[int], *, first: bool, last: bool) -> list[SampledRange]:
    """Ranges from each second cut to the next one, with open ends if `first` and `last`."""
    ends: list[int | None] = [*([None] if first else []), *cuts]
    if (len(ends) % 2 == 1) != last:
        ends = ends[:-1]
    ends += [None] if last else []
    bounds = [None if end is None else KeyBound((str(end),)) for end in ends]
    return [SampledRange(KeyInterval(*pair), 10, 100) for pair in zip(bounds[::2], bounds[1::2], strict=True)]


def holds(keys: KeyInterval, key: int) -> bool:
    after, upto = (None if bound is None else int(bound.values[0]) for bound in (keys.after, keys.upto))
    return (after is None or key > after) and (upto is None or key <= upto)


@given(st.sets(st.integers(0, 50), min_size=3, max_size=12), st.booleans(), st.booleans())
def test_borders_cut_the_keys_into_the_ranges_and_the_rest(cuts: set[int], first: bool, last: bool) -> None:
    ranges = ranges_between(sorted(cuts), first=first, last=last)
    bounds, wanted = borders(ranges)
    assert len(wanted) == len(bounds) + 1
    for key in range(-1, 52):
        at = next((i for i, bound in enumerate(bounds) if key <= int(bound.values[0])), len(bounds))
        assert wanted[at] == any(holds(each.keys, key) for each in ranges)


def test_parts_have_all_ranges_in_order_and_about_the_bytes() -> None:
    ranges = ranges_between(range(1, 9), first=True, last=True)
    assert [len(part) for part in in_parts(ranges, 250)] == [2, 2, 1]
    assert [each for part in in_parts(ranges, 1) for each in part] == ranges


@given(st.integers(1, 10**10), st.integers(20, 100_000), st.floats(0.0001, 0.9))
def test_a_sample_has_about_its_share_of_the_rows(rows: int, row_bytes: int, share: float) -> None:
    each, chosen = sizes(rows, row_bytes, share)
    assert each * row_bytes <= RANGE_BYTES + row_bytes
    ends = min(1.0, 2 * each / rows)
    covered = ends + (1 - ends) * (1 - (1 - each / rows) ** chosen) if each < rows else 1.0
    if rows * share > 100 * LEAST_ROWS:
        assert covered == pytest.approx(share, rel=0.05)
    assert covered >= min(share, 0.5) * 0.6


def test_large_tables_are_sampled_in_many_ranges() -> None:
    assert sizes(5_000_000, 130, 0.01) == (782, RANGES - 2)
    assert sizes(10, 130, 0.01) == (1, 1)
    each, chosen = sizes(1000, 130, 0.99999)
    assert each * chosen < 10_000


def sample_of(ranges: Sequence[SampledRange]) -> KeySample:
    return KeySample(SCHEMA.key_columns, (SamplePart(tuple(ranges), TableSplit(RelationId(1), "", 1, 1)),))


class Walked:
    """A source that counts how often ranges were chosen."""

    def __init__(self, sample: KeySample | None) -> None:
        self.sample = sample
        self.copies = self
        self.asked: list[tuple[float, str]] = []

    def sample_key(self, schema: object, share: float, seed: str) -> KeySample | None:
        self.asked.append((share, seed))
        return self.sample


def test_a_verification_chooses_the_ranges_of_a_table_once() -> None:
    source = Walked(sample_of(ranges_between([1, 2, 3], first=True, last=True)))
    sampling = Sampling(0.1, "v1")
    first = sampling.of(source, TableId("t"), SCHEMA)  # type: ignore[arg-type]
    assert sampling.of(source, TableId("t"), SCHEMA) is first  # type: ignore[arg-type]
    assert source.asked == [(0.1, "v1/t")]
    columns = tuple(replace(column, attnum=column.attnum + 50) for column in SCHEMA.columns)
    sampling.of(source, TableId("t"), replace(SCHEMA, columns=columns))  # type: ignore[arg-type]
    assert len(source.asked) == 2


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (None, "cannot be walked"),
        (sample_of([SampledRange(KeyInterval(), 1, 1)]), "few rows"),
    ],
)
def test_a_table_without_ranges_is_compared_whole(sample: KeySample | None, reason: str) -> None:
    with pytest.raises(NotByRanges, match=reason):
        Sampling(0.1, "v1").of(Walked(sample), TableId("t"), SCHEMA)  # type: ignore[arg-type]
