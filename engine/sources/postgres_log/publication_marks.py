"""Who changed a publication: its comment names the transactions of ours that wrote its rows in the source's catalog. Pure.

Each change of ours writes the comment in its own transaction, so that no crash comes between the two. Whatever another transaction
writes has that one's number (xmin), also where it puts things back as they were; freezing leaves the number as it is, and while our slot
exists the source gives no number twice. A table that another transaction took out, and did not put in again, is missing.
"""

from __future__ import annotations

from collections.abc import Collection

_LISTED = 3
_TEXT = "Penstock: leave this publication alone. Its rows were written by"


def mark_text(writers: Collection[int]) -> str:
    """The comment of a publication whose rows these transactions of ours wrote."""
    return " ".join([_TEXT, *map(str, sorted(writers))])


def writers_in(comment: str | None) -> frozenset[int] | None:
    """The transactions that a comment names; None where it is not one of ours."""
    if comment is None or not comment.startswith(f"{_TEXT} "):
        return None
    numbers = comment[len(_TEXT) :].split()
    return frozenset(map(int, numbers)) if all(n.isascii() and n.isdigit() for n in numbers) else None


def strangers(name: str, writers: Collection[int], ours: Collection[int] | None) -> list[str]:
    """What shows that others changed a publication, in words; nothing where they did not."""
    if ours is None:
        return [f"publication {name} lacks the comment by which Penstock recognises its own changes"]
    found = sorted(set(writers) - set(ours))
    listed = ", ".join(map(str, found[:_LISTED])) + (" and others" if len(found) > _LISTED else "")
    return [f"publication {name} was changed by a transaction that is not Penstock's ({listed})"] if found else []
