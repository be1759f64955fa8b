"""When a changed option of a table takes effect, and what it costs. Pure."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from engine.model.subscription import SchemaPolicy
from engine.model.table_options import TableOptions
from engine.model.table_state import TableStateKind
from server.declarations.table_options import followed_operations


class OptionEffect(StrEnum):
    """What follows from a changed option."""

    AT_ONCE = "at_once"
    IN_PLACE = "in_place"
    NEW_COPY = "new_copy"
    PARKS = "parks"
    NEXT_RELOAD = "next_reload"


COPIES = frozenset({OptionEffect.NEW_COPY, OptionEffect.PARKS, OptionEffect.NEXT_RELOAD})
"""Effects that begin with another copy of the table."""

_NEW_COPY = frozenset({"key", "where", "insert_only", "columns", "mask", "deletes", "history", "operations"})
_SELECTION = frozenset({"include_columns", "exclude_columns"})
_NEW_START = _SELECTION | {"mask", "insert_only"}


def effect_of(
    option: str, before: TableOptions, after: TableOptions, state: TableStateKind, policy: SchemaPolicy
) -> OptionEffect:
    """The effect of a change of this option, by its name in REST, on a table in this state. `policy`: of the subscription."""
    effect = _effect_when_followed(option, before, after)
    if effect is OptionEffect.AT_ONCE or state is TableStateKind.REGISTERED:
        return OptionEffect.AT_ONCE
    if effect is OptionEffect.NEXT_RELOAD or state is TableStateKind.PARKED:
        return OptionEffect.NEXT_RELOAD
    if policy is SchemaPolicy.APPLY:
        return effect
    if effect is OptionEffect.IN_PLACE and policy is SchemaPolicy.IGNORE:
        return OptionEffect.NEXT_RELOAD
    return OptionEffect.PARKS


def needs_new_start(options: Collection[str]) -> bool:
    """Whether changes of these options take effect with a new start of the subscription's run."""
    return not _NEW_START.isdisjoint(options)


def _effect_when_followed(option: str, before: TableOptions, after: TableOptions) -> OptionEffect:
    if option == "operations" and _followed(before) == _followed(after):
        return OptionEffect.AT_ONCE
    if option in _NEW_COPY:
        return OptionEffect.NEW_COPY
    if option in _SELECTION:
        return OptionEffect.IN_PLACE if _leaves_out_more(before, after) else OptionEffect.NEW_COPY
    if option == "rename":
        return OptionEffect.IN_PLACE
    return OptionEffect.NEXT_RELOAD if option == "into_existing" else OptionEffect.AT_ONCE


def _followed(options: TableOptions) -> Collection[str]:
    return set(options.operations or followed_operations(insert_only=options.insert_only))


def _leaves_out_more(before: TableOptions, after: TableOptions) -> bool:
    """Whether no column can come back, whatever the table's columns are."""
    included = bool(after.include_columns) and set(after.include_columns) <= set(before.include_columns)
    return set(before.exclude_columns) <= set(after.exclude_columns) and (not before.include_columns or included)
