"""How users declare a table, or a pattern of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field, model_validator

from engine.model.identity import TableName
from engine.model.patterns import ANY, TablePattern
from engine.model.shared import SharedInto
from engine.model.subscription import TableSpec
from server.declarations.table_options import (
    DeclaredBody,
    Identifier,
    TableOptionsBody,
    followed_operations,
    table_spec,
)
from server.errors import FieldError, InvalidRequest, NotSupportedYet


class TargetName(DeclaredBody):
    """Another name on the target; what is left out is as on the source."""

    schema_name: Identifier | None = Field(default=None, validation_alias="schema", serialization_alias="schema")
    name: Identifier | None = None


class SharedBody(DeclaredBody):
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


class TableBody(TableOptionsBody):
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


def require_supported(options: TableOptionsBody) -> None:
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


def _unsupported(options: TableOptionsBody, pointer: str) -> list[FieldError]:
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


def preflight_specs(tables: Sequence[TableBody]) -> list[TableSpec]:
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
        table_spec(
            f"t{number:012x}",
            TableName(table.schema_name, table.name),
            TableName(*table.place("")),
            table.options,
            shared=table.shared(""),
        )
        for number, table in enumerate(named)
    ]


def shared_from(document: Mapping[str, str] | None) -> SharedInto | None:
    """A table's place in a shared table, as it is stored."""
    return SharedInto.from_document(document) if document is not None else None


def shared_body(document: Mapping[str, str] | None) -> SharedBody | None:
    """As its user would declare it."""
    return SharedBody.model_validate(document) if document is not None else None
