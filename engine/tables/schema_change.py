"""Decides what a new schema of a table requires: nothing, a change of the target's table, or a new copy. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from engine.model.schema import Column, TableSchema
from engine.model.widening import same_form, widens

_OTHER_STORAGE = -1
"""A relfilenode that no table has, so that it differs from each: PostgreSQL's are unsigned."""
_OF_A_TYPE = re.compile(r"(\d+)[:=] ")


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Nothing that concerns the target changed."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """The target's table is changed in the batch's own transaction. `changes`: what changed, as text."""

    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecopyRequired:
    """Existing rows may have changed in a way that the log does not contain: the table must be copied again. `reason`: what changed."""

    reason: str


Verdict = Unchanged | InPlace | RecopyRequired


def judge(known: TableSchema, new: TableSchema) -> Verdict:
    """Compare two versions of a table's schema by attribute number.

    A new name of the table is no change: the target's table keeps its name.
    """
    if known.relation != new.relation:
        return RecopyRequired("the table was dropped and created again")
    if known.mode is not new.mode or known.key_numbers != new.key_numbers:
        return RecopyRequired("its key or replica identity changed")
    rows = change_of_rows(known, new)
    if rows is not None:
        return RecopyRequired(rows)
    before = {column.attnum: column for column in known.columns}
    after = {column.attnum: column for column in new.columns}
    changes = [f"column {c.name} was dropped" for number, c in before.items() if number not in after]
    # A rewrite changes the relfilenode. A partitioned root has none; its partitions are checked separately.
    rewritten = known.relfilenode != new.relfilenode
    for attnum in sorted(before.keys() & after.keys()):
        verdict = _column_change(before[attnum], after[attnum], rewritten=rewritten, root=new.relfilenode == 0)
        if isinstance(verdict, RecopyRequired):
            return verdict
        changes += verdict
    for number, column in after.items():
        if number not in before and _was_dropped(known, number):
            return RecopyRequired(f"column {column.name} is there again under a number that had been dropped")
    changes += [f"column {c.name} was added" for number, c in after.items() if number not in before]
    computed = _computed_change(known, new)
    if isinstance(computed, RecopyRequired):
        return computed
    changes += computed
    return InPlace(tuple(changes)) if changes else Unchanged()


def change_of_rows(known: TableSchema, new: TableSchema) -> str | None:
    """What changed of which rows the target has, apart from columns, as text; None if nothing."""
    if _condition_of(known) != _condition_of(new):
        return "its row filter changed"
    if known.soft_delete != new.soft_delete:
        return "its option 'deletes' changed"
    if known.history != new.history:
        return "its option 'history' changed"
    if known.staging != new.staging:
        return "the option 'staging' changed"
    if known.skipped != new.skipped:
        return "its option 'operations' changed"
    return "the nodes that have it changed" if known.scattered != new.scattered else None


def _condition_of(schema: TableSchema) -> tuple[str, tuple[int, ...]] | None:
    """The row filter as declared, and the numbers of the columns that it reads: after a swap of names it reads others."""
    found = schema.row_filter
    return (found.text, tuple(number for number, _ in found.columns)) if found is not None else None


def _was_dropped(known: TableSchema, number: int) -> bool:
    """Whether a column with this number had been dropped when `known` was read. The source never reuses a number, so if the number appears
    again, an earlier schema was wrong."""
    return number <= known.last_number and number not in {*known.unsent, *(c.attnum for c in known.computed)}


def _computed_change(known: TableSchema, new: TableSchema) -> list[str] | RecopyRequired:
    """Changes of columns that the log does not contain, as text. A new column, or one with another expression, requires a copy: the log
    does not contain its values in existing rows."""
    before = {column.attnum: column for column in known.computed}
    for column in new.columns:
        if column.attnum in before:
            return RecopyRequired(f"column {column.name} is not computed any more")
    changes = []
    for column in new.computed:
        old = before.pop(column.attnum, None)
        if old is None:
            return RecopyRequired(f"column {column.name} is computed by the source, for all rows")
        if _mark(old) != _mark(column) or old.type != column.type or old.map_as != column.map_as:
            return RecopyRequired(f"column {column.name} is now computed by another expression")
        if old.name != column.name:
            changes.append(f"column {old.name} was renamed to {column.name}")
    return [*(f"column {c.name} was dropped" for c in before.values()), *changes]


def _mark(column: Column) -> str | None:
    return None if column.expression is None else column.expression.mark


def _column_change(before: Column, after: Column, *, rewritten: bool, root: bool) -> list[str] | RecopyRequired:
    if before.map_as != after.map_as:
        return RecopyRequired(f"the mapping of column {after.name} changed")
    if (before.mask, before.mask_mark) != (after.mask, after.mask_mark):
        return RecopyRequired(f"the mask of column {after.name}, or its key, changed")
    found = [] if before.name == after.name else [f"column {before.name} was renamed to {after.name}"]
    if before.name == after.name and before.on_source != after.on_source:
        found.append(f"column {after.name} is named {after.on_source} on the source")
    if _written_otherwise(before, after):
        return RecopyRequired(f"values of the type of column {after.name} are now written in another form")
    if same_form(before.type, after.type):
        redefined = before.edition and after.edition and before.edition != after.edition
        return (
            RecopyRequired(f"column {after.name} was changed and the table rewritten")
            if rewritten and redefined
            else found
        )
    if rewritten or root or not widens(before.type, after.type):
        return RecopyRequired(f"column {after.name} changed its type, and its existing values with it")
    return [*found, f"column {after.name} got a wider type"]


def _written_otherwise(before: Column, after: Column) -> bool:
    """Whether existing values are now printed in another form, or were in between. They are not if each type that the column contains keeps
    its labels and parts, and new ones only follow them. A type of which `before` has no labels is not compared: earlier releases did not
    read the types within composite types."""
    now = _labels(after)
    return any(
        len(now.get(kind, [])) < len(known) or any(map(_renamed, known, now[kind]))
        for kind, known in _labels(before).items()
    )


def _renamed(before: tuple[str, int], after: tuple[str, int]) -> bool:
    (label, edition), (new, later) = before, after
    return label != new or (0 not in (edition, later) and edition != later)


def _labels(column: Column) -> dict[str, list[tuple[str, int]]]:
    """The entries of `Column.labels`, with their editions, by the type that they belong to ("" for the column's own enum type)."""
    kind = column.type
    while kind.element is not None:
        kind = kind.element
    found: dict[str, list[tuple[str, int]]] = {}
    editions = [*column.label_editions, *[0] * len(column.labels)]
    for label, edition in zip(column.labels, editions, strict=False):
        said = None if kind.category == "e" else _OF_A_TYPE.match(label)
        found.setdefault(said[1] if said else "", []).append((label[said.end() :] if said else label, edition))
    return found


def judge_rewrite(known: TableSchema, new: TableSchema, *, values: bool) -> Verdict:
    """As `judge`, if it is known whether a rewrite changed values of rows (`values`). The relfilenodes are not compared."""
    return seen_in_catalog(replace(known, relfilenode=_OTHER_STORAGE if values else new.relfilenode), new)


def seen_in_catalog(known: TableSchema, new: TableSchema) -> Verdict:
    """As `judge`, for a schema that only the catalog shows. Columns of `filled_unseen` require a copy, as they do when the log announces
    them."""
    unseen = filled_unseen(known, new)
    if unseen is not None:
        return RecopyRequired(f"column {unseen} was added and the table rewritten")
    return judge(known, new)


def without_fills(schema: TableSchema) -> TableSchema:
    """The schema without the columns' `fill` values, for comparisons."""
    return replace(schema, columns=tuple(replace(column, fill=None) for column in schema.columns))


def with_fills(known: TableSchema, new: TableSchema) -> TableSchema:
    """The new schema; columns without a `fill` value get that of `known`, because the catalog does not show it after a rewrite."""
    before = {column.attnum: column.fill for column in known.columns}
    columns = tuple(replace(c, fill=before.get(c.attnum)) if c.fill is None else c for c in new.columns)
    return replace(new, columns=columns)


def with_definitions(known: TableSchema, now: TableSchema) -> TableSchema:
    """The known schema with the current definitions of its columns from the catalog, so that later changes are compared with these."""
    found = {column.attnum: column for column in now.columns}
    columns = tuple(_as_defined(c, found.get(c.attnum, c)) for c in known.columns)
    return replace(known, columns=columns, relfilenode=now.relfilenode)


def _as_defined(column: Column, now: Column) -> Column:
    return replace(column, edition=now.edition, labels=now.labels, label_editions=now.label_editions)


def as_of(before: TableSchema, announced: TableSchema) -> TableSchema:
    """The announced schema if the catalog already showed a later one when it was resolved. Editions and relfilenode are those of `before`:
    the catalog's may be later, and would hide a rewrite in between."""
    editions = {column.attnum: column.edition for column in before.columns}
    columns = tuple(replace(c, edition=editions.get(c.attnum, 0)) for c in announced.columns)
    return replace(announced, columns=columns, relfilenode=before.relfilenode)


def filled_unseen(known: TableSchema, new: TableSchema) -> str | None:
    """Name of a new column whose values in existing rows neither log nor catalog contains: it was added by a rewrite, is generated, or
    existed before and was not in the log, or is masked. None if there is none."""
    rewritten = known.relfilenode != new.relfilenode
    before = {column.attnum for column in known.columns}
    for column in new.columns:
        unnoted = column.generated or column.mask is not None or (rewritten and column.fill is None)
        if column.attnum in known.unsent or (unnoted and column.attnum not in before):
            return column.name
    return None


def differences(before: TableSchema, after: TableSchema) -> tuple[str, ...]:
    """The differences as text for users, including those that do not concern the target."""
    found = [] if before.name == after.name else [f"the table is {after.name} now"]
    old = {column.attnum: column for column in before.whole.columns}
    new = {column.attnum: column for column in after.whole.columns}
    found += [f"column {c.name} was dropped" for number, c in old.items() if number not in new]
    for number in sorted(old.keys() & new.keys()):
        found += _words(old[number], new[number])
    found += [f"column {c.name} was added" for number, c in new.items() if number not in old]
    if before.key_numbers != after.key_numbers:
        found.append(f"its key is ({', '.join(after.key)}) now" if after.key else "it has no key any more")
    if before.identity is not after.identity:
        found.append(f"its replica identity is {after.identity.value} now")
    return tuple(found)


def _words(before: Column, after: Column) -> list[str]:
    found = [] if before.name == after.name else [f"column {before.name} is named {after.name} now"]
    if not same_form(before.type, after.type):
        found.append(f"column {after.name} changed its type")
    if before.nullable != after.nullable:
        found.append(f"column {after.name} {'may' if after.nullable else 'may not'} be NULL now")
    if before.generated != after.generated:
        found.append(f"column {after.name} {'is generated now' if after.generated else 'is not generated any more'}")
    return found


def held(kept: TableSchema, new: TableSchema) -> TableSchema:
    """The schema of a target that does not follow schema changes: only the types of its columns change, to wider ones.

    A column that the source has dropped is NULL in new rows.
    """
    now = {column.attnum: column for column in new.columns}
    columns = tuple(
        replace(c, type=now[c.attnum].type, edition=now[c.attnum].edition) if c.attnum in now else replace(c, fill=None)
        for c in kept.columns
    )
    return replace(kept, columns=columns, relfilenode=new.relfilenode)


def newer(one: TableSchema, other: TableSchema) -> bool:
    """Whether `one` is a later schema of the same table than `other`. Attribute numbers only increase and are never reused."""
    ours = {column.attnum for column in one.columns}
    theirs = {column.attnum for column in other.columns}
    if ours == theirs:
        return False
    added = max(ours, default=0) > max(theirs, default=0)
    return added or (ours < theirs and max(ours, default=0) == max(theirs, default=0))
