"""Bodies of requests that advance sequences."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from engine.model.sequences import SequenceOutcome
from server.freshness.schemas import TableRef
from server.naming import Aliased, QualifiedName
from server.tables.schemas import TableTarget

MOST_MARGIN = 1_000_000_000_000


class SequencesRequest(BaseModel):
    """Which sequences to advance, and how far."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{}, {"tables": [{"schema": "public", "name": "orders"}], "margin": 1000}]},
    )

    tables: list[TableRef] | None = Field(
        default=None, max_length=10_000, description="Tables whose sequences to advance; by default every table."
    )
    margin: int = Field(
        default=0,
        ge=0,
        le=MOST_MARGIN,
        description="Number of values to skip after the source's last one, in steps of the source's increment.",
    )


class SequenceName(QualifiedName):
    """The qualified name of a sequence."""


class SequenceValueView(BaseModel):
    """The state of a sequence, as in PostgreSQL."""

    last_value: int
    is_called: bool = Field(description="False: `last_value` was not yet returned; it is the next value.")


class SequenceView(Aliased):
    """One sequence of the source, and the result for the one on the target."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "t3f2a9c81d07e",
                    "schema": "public",
                    "name": "orders",
                    "column": "id",
                    "source_sequence": {"schema": "public", "name": "orders_id_seq"},
                    "source_value": {"last_value": 120417, "is_called": True},
                    "target": {"schema": "public", "name": "orders"},
                    "target_sequence": {"schema": "public", "name": "orders_id_seq"},
                    "value_before": {"last_value": 1, "is_called": False},
                    "value_after": {"last_value": 120417, "is_called": True},
                    "outcome": "advanced",
                    "remedy": None,
                }
            ]
        },
    )

    id: str = Field(description="The table's id.")
    schema_name: str = Field(validation_alias="schema", serialization_alias="schema")
    name: str
    column: str
    source_sequence: SequenceName
    source_value: SequenceValueView
    target: TableTarget
    target_sequence: SequenceName | None = Field(description="Null if none was examined.")
    value_before: SequenceValueView | None
    value_after: SequenceValueView | None
    outcome: SequenceOutcome = Field(
        description="`advanced`: it was set; `already_ahead`: it had this value or a later one, and was not changed;"
        " `no_sequence_on_target`: the column has none on the target; `table_not_live`: the table's rows on the target are"
        " incomplete or about to be replaced; `out_of_range`: the value is beyond the limit of the target's sequence, which was not"
        " changed; `direction_differs`: one of the two ascends and the other descends."
    )
    remedy: str | None = Field(description="What to do if it is neither `advanced` nor `already_ahead`.")


class SequencesView(BaseModel):
    """The result for every sequence."""

    complete: bool = Field(
        description="Whether every one is `advanced` or `already_ahead`. If the source continues to issue values, it overtakes them"
        " again."
    )
    sequences: list[SequenceView] = Field(description="Ordered by table and column of the source.")
