"""Determines which changes of a column's type keep every value unchanged, so that no new copy is needed. Pure."""

from __future__ import annotations

from engine.model.schema import SourceType

_TEXTS = frozenset({"varchar", "text"})
_INTEGERS = ("int2", "int4", "int8")
_FINER = frozenset({"timestamp", "timestamptz", "time", "timetz", "varbit"})
"""Types whose length or precision limit can be raised or removed without a change of any value."""


def same_form(one: SourceType, other: SourceType) -> bool:
    """Whether both are the same type with the same limits. OIDs may differ."""
    alike = (one.name, one.modifier, one.category) == (other.name, other.modifier, other.category)
    if one.element is None or other.element is None:
        return alike and one.element is other.element
    return alike and same_form(one.element, other.element)


def widens(old: SourceType, new: SourceType) -> bool:
    """Whether every value of `old` is a value of `new` and prints the same.

    These are the changes that PostgreSQL makes without a table rewrite, so that nothing else can have changed with them:
    a longer or no limit of `varchar`, more fractional digits of a time, and more digits before the point of a `numeric`.
    """
    if same_form(old, new):
        return True
    if old.element is not None or new.element is not None:
        return False
    if old.category != "b" or new.category != "b":
        return False
    if (old.name in _TEXTS and new.name in _TEXTS) or (old.name == new.name and old.name in _FINER):
        return new.modifier < 0 or 0 <= old.modifier <= new.modifier
    if old.name == new.name == "numeric":
        return _more_digits(old, new)
    return False


def holds(narrow: SourceType, wide: SourceType) -> bool:
    """Whether every value of `narrow` is a value of `wide` and prints the same, even if the change requires a table rewrite."""
    if narrow.element is not None or wide.element is not None:
        return same_form(narrow, wide)
    if narrow.name in _INTEGERS and wide.name in _INTEGERS:
        return _INTEGERS.index(narrow.name) <= _INTEGERS.index(wide.name)
    if narrow.name in _INTEGERS and wide.name == "numeric":
        return wide.digits is None
    return widens(narrow, wide)


def _more_digits(old: SourceType, new: SourceType) -> bool:
    if old.digits is None or new.digits is None:
        return new.digits is None
    (digits, scale), (more, other) = old.digits, new.digits
    return scale == other and more >= digits
