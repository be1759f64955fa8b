"""The options of a table, declared once: REST bodies, stored rows and messages derive from it.

Each of them uses the field's name. REST shows fields with metadata in the form they have here, and the others in a form of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.model.column_selection import ColumnSelection
from engine.model.history import HISTORY_SUFFIX
from engine.model.masks import Mask
from engine.model.quarantine import RefusedPolicy
from engine.model.soft_delete import DELETED_AT, DeleteMode

OPTION = "option"
"""Key of a field's metadata, for `OptionDocs`."""


@dataclass(frozen=True, slots=True)
class OptionDocs:
    """How REST describes an option in requests and in answers, with the limits of its values."""

    declared: str
    shown: str
    limits: Mapping[str, Any] = field(default_factory=dict)


def _rest(declared: str, shown: str | None = None, **limits: Any) -> Mapping[str, OptionDocs]:
    """Metadata of a field that REST shows in the same form. `limits`: keyword arguments of pydantic's `Field`."""
    return {OPTION: OptionDocs(declared, shown or declared, limits)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """The options of one table; each has a default."""

    key: tuple[str, ...] = ()
    """Columns that identify a row, for a table without a key."""
    operations: frozenset[str] = frozenset()
    """Operations to replicate; empty = all that `insert_only` permits."""
    where: str | None = None
    insert_only: bool = False
    map_as: Mapping[str, str] = field(default_factory=dict)
    """Type on the target by column name."""
    into_existing: bool = False
    """Replicate into an existing table on the target, which is never replaced by another one."""
    include_columns: tuple[str, ...] = field(
        default=(),
        metadata=_rest(
            "Names of the columns to replicate, or patterns with `*` (any characters); by default all columns.",
            "Names and patterns of the columns that are replicated; empty for all.",
            max_length=1000,
        ),
    )
    exclude_columns: tuple[str, ...] = field(
        default=(),
        metadata=_rest(
            "Names of columns that are left out, or patterns with `*` (any characters), also of `include_columns`. Their values are"
            " removed before the source's changes are written to disk.",
            "Names and patterns of the columns that are left out.",
            max_length=1000,
        ),
    )
    mask: Mapping[str, Mask] = field(
        default_factory=dict,
        metadata=_rest(
            "What is replicated in place of a column's values, by the column's name on the source; NULL stays NULL. `null`: NULL."
            " `constant`: the text `value`. `hash`: HMAC-SHA-256 of the value's text with the secret `mask_key` of the source's connection,"
            " as hexadecimal `text` or as `bytea`; equal values have equal hashes. Values are masked before the source's changes are"
            " written to disk.",
            "What is replicated in place of columns' values.",
            max_length=1000,
        ),
    )
    rename: Mapping[str, str] = field(
        default_factory=dict,
        metadata=_rest(
            "Names on the target by the columns' names on the source.",
            "Names of columns on the target by their names on the source.",
            max_length=1000,
        ),
    )
    priority: int = field(
        default=0,
        metadata=_rest("Tables with a higher priority are copied first.", ge=-1000, le=1000),
    )
    refused_rows: RefusedPolicy = field(
        default=RefusedPolicy.PARK,
        metadata=_rest(
            "What happens to a row that the target rejects: `park` parks the table and keeps the row for inspection; `set_aside`"
            " quarantines the row, and the table is replicated without it.",
            "What happens to a row that the target rejects.",
        ),
    )

    deletes: DeleteMode = field(
        default=DeleteMode.DELETE,
        metadata=_rest(
            "What happens to a row that the source deletes: `delete` deletes it on the target; `mark` keeps it with its last values and"
            f" sets `{DELETED_AT}`, an additional column of the target's table, to the commit time of the deletion. Needs a key.",
            "What happens to a row that the source deletes.",
        ),
    )
    history: bool = field(
        default=False,
        metadata=_rest(
            f"Keep every version of each row, with the time from which and to which it was valid, in the table `NAME{HISTORY_SUFFIX}`"
            " next to the target's table `NAME`. Needs a key.",
            "Every version of each row is kept in a table of its own.",
        ),
    )

    @property
    def selection(self) -> ColumnSelection:
        return ColumnSelection(self.include_columns, self.exclude_columns, tuple(sorted(self.mask.items())))
