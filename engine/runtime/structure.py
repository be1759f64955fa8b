"""What a table's new structure means: the same, followed by the target, or more than the target can follow. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.schema import Column, TableSchema


@dataclass(frozen=True, slots=True)
class Same:
    """Nothing that concerns the target changed."""


@dataclass(frozen=True, slots=True)
class Followed:
    """Columns were added or dropped; the target follows in the batch's own transaction."""

    added: tuple[str, ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unsupported:
    """The table parks; `reason` names what changed."""

    reason: str


Verdict = Same | Followed | Unsupported


def judge(known: TableSchema, new: TableSchema) -> Verdict:
    """Compare two versions of a table's structure by attribute number."""
    if known.relation != new.relation:
        return Unsupported("the table was dropped and created again")
    if known.name != new.name:
        return Unsupported(f"the table was renamed to {new.name}")
    if known.mode is not new.mode or known.key != new.key:
        return Unsupported("its key or replica identity changed")
    before = {column.attnum: column for column in known.columns}
    after = {column.attnum: column for column in new.columns}
    for attnum in before.keys() & after.keys():
        reason = _column_change(before[attnum], after[attnum])
        if reason is not None:
            return Unsupported(reason)
    added = tuple(column.name for column in new.columns if column.attnum not in before)
    dropped = tuple(column.name for column in known.columns if column.attnum not in after)
    return Followed(added, dropped) if added or dropped else Same()


def _column_change(before: Column, after: Column) -> str | None:
    if before.name != after.name:
        return f"column {before.name} was renamed to {after.name}"
    if before.map_as != after.map_as:
        return f"the mapping of column {before.name} changed"
    same_type = (before.type.name, before.type.modifier, before.type.element) == (
        after.type.name,
        after.type.modifier,
        after.type.element,
    )
    return None if same_type else f"column {before.name} changed its type"


def newer(one: TableSchema, other: TableSchema) -> bool:
    """Whether `one` is a later structure of the same table than `other`. Attribute numbers only grow and are never reused."""
    ours = {column.attnum for column in one.columns}
    theirs = {column.attnum for column in other.columns}
    if ours == theirs:
        return False
    added = max(ours, default=0) > max(theirs, default=0)
    return added or (ours < theirs and max(ours, default=0) == max(theirs, default=0))
