"""Results of a comparison at a cut, per table."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.model.identity import TableId, TableName
from engine.model.position import Lsn
from engine.model.quarantine import Texts
from engine.model.schema import KeyMode
from engine.model.target import TableRecord
from engine.model.verification import VerificationMethod


class VerdictStatus(StrEnum):
    """Whether the target's rows are the source's at the cut."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_COMPARED = "not_compared"
    """The comparison failed or was cancelled; `code` and `detail` say why. Nothing is known about the rows."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A key whose rows differ. `key`: key values as text in key order; for tables without a key all values of the row."""

    key: tuple[str | None, ...]
    kind: str
    """`missing` on the target, `extra` on the target, or `different`."""
    columns: tuple[str, ...] = ()
    """Names of the columns that differ; for `different` only."""
    exact: Texts = field(default=(), repr=False)
    """The key as the source prints it; empty for tables without a key."""


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """One table at one cut. `differences`: the first ones, at most the requested limit."""

    table: TableId
    source: TableName
    mode: KeyMode
    position: Lsn
    status: VerdictStatus
    source_rows: int = 0
    target_rows: int = 0
    differences: tuple[Difference, ...] = ()
    code: str | None = None
    detail: str | None = None
    set_aside: int = 0
    """Quarantined rows of the table: known differences. Rows that no column can hold are in no other figure."""
    method: VerificationMethod = VerificationMethod.ROWS
    by_rows_because: str | None = None
    """Why the table was compared by rows although checksums were requested."""
    sample: float = 1.0
    """The share of the table that was to be compared; the numbers of rows are of what was compared."""
    whole_because: str | None = None
    """Why the whole table was compared although a sample was requested."""
    ranges: int = 0
    ranges_different: int = 0
    """Ranges that were compared by checksum, and how many of them differed."""
    bytes_from_source: int = 0
    """Bytes of rows and digests that the source sent, without the protocol's."""
    compared: TableRecord | None = field(default=None, repr=False)
    """The target's record of the table, with the columns that were compared."""

    @property
    def equal(self) -> bool:
        return self.status is VerdictStatus.EQUAL


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """One table's progress; `percent` (0 to 100) of the source's rows, by estimated bytes."""

    table: TableId
    rows: int
    bytes: int
    percent: float
