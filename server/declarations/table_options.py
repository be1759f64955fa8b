"""The options of a table in REST, and their conversion to the stored row and to the engine.

Derived from `engine.model.table_options.TableOptions`: an option that REST shows in the same form needs no line here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, fields
from dataclasses import Field as ModelField
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    create_model,
    field_validator,
    model_validator,
)

from engine.model.identity import TableId, TableName
from engine.model.masks import Mask
from engine.model.operations import set_problem
from engine.model.quarantine import RefusedPolicy
from engine.model.row_filter import columns_of
from engine.model.shared import SharedInto
from engine.model.soft_delete import DeleteMode
from engine.model.subscription import TableSpec
from engine.model.table_options import OPTION, OptionDocs, TableOptions
from server.declarations.policies import TableFreshnessBody
from server.naming import Aliased

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]

LONGEST_NAME = 63
"""Maximum bytes of a name in PostgreSQL."""

OPTION_NAMES = tuple(each.name for each in fields(TableOptions))
"""Names of the options, which are also those of the stored row's columns."""

_OPTIONS = TypeAdapter(TableOptions)
_TYPES = get_type_hints(TableOptions)
_IDENTIFIERS: TypeAdapter[list[str]] = TypeAdapter(list[Identifier])

Body = TypeVar("Body", bound=BaseModel)


class Operation(StrEnum):
    """Kinds of change that can be replicated."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"


class DeclaredBody(Aliased):
    """Base of what users declare."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class ColumnOptions(DeclaredBody):
    """Options of a column on the target."""

    map_as: Literal["text"] = Field(description="Type override. `text`: the value's text as the source prints it.")


def _with_plain_options(
    body: type[Body], make: Callable[[Any, ModelField[Any], OptionDocs], tuple[Any, Any]]
) -> type[Body]:
    """The class, with one more field for each option that REST shows in the model's form."""
    made: dict[str, Any] = {
        each.name: make(_TYPES[each.name], each, each.metadata[OPTION])
        for each in fields(TableOptions)
        if OPTION in each.metadata
    }
    return create_model(body.__name__, __base__=body, __doc__=body.__doc__, __module__=body.__module__, **made)


def _default(option: ModelField[Any]) -> dict[str, Any]:
    """The option's default, as keyword arguments of pydantic's `Field`."""
    if option.default_factory is not MISSING:
        return {"default_factory": option.default_factory}
    return {"default": option.default}


def takes_options(body: type[Body]) -> type[Body]:
    """Class decorator of a body that declares options; a missing one has its default."""
    return _with_plain_options(
        body, lambda kind, each, docs: (kind, Field(**_default(each), description=docs.declared, **docs.limits))
    )


def patches_options(body: type[Body]) -> type[Body]:
    """Class decorator of a body that changes options; null restores the default."""
    return _with_plain_options(body, lambda kind, _, docs: (kind | None, Field(default=None, **docs.limits)))


def shows_options(view: type[Body]) -> type[Body]:
    """Class decorator of a view that shows options."""
    return _with_plain_options(view, lambda kind, each, docs: (kind, Field(**_default(each), description=docs.shown)))


