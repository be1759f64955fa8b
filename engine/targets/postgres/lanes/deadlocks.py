"""Sessions that wait for each other. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def circle_of(blockers: Mapping[int, Sequence[int]]) -> list[int]:
    """A circle in the graph of who waits for whom, [] where there is none.

    Somebody that waits for one outside the graph is in no circle: whoever that is may end by itself.
    """
    done: set[int] = set()
    for start in blockers:
        path: list[int] = []
        found = _walk(start, blockers, path, done)
        if found:
            return found
    return []


def _walk(at: int, blockers: Mapping[int, Sequence[int]], path: list[int], done: set[int]) -> list[int]:
    if at in path:
        return path[path.index(at) :]
    if at in done or at not in blockers:
        return []
    path.append(at)
    for other in blockers[at]:
        found = _walk(other, blockers, path, done)
        if found:
            return found
    path.pop()
    done.add(at)
    return []
