"""Parts of messages: the connections and tables of a subscription."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.link.message import Message, Secret
from engine.model.identity import TableId, TableName
from engine.model.quarantine import RefusedPolicy
from engine.model.shared import SharedInto
from engine.model.subscription import CaptureSpec, ConnectionSpec, TableSpec


class TableNamePart(Message):
    """A table's schema and name."""

    schema_name: str = Field(alias="schema")
    name: str

    def to_name(self) -> TableName:
        return TableName(self.schema_name, self.name)


class SharedPart(Message):
    """A table's membership in a shared table; fields as `engine.model.shared.SharedInto`."""

    schema_name: str = Field(alias="schema")
    name: str
    source_column: str
    source_value: str

    def to_shared(self) -> SharedInto:
        return SharedInto(TableName(self.schema_name, self.name), self.source_column, self.source_value)


class ConnectionPart(Message):
    """A connection with its secrets."""

    name: str
    kind: str
    settings: dict[str, str | int] = Field(default_factory=dict)
    secrets: dict[str, Secret] = Field(default_factory=dict, repr=False)

    def to_spec(self, capture: CaptureSpec | None = None) -> ConnectionSpec:
        secrets = {key: value.get_secret_value() for key, value in self.secrets.items()}
        return ConnectionSpec(self.name, self.kind, dict(self.settings), secrets, capture)


class TablePart(Message):
    """A table of a subscription; fields as `engine.model.subscription.TableSpec`."""

    table: str
    source: TableNamePart
    target: TableNamePart
    key: tuple[str, ...] = ()
    operations: frozenset[str] = frozenset({"insert", "update", "delete", "truncate"})
    where: str | None = None
    insert_only: bool = False
    map_as: dict[str, str] = Field(default_factory=dict)
    paused: bool = False
    into_existing: bool = False
    shared_into: SharedPart | None = None
    priority: int = 0
    refused_rows: Literal["park", "set_aside"] = "park"

    def to_spec(self) -> TableSpec:
        return TableSpec(
            table=TableId(self.table),
            source=self.source.to_name(),
            target=self.target.to_name(),
            key=self.key,
            operations=self.operations,
            where=self.where,
            insert_only=self.insert_only,
            map_as=dict(self.map_as),
            paused=self.paused,
            into_existing=self.into_existing,
            shared=self.shared_into.to_shared() if self.shared_into is not None else None,
            priority=self.priority,
            refused_rows=RefusedPolicy(self.refused_rows),
        )
