"""Bodies of the shared table endpoints."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from engine.model.table_state import TableStateKind
from server.naming import Aliased, QualifiedName
from server.tables.schemas import TableTarget, TargetTable


class MemberView(Aliased):
    """A table whose rows a shared table shows, or will show once its first copy is complete."""

    subscription: str
    id: str
    schema_name: str = Field(validation_alias="schema", serialization_alias="schema", description="On the source.")
    name: str
    source_value: str = Field(description="Value of its rows in the source column.")
    target: TableTarget = Field(description="The table that stores its rows.")
    state: TableStateKind = Field(description="`removed`: no longer replicated, but still shown.")
    target_table: TargetTable | None = None
    position: str | None = Field(
        default=None, description="Position up to which its rows are visible: the applied position of its subscription."
    )


class SharedTableView(QualifiedName):
    """A relation on the target that shows the rows of several tables; its first column identifies the source."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "schema": "public",
                    "name": "orders",
                    "source_column": "source",
                    "members": [
                        {
                            "subscription": "eu",
                            "id": "t3f2a9c81d07e",
                            "schema": "public",
                            "name": "orders",
                            "source_value": "eu",
                            "target": {"schema": "public", "name": "orders__eu"},
                            "state": "live",
                            "target_table": None,
                            "position": "0/16B3748",
                        }
                    ],
                }
            ]
        }
    )

    source_column: str
    members: list[MemberView] = Field(description="Ordered by source value.")
