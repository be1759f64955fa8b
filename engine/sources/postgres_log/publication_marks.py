"""Detects changes of a publication by others: its comment lists the engine's transactions that wrote its catalog rows. Pure.

The engine changes the publication and its comment in one transaction, so that a crash cannot separate the two. Rows that another
transaction wrote carry its id (xmin), even if it restored the previous state. Freezing keeps xmin, and while our slot exists the source
does not reuse transaction ids. A table that another transaction removed from the publication is missing.
"""

from __future__ import annotations

from collections.abc import Collection

_LISTED = 3
"""Most foreign transactions that an event's text names: a finding must be readable, and one is enough to search for. Not measured."""
_TEXT = "Penstock: leave this publication alone. Its rows were written by"


def mark_text(writers: Collection[int]) -> str:
    """The comment of a publication whose catalog rows these transactions of the engine wrote."""
    return " ".join([_TEXT, *map(str, sorted(writers))])


def writers_in(comment: str | None) -> frozenset[int] | None:
    """The transactions that a comment lists; None if the engine did not write it."""
    if comment is None or not comment.startswith(f"{_TEXT} "):
        return None
    numbers = comment[len(_TEXT) :].split()
    return frozenset(map(int, numbers)) if all(n.isascii() and n.isdigit() for n in numbers) else None


def strangers(name: str, writers: Collection[int], ours: Collection[int] | None) -> list[str]:
    """Evidence that others changed a publication, as text; empty if they did not."""
    if ours is None:
        return [f"publication {name} lacks the comment by which Penstock recognises its own changes"]
    found = sorted(set(writers) - set(ours))
    listed = ", ".join(map(str, found[:_LISTED])) + (" and others" if len(found) > _LISTED else "")
    return [f"publication {name} was changed by a transaction that is not Penstock's ({listed})"] if found else []
