"""Portable SQL conditions for the rows of a target's table that belong to partitions of the source. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from engine.model.partitions import Bound, Edge, Limit, ListBound, PartitionRows, RangeBound


def condition(rows: PartitionRows, column: Callable[[str], str], value: Callable[[int], str]) -> str:
    """SQL condition, never NULL: whether a row is in one of the partitions.

    `column` returns the expression of a column by name, `value` that of the n-th of `rows.values`.
    """
    numbers = iter(range(len(rows.columns)))
    regions = [
        " AND ".join(_bound(bound, column, value, numbers) for bound in region) or "true" for region in rows.regions
    ]
    return " OR ".join(f"({region})" for region in regions) or "false"


def _bound(bound: Bound, column: Callable[[str], str], value: Callable[[int], str], numbers: Iterator[int]) -> str:
    if isinstance(bound, ListBound):
        name = column(bound.column)
        tests = [f"{name} = {value(next(numbers))}" for _ in bound.values]
        if bound.null:
            tests.append(f"{name} IS NULL")
        return f"coalesce({' OR '.join(tests) or 'false'}, false)"
    if isinstance(bound, RangeBound):
        names = [column(name) for name in bound.columns]
        present = " AND ".join(f"{name} IS NOT NULL" for name in names)
        lower = _beyond(names, bound.lower, value, numbers, behind=True)
        upper = _beyond(names, bound.upper, value, numbers, behind=False)
        return f"coalesce({present} AND {lower} AND {upper}, false)"
    tests = [_bound(other, column, value, numbers) for other in bound.others]
    return f"NOT ({' OR '.join(tests) or 'false'})"


def _beyond(
    names: Sequence[str], limits: Sequence[Limit], value: Callable[[int], str], numbers: Iterator[int], *, behind: bool
) -> str:
    """`behind`: the columns are at or after the limits in order; else before them."""
    values = [limit if isinstance(limit, Edge) else value(next(numbers)) for limit in limits]
    found = "true" if behind else "false"
    for name, limit in reversed(list(zip(names, values, strict=True))):
        if isinstance(limit, Edge):
            found = "true" if (limit is Edge.LOWEST) is behind else "false"
        else:
            found = f"({name} {'>' if behind else '<'} {limit} OR ({name} = {limit} AND {found}))"
    return found
