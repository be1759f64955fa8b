"""Sizes of the ranges of a sample."""

from __future__ import annotations

import math

RANGES = 64
"""Ranges of a sample at least, unless they would have less than LEAST_ROWS rows: the more there are, the more likely one meets rows that
were lost together; each one costs the target a search."""
LEAST_ROWS = 20
"""Rows of a range at least, if there are fewer than RANGES ranges: so many cost about as much as the search for the first of them. Not
measured."""
RANGE_BYTES = 64 * 1024 * 1024
"""Most bytes of a range, estimated, for the same reason, and because a comparison can be cancelled between two."""
PART_BYTES = 512 * 1024 * 1024
"""Most bytes of ranges, estimated, that are compared at once: the target puts their rows into a temporary table. Not measured."""
_LARGEST_SHARE = 0.99
"""Ranges begin independently and may meet; to cover all of a table, there would be no end of them."""


def sizes(rows: int, row_bytes: int, share: float) -> tuple[int, int]:
    """Rows of a range, and the number of ranges to choose besides the first and the last one, of a table with so many rows."""
    share = min(share, _LARGEST_SHARE)
    wanted = max(1.0, rows * share)
    ranges = max(min(RANGES, wanted / LEAST_ROWS), wanted * row_bytes / RANGE_BYTES, 3)
    each = max(1, math.ceil(wanted / ranges))
    ends = min(1.0, 2 * each / rows)
    if share <= ends:
        return each, 1
    # Ranges that begin independently cover the share 1 - exp(-number * each / rows) of the others.
    between = (share - ends) / (1 - ends)
    return each, max(1, round(-math.log1p(-between) * rows * (1 - ends) / each))
