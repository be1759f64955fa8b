"""Finds cycles of sessions that wait for each other. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter


def circle_of(blockers: Mapping[int, Sequence[int]]) -> list[int]:
    """A cycle in the waits-for graph, [] if there is none.

    A session that waits for one outside the graph is in no cycle: that one may end.
    """
    try:
        TopologicalSorter(blockers).prepare()
    except CycleError as error:
        # From each one to who waits for it, the first one at both ends.
        circle: list[int] = error.args[1]
        return circle[:0:-1]
    return []
