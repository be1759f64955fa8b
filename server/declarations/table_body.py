"""How users declare a table, or a pattern of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from engine.model.identity import TableName
from engine.model.patterns import ANY, TablePattern
from engine.model.quarantine import RefusedPolicy
from engine.model.shared import SharedInto
from server.errors import FieldError, InvalidRequest, NotSupportedYet

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]


class Operation(StrEnum):
    """Kinds of change that can be followed."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"


class _Body(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        hide_input_in_errors=True,
    )


class TargetName(_Body):
    """Another name on the target; what is left out is as on the source."""

    schema_name: Identifier | None = Field(default=None, validation_alias="schema", serialization_alias="schema")
    name: Identifier | None = None


class SharedBody(_Body):
    """The shared table that shows a table's rows together with those of others, also of other subscriptions into the same target."""

    schema_name: Identifier | None = Field(
        default=None, validation_alias="schema", serialization_alias="schema", description="By default the source's."
    )
    name: Identifier | None = Field(default=None, description="By default the table's own.")
    source_column: Identifier = Field(
        default="source", description="The shared table's first column, which names the source of each row."
    )
    source_value: Identifier | None = Field(
        default=None,
        description="Its value in the rows of this table, which no other table there has; by default the subscription's name.",
    )


class ColumnOptions(_Body):
    """How a column is held on the target."""

    map_as: Literal["text"] = Field(description="`text`: as the source prints the value.")


class TableOptions(_Body):
    """What can be said of a table, and changed later."""

    key: list[Identifier] | None = Field(
        default=None, max_length=32, description="Columns that identify a row, where the table has no key of its own."
    )
    operations: list[Operation] | None = Field(
        default=None,
        max_length=4,
        description="Follow only these; by default all four. Anything else is refused as `not_supported_yet`.",
    )
    where: Annotated[str, StringConstraints(min_length=1, max_length=10_000)] | None = Field(
        default=None,
        description="Replicate only rows for which this condition of the source's SQL holds. Refused as `not_supported_yet`.",
    )
    insert_only: bool = Field(
        default=False,
        description="Consent to follow only inserts and truncates of a table that has no replica identity; on a pattern it "
        "counts for the tables without one.",
    )
    columns: dict[Identifier, ColumnOptions] = Field(default_factory=dict, description="Options by column name.")
    into_existing: bool = Field(
        default=False,
        description="Replicate into a table that exists on the target already, and stays as its owner made it; it has to be empty at "
        "first. Only for PostgreSQL targets.",
    )

    priority: int = Field(
        default=0, ge=-1000, le=1000, description="Tables with a higher one are copied before those with a lower one."
    )

    refused_rows: RefusedPolicy = Field(
        default=RefusedPolicy.PARK,
        description="What happens to a row that the target does not take: `park` parks the table and keeps the row to be looked at;"
        " `set_aside` quarantines the row, and the table is replicated without it.",
    )

    @field_validator("key", "operations")
    @classmethod
    def _some_once(cls, value: list[Any] | None) -> list[Any] | None:
        if value is not None and not value:
            raise ValueError("leave it out, or name at least one")
        if value is not None and len(set(value)) < len(value):
            raise ValueError("each may be named once")
        return value

    @model_validator(mode="after")
    def _insert_only_is_that(self) -> TableOptions:
        if self.insert_only and set(self.operations or ()) & {Operation.UPDATE, Operation.DELETE}:
            raise ValueError("insert_only follows no updates and deletes; take them out of operations")
        return self

    @property
    def map_as(self) -> dict[str, str]:
        return {name: options.map_as for name, options in self.columns.items()}


class TableBody(TableOptions):
    """A table to be replicated; with a `*` in its name, every table of the schema whose name matches, also those that are yet to come:
    `*` stands for any characters."""

    schema_name: Identifier = Field(validation_alias="schema", serialization_alias="schema")
    name: Identifier
    target: TargetName | None = None
    shared_into: SharedBody | None = Field(
        default=None,
        description="A table on the target that shows these rows together with those of other sources. The rows themselves lie in a "
        "table of their own, by default named after it and the source value: `orders__eu`.",
    )

    exclude: list[Identifier] | None = Field(
        default=None,
        max_length=1000,
        description="Of a pattern: names, or patterns of names, of tables that it does not take.",
    )
    exact: bool = Field(
        default=False, description="The table's name is meant as it is written, although there is a `*` in it."
    )

    @property
    def is_pattern(self) -> bool:
        return ANY in self.name and not self.exact

    @property
    def pattern(self) -> TablePattern:
        return TablePattern(self.schema_name, self.name, tuple(self.exclude or ()))

    def takes(self, schema: str, name: str) -> bool:
        """Whether this is a pattern that stands for the table, too."""
        return self.is_pattern and self.pattern.takes(TableName(schema, name))

    @model_validator(mode="after")
    def _pattern_is_plain(self) -> TableBody:
        if not self.is_pattern:
            if self.exclude is not None:
                raise ValueError("only a pattern, whose name has a `*` in it, takes 'exclude'")
            return self
        for field in ("key", "where", "columns"):
            if getattr(self, field):
                raise ValueError(f"a pattern takes no '{field}'; declare the table that needs it by its name as well")
        if self.target is not None and self.target.name is not None:
            raise ValueError("the tables of a pattern keep their names; only the target's schema can be another one")
        if self.shared_into is not None and self.shared_into.name is not None:
            raise ValueError(
                "the tables of a pattern keep their names, in shared tables too; leave out 'name' in 'shared_into'"
            )
        return self

    @model_validator(mode="after")
    def _shared_is_ours(self) -> TableBody:
        if self.shared_into is not None and self.into_existing:
            raise ValueError(
                "a table that goes into one of its owner's cannot be in a shared table; leave one of the two out"
            )
        return self

    def shared(self, subscription: str) -> SharedInto | None:
        """The shared table that shows its rows, if there is one."""
        into = self.shared_into
        if into is None:
            return None
        relation = TableName(into.schema_name or self.schema_name, into.name or self.name)
        return SharedInto(relation, into.source_column, into.source_value or subscription)

    def place(self, subscription: str) -> tuple[str, str]:
        """Schema and name on the target."""
        into = self.shared(subscription)
        if into is not None and self.target is None:
            return into.relation.schema, f"{into.relation.name}__{into.source_value}"
        target = self.target or TargetName()
        return target.schema_name or self.schema_name, target.name or self.name


