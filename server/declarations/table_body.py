"""How users declare a table, or a pattern of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field, model_validator

from engine.model.identity import TableName
from engine.model.patterns import ANY, TablePattern
from engine.model.shared import SharedInto
from engine.model.soft_delete import DeleteMode
from engine.model.subscription import TableSpec
from server.declarations.table_options import (
    DeclaredBody,
    Identifier,
    Operation,
    TableOptionsBody,
    skipped_operations,
    table_spec,
)
from server.errors import FieldError, InvalidRequest


class TargetName(DeclaredBody):
    """The table's name on the target; members that are left out are as on the source."""

    schema_name: Identifier | None = Field(default=None, validation_alias="schema", serialization_alias="schema")
    name: Identifier | None = None


class SharedBody(DeclaredBody):
    """The shared table that shows a table's rows together with those of other tables, which may belong to other subscriptions with the
    same target."""

    schema_name: Identifier | None = Field(
        default=None,
        validation_alias="schema",
        serialization_alias="schema",
        description="By default the source table's schema.",
    )
    name: Identifier | None = Field(default=None, description="By default the source table's name.")
    source_column: Identifier = Field(
        default="source", description="The shared table's first column, which names the source of each row."
    )
    source_value: Identifier | None = Field(
        default=None,
        description="Value of `source_column` in the rows of this table, unique within the shared table; by default the subscription's"
        " name.",
    )


class TableBody(TableOptionsBody):
    """A table to replicate. A name with `*` (any characters) is a pattern: every table of the schema whose name matches, including tables
    created later."""

    schema_name: Identifier = Field(validation_alias="schema", serialization_alias="schema")
    name: Identifier
    target: TargetName | None = None
    shared_into: SharedBody | None = Field(
        default=None,
        description="A relation on the target that shows these rows together with those of other sources. The rows are stored in a"
        " separate table, by default named after the relation and the source value: `orders__eu`.",
    )

    exclude: list[Identifier] | None = Field(
        default=None,
        max_length=1000,
        description="Only for a pattern: names, or patterns of names, of tables that it does not include.",
    )
    exact: bool = Field(default=False, description="A `*` in the name is a literal character, not a pattern.")

    @property
    def is_pattern(self) -> bool:
        return ANY in self.name and not self.exact

    @property
    def pattern(self) -> TablePattern:
        return TablePattern(self.schema_name, self.name, tuple(self.exclude or ()))

    @property
    def skipped_operations(self) -> set[Operation]:
        # A pattern's `insert_only` applies only to those of its tables that have no replica identity.
        return skipped_operations(self.operations or (), insert_only=self.insert_only and not self.is_pattern)

    def takes(self, schema: str, name: str) -> bool:
        """Whether this is a pattern that includes the table."""
        return self.is_pattern and self.pattern.takes(TableName(schema, name))

    @model_validator(mode="after")
    def _pattern_is_plain(self) -> TableBody:
        if not self.is_pattern:
            if self.exclude is not None:
                raise ValueError("only a pattern, whose name has a `*` in it, takes 'exclude'")
            return self
        for field in ("key", "where", "columns", "rename", "mask"):
            if getattr(self, field):
                raise ValueError(f"a pattern takes no '{field}'; declare the table that needs it by its name as well")
        if any(ANY not in name for name in (*self.options.include_columns, *self.options.exclude_columns)):
            raise ValueError(
                "a pattern takes only patterns of columns, whose names have a `*` in them: not all its tables need have them"
            )
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

    @model_validator(mode="after")
    def _shared_has_no_deleted_rows(self) -> TableBody:
        if self.shared_into is not None and self.options.deletes is DeleteMode.MARK:
            raise ValueError("a table in a shared table cannot mark deletes; leave out 'deletes' or 'shared_into'")
        return self

    def shared(self, subscription: str) -> SharedInto | None:
        """The shared table that shows its rows; None if there is none."""
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

    def in_schemas(self, schemas: Mapping[str, str]) -> TableBody:
        """The declaration with the target's schema that `schemas` has for its schema, unless it names one."""
        schema = schemas.get(self.schema_name)
        into, changed = self.shared_into, dict[str, DeclaredBody]()
        if schema is not None and into is not None and into.schema_name is None:
            changed["shared_into"] = into.model_copy(update={"schema_name": schema})
        target = TargetName() if self.target is None and into is None else self.target
        if schema is not None and target is not None and target.schema_name is None:
            changed["target"] = target.model_copy(update={"schema_name": schema})
        return self.model_copy(update=changed) if changed else self


def preflight_specs(tables: Sequence[TableBody]) -> list[TableSpec]:
    """Declared tables in the form of the engine's checks, without patterns; their ids are placeholders.

    Raises:
        InvalidRequest: a table with `shared_into` has no source value.
    """
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
    """The stored form of a table's place in a shared table, parsed."""
    return SharedInto.from_document(document) if document is not None else None


def shared_body(document: Mapping[str, str] | None) -> SharedBody | None:
    """The same in the form of a declaration."""
    return SharedBody.model_validate(document) if document is not None else None
