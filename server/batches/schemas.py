"""Bodies of batches."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, computed_field

Position = Annotated[str, BeforeValidator(str)]


class LedgerView(BaseModel):
    """The outcome of the changes of a batch. In each table, `captured` + `retained` is the sum of the other counts."""

    captured: int | None = Field(
        description="Changes in the batch's transactions, counted by the log reader; null if it did not count them."
    )
    left_out: int = Field(
        description="Changes of tables that have no part in the batch: paused, parked, not copied yet, or not in the subscription."
    )
    tables: dict[str, dict[str, int]] = Field(
        description="By table id; counts that are 0 are left out. `captured`: changes in the records of the batch; `retained`: of earlier"
        " batches, kept for a copy. `applied`: changes with an effect of their own; `netted`: replaced by later changes of the same row;"
        " `filtered`: of rows that an unfinished copy does not have yet; `quarantined`; `rolled_back`: by a savepoint; `known`: in the"
        " table already; `held`: left to a copy that is to come; `parked`: the table parked with the batch.",
        examples=[{"01J9ZQ5V8X": {"captured": 160, "applied": 120, "netted": 40}}],
    )

    @computed_field(description="The sums over all tables.")  # type: ignore[prop-decorator]
    @property
    def total(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for counts in self.tables.values():
            found.update(counts)
        return dict(found)


class LedgerLine(BaseModel):
    """One table in one batch."""

    batch: int
    epoch: int
    end: Position
    committed_at: datetime
    table_id: str
    captured: int = 0
    retained: int = 0
    applied: int = 0
    netted: int = 0
    filtered: int = 0
    quarantined: int = 0
    rolled_back: int = 0
    known: int = 0
    held: int = 0
    parked: int = 0


class LedgerAnswer(BaseModel):
    """The ledger of the last batches, the newest first: one line for each table with changes."""

    lines: list[LedgerLine]


class BatchView(BaseModel):
    """Source transactions that were applied together. `mode` says in how many target transactions."""

    model_config = ConfigDict(from_attributes=True)

    batch: int = Field(validation_alias="number")
    epoch: int = Field(description="Increases each time another engine process takes over the subscription.")
    after: Position
    end: Position
    transactions: int
    rows: dict[str, int] = Field(description="Row changes by operation.", examples=[{"insert": 120, "update": 40}])
    net_rows: int = Field(description="Rows written, after changes of the same row were merged.")
    bytes: int
    path: str = Field(
        description="Where it was prepared: by `spark`, or in the engine process (`driver`) if it was small."
    )
    mode: str = Field(
        description="How it was written to the target. `batch`: its net changes, in one transaction; `grouped`: its changes one by one,"
        " with several consecutive source transactions in one transaction (all of them if the declared mode is `auto`);"
        " `transactional`: its changes one by one, each source transaction in a separate transaction, in commit order.",
        examples=["batch"],
    )
    demanded: bool = Field(description="Whether a wait for freshness sealed it early.")
    seconds: dict[str, float] = Field(
        description="Time by stage.", examples=[{"capture_age": 0.1, "job": 0.2, "commit": 0.05}]
    )
    tables: int
    tuning: dict[str, float] = Field(
        description="Choices made for the batch, and the measurements that decided them: `tasks`; `driver_setup_ms` and"
        " `spark_setup_ms`, the fixed cost of preparing a batch on each path. Declared mode `grouped` or `transactional`: `lanes`,"
        " the connections that wrote concurrently. `grouped`: `group_size`, the source transactions in one target transaction, and,"
        " if it is not declared, the measured commits per second of the target's disk, `commit_rate_low` for large commits and"
        " `commit_rate_high` for small ones. `auto`, if both modes were possible: `net_ms` and `single_ms`, the estimated time as"
        " net changes and change by change, and `net_share`, the recent ratio of net rows to changes. PostgreSQL target:"
        " `copy_above_rows`, the number of rows of a table above which a temporary table is used, and `copy_setup_ms`, the fixed"
        " cost of that; with relaxed visibility `parts`, the number of target transactions. DuckDB target: `keys_found`, the keys whose"
        " rows were found by their numbers, `keys_searched`, those for which a whole table was searched, and `key_index_bytes`, the size"
        " of the index of these numbers.",
        examples=[{"tasks": 1, "driver_setup_ms": 0.8, "spark_setup_ms": 27.5}],
    )
    ledger: LedgerView | None = Field(description="Null for batches of versions that kept no ledger.")
    committed_at: datetime
