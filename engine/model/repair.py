"""Repair: the rows of a table that a comparison found different are replaced by the source's rows at one position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.model.identity import SubscriptionName, TableId
from engine.model.position import Lsn
from engine.model.schema import TableSchema

MOST_REPAIRED = 100_000
"""Most rows of a table that are repaired: they are in memory, with those of the source. Not measured."""
MOST_BYTES = 256 * 1024 * 1024
"""Most bytes of the source's rows of one repair, as COPY text, for the same reason. Not measured."""
REPAIRED_KEPT = 1_000_000
"""Most repaired rows that a target keeps of a subscription; a repair deletes those of older repairs beyond it."""


@dataclass(frozen=True, slots=True)
class RepairedRows:
    """Numbers of rows that a repair inserted, updated and deleted, or would."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class TableRepair:
    """The rows to replace in one table.

    `schema`: of the table on the target; the repair is not valid for another one. `keys`: pyarrow.Table with columns k0 … km, the keys
    whose rows are deleted. `rows`: pyarrow.Table with columns c0 … cn, the source's rows with these keys, which are inserted.
    """

    table: TableId
    schema: TableSchema
    keys: Any = field(repr=False)
    rows: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class Repair:
    """The repairs of one verification, for a target that is at `position`."""

    subscription: SubscriptionName
    verification: str
    position: Lsn
    tables: Sequence[TableRepair]


@dataclass(frozen=True, slots=True)
class RepairResult:
    """What a repair wrote by table, and why it left out the others."""

    written: Mapping[TableId, RepairedRows] = field(default_factory=dict)
    left: Mapping[TableId, str] = field(default_factory=dict)


class RepairTarget(Protocol):
    """A target whose rows can be repaired."""

    def repair(self, repair: Repair) -> RepairResult:
        """Replace rows, and keep what was changed, in one durable transaction, separate from those of batches; rolled back if it raises.

        Called between two commits, in their thread. Tables that are not as the repair expects them, or that reject a row, are left out.
        Raises EngineFault as Target.commit, INTERNAL if the target is at another position.
        """
        ...