def require_supported(options: TableOptions) -> None:
    """Refuse what the engine does not follow yet of the table that is the request's body; accepted, it would be ignored.

    Raises:
        NotSupportedYet: it has `where`, or `operations` that are not all which its consent allows.
    """
    _refuse(_unsupported(options, ""))


def require_all_supported(tables: Sequence[TableBody]) -> None:
    """As `require_supported`, for the member `tables` of the request's body."""
    _refuse([error for number, table in enumerate(tables) for error in _unsupported(table, f"/tables/{number}")])


def _refuse(errors: Sequence[FieldError]) -> None:
    if errors:
        raise NotSupportedYet(
            errors[0].detail, "Leave it out: every row and every operation is followed.", errors=errors
        )


def _unsupported(options: TableOptions, pointer: str) -> list[FieldError]:
    errors = []
    if options.where is not None:
        detail = "Replicating only rows for which a condition holds is not supported yet."
        errors.append(FieldError(pointer=f"{pointer}/where", detail=detail))
    # What a pattern consents to counts only for the tables without identity that it finds.
    insert_only = options.insert_only and not (isinstance(options, TableBody) and options.is_pattern)
    if options.operations is not None and set(options.operations) != followed_operations(insert_only=insert_only):
        detail = "Following only some operations is not supported yet."
        errors.append(FieldError(pointer=f"{pointer}/operations", detail=detail))
    return errors


def followed_operations(*, insert_only: bool) -> set[Operation]:
    """The operations that are followed of a table, as its user consented."""
    return {Operation.INSERT, Operation.TRUNCATE} if insert_only else set(Operation)


def preflight_parts(tables: Sequence[TableBody]) -> list[dict[str, Any]]:
    """Declared tables as the engine takes them for a check, patterns left out; their ids mean nothing.

    Raises:
        NotSupportedYet: see `require_all_supported`.
        InvalidRequest: a table for a shared one does not name its source value.
    """
    require_all_supported(tables)
    unnamed = [
        FieldError(pointer=f"/tables/{number}/shared_into/source_value", detail="A check knows no subscription's name.")
        for number, table in enumerate(tables)
        if table.shared_into is not None and table.shared_into.source_value is None
    ]
    if unnamed:
        raise InvalidRequest(unnamed[0].detail, "Name the source value.", errors=unnamed)
    named = [table for table in tables if not table.is_pattern]
    return [
        table_part(
            f"t{number:012x}",
            source=(table.schema_name, table.name),
            target=table.place(""),
            key=table.key or (),
            operations=table.operations or (),
            where=table.where,
            insert_only=table.insert_only,
            map_as=table.map_as,
            paused=False,
            into_existing=table.into_existing,
            shared_into=shared_document(table.shared("")),
            priority=table.priority,
            refused_rows=table.refused_rows.value,
        )
        for number, table in enumerate(named)
    ]


def shared_document(shared: SharedInto | None) -> dict[str, str] | None:
    """A table's place in a shared table, as it is stored and as the engine takes it."""
    if shared is None:
        return None
    return {
        "schema": shared.relation.schema,
        "name": shared.relation.name,
        "source_column": shared.source_column,
        "source_value": shared.source_value,
    }


def shared_from(document: Mapping[str, str] | None) -> SharedInto | None:
    if document is None:
        return None
    relation = TableName(document["schema"], document["name"])
    return SharedInto(relation, document["source_column"], document["source_value"])


def shared_body(document: Mapping[str, str] | None) -> SharedBody | None:
    """As its user would declare it."""
    return SharedBody.model_validate(document) if document is not None else None


def table_part(
    table: str,
    *,
    source: tuple[str, str],
    target: tuple[str, str],
    key: Sequence[str],
    operations: Sequence[str],
    where: str | None,
    insert_only: bool,
    map_as: dict[str, str],
    paused: bool,
    into_existing: bool = False,
    shared_into: dict[str, str] | None = None,
    priority: int = 0,
    refused_rows: str = RefusedPolicy.PARK.value,
) -> dict[str, Any]:
    """A table as the engine takes it. No `operations` means all that its consent allows."""
    allowed = {operation.value for operation in followed_operations(insert_only=insert_only)}
    return {
        "table": table,
        "source": {"schema": source[0], "name": source[1]},
        "target": {"schema": target[0], "name": target[1]},
        "key": list(key),
        "operations": sorted(allowed & set(operations) if operations else allowed),
        "where": where,
        "insert_only": insert_only,
        "map_as": map_as,
        "paused": paused,
        "into_existing": into_existing,
        "shared_into": shared_into,
        "priority": priority,
        "refused_rows": refused_rows,
    }