@takes_options
class TableOptionsBody(DeclaredBody):
    """Options of a table that can be changed later."""

    key: list[Identifier] | None = Field(
        default=None, max_length=32, description="Columns that identify a row, for a table without a key."
    )
    operations: list[Operation] | None = Field(
        default=None,
        max_length=4,
        description="Operations to replicate; by default all four. `insert` is always one of them, and `truncate` if `delete` is. Changes"
        " by others are not applied: without `update` a row keeps the values that it was inserted with, without `delete` it stays.",
    )
    where: Annotated[str, StringConstraints(min_length=1, max_length=10_000)] | None = Field(
        default=None,
        description="Replicate only rows that satisfy this SQL condition of the table's columns, literals and operators. Requires"
        " PostgreSQL 15 or newer as the source.",
    )
    insert_only: bool = Field(
        default=False,
        description="Replicate only inserts and truncates of a table that has no replica identity; in a pattern it applies to the tables"
        " without one.",
    )
    columns: dict[Identifier, ColumnOptions] = Field(default_factory=dict, description="Options by column name.")
    into_existing: bool = Field(
        default=False,
        description="Replicate into an existing table on the target, whose definition is not changed. It must be empty at first. Only"
        " for PostgreSQL targets.",
    )

    freshness: TableFreshnessBody | None = Field(
        default=None,
        description="The table's own freshness goal, in place of the subscription's. A change takes hold at once.",
    )

    @field_validator("include_columns", "exclude_columns", check_fields=False)
    @classmethod
    def _column_names(cls, value: Sequence[str]) -> Sequence[str]:
        return tuple(_IDENTIFIERS.validate_python(list(value)))

    @field_validator("where")
    @classmethod
    def _condition(cls, value: str | None) -> str | None:
        if value is not None:
            columns_of(value)
        return value

    @field_validator("mask", check_fields=False)
    @classmethod
    def _masked_names(cls, value: Mapping[str, Mask]) -> Mapping[str, Mask]:
        _IDENTIFIERS.validate_python(list(value))
        return value

    @field_validator("rename", check_fields=False)
    @classmethod
    def _new_names(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        _IDENTIFIERS.validate_python([*value, *value.values()])
        if any(len(name.encode()) > LONGEST_NAME for name in value.values()):
            raise ValueError(f"a name has at most {LONGEST_NAME} bytes")
        if len(set(value.values())) < len(value):
            raise ValueError("each name may be given to one column")
        return value

    @field_validator("key", "operations")
    @classmethod
    def _some_once(cls, value: list[Any] | None) -> list[Any] | None:
        if value is not None and not value:
            raise ValueError("leave it out, or name at least one")
        if value is not None and len(set(value)) < len(value):
            raise ValueError("each may be named once")
        return value

    @model_validator(mode="after")
    def _insert_only_is_that(self) -> TableOptionsBody:
        if self.insert_only and set(self.operations or ()) & {Operation.UPDATE, Operation.DELETE}:
            raise ValueError("insert_only follows no updates and deletes; take them out of operations")
        return self

    @property
    def skipped_operations(self) -> set[Operation]:
        """The operations that `operations` leaves out."""
        return skipped_operations(self.operations or (), insert_only=self.insert_only)

    @model_validator(mode="after")
    def _operations_can_be_followed(self) -> TableOptionsBody:
        problem = set_problem(self.operations) if self.operations is not None else None
        if problem is not None:
            raise ValueError(f"operations cannot be followed: {problem}; add it")
        if not self.skipped_operations:
            return self
        if self.key:
            raise ValueError(
                "operations can only be left out of a table with a key of its own; leave out 'key' or 'operations'"
            )
        if self.options.deletes is DeleteMode.MARK or self.options.history:
            raise ValueError("'deletes' and 'history' need every operation; leave out 'operations'")
        if self.options.refused_rows is RefusedPolicy.SET_ASIDE:
            raise ValueError("quarantined rows need every operation: with 'operations', refused_rows must be 'park'")
        return self

    @model_validator(mode="after")
    def _deletes_can_be_marked(self) -> TableOptionsBody:
        if self.options.deletes is DeleteMode.DELETE:
            return self
        if self.insert_only:
            raise ValueError("insert_only follows no deletes that could be marked; leave out 'deletes' or insert_only")
        if self.into_existing:
            raise ValueError(
                "into_existing does not change the table's definition, so deletes cannot be marked in it; leave one out"
            )
        if self.options.refused_rows is RefusedPolicy.SET_ASIDE:
            raise ValueError(
                "deletes of quarantined rows cannot be marked: with deletes 'mark', refused_rows must be 'park'"
            )
        return self

    @model_validator(mode="after")
    def _history_can_be_kept(self) -> TableOptionsBody:
        if not self.options.history:
            return self
        if self.insert_only:
            raise ValueError("history needs a key, which insert_only is not for; leave out 'history' or insert_only")
        if self.into_existing:
            raise ValueError("history is kept of tables that Penstock creates; leave out 'history' or into_existing")
        if self.options.refused_rows is RefusedPolicy.SET_ASIDE:
            raise ValueError("quarantined rows would have no history: with 'history', refused_rows must be 'park'")
        return self

    @property
    def options(self) -> TableOptions:
        """The model's form."""
        plain = self.model_dump(mode="json", include=set(OPTION_NAMES), exclude_none=True)
        return _OPTIONS.validate_python(
            {**plain, "map_as": {name: column.map_as for name, column in self.columns.items()}}
        )


def followed_operations(*, insert_only: bool) -> set[Operation]:
    """The operations that are replicated if none are declared."""
    return {Operation.INSERT, Operation.TRUNCATE} if insert_only else set(Operation)


def skipped_operations(declared: Collection[str], *, insert_only: bool) -> set[Operation]:
    """The operations that are left out if these are declared; none declared: all are replicated."""
    followed = followed_operations(insert_only=insert_only)
    return followed - {Operation(one) for one in declared} if declared else set()


def options_of(row: object) -> TableOptions:
    """The options of a stored row."""
    return _OPTIONS.validate_python({name: getattr(row, name) for name in OPTION_NAMES})


def stored_options(options: TableOptions) -> dict[str, Any]:
    """Values of the stored row's columns."""
    stored: dict[str, Any] = _OPTIONS.dump_python(options, mode="json")
    return {**stored, "operations": sorted(stored["operations"])}


def declared_options(options: TableOptions) -> dict[str, Any]:
    """In the form of a request body."""
    declared = stored_options(options)
    columns = {name: {"map_as": kind} for name, kind in declared.pop("map_as").items()}
    return {
        **declared,
        "key": declared["key"] or None,
        "operations": declared["operations"] or None,
        "columns": columns,
    }


def shown_options(options: TableOptions) -> dict[str, Any]:
    """In the form of an answer, with defaults in place of missing values."""
    followed = sorted(options.operations or followed_operations(insert_only=options.insert_only))
    return {**declared_options(options), "key": list(options.key), "operations": followed}


def table_spec(
    table: str,
    source: TableName,
    target: TableName,
    options: TableOptions,
    *,
    paused: bool = False,
    shared: SharedInto | None = None,
    staging: bool = False,
) -> TableSpec:
    """A table in the form that the engine takes, with the operations to replicate."""
    allowed = {operation.value for operation in followed_operations(insert_only=options.insert_only)}
    values: dict[str, Any] = {name: getattr(options, name) for name in OPTION_NAMES}
    values["operations"] = frozenset(allowed & options.operations if options.operations else allowed)
    return TableSpec(TableId(table), source, target, paused=paused, shared=shared, staging=staging, **values)
