"""Bodies of cycles."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from engine.model.cycles import CycleState
from server.naming import QualifiedName
from server.paging import Page

_EXAMPLE: dict[str, Any] = {
    "number": 4711,
    "position": "c4711",
    "state": "applied",
    "taken_at": "2026-05-04T10:00:00.120Z",
    "ended_at": "2026-05-04T10:00:02.480Z",
    "seconds": 2.36,
    "one_snapshot": True,
    "rows_read": 12,
    "rows_hashed": 120000,
    "rows_shared": 0,
    "bytes_read": 5400000,
    "inserted": 10,
    "updated": 2,
    "deleted": 0,
    "fault": None,
    "fault_detail": None,
    "fault_table": None,
    "source_reads": {},
    "tables": [
        {
            "schema": "public",
            "name": "orders",
            "method": "row_checksum",
            "first": False,
            "copied_again": False,
            "since_stamp": False,
            "known_before": None,
            "fault": None,
            "fault_detail": None,
            "rows_read": 12,
            "rows_hashed": 120000,
            "rows_shared": 0,
            "bytes_read": 5400000,
            "ranges": 0,
            "ranges_different": 0,
            "inserted": 10,
            "updated": 2,
            "deleted": 0,
            "seconds": 2.1,
            "snapshots": 1,
        }
    ],
}


class CycleTableView(QualifiedName):
    """One table in a cycle."""

    method: str = Field(description="How changed rows were found: as `capture.method`.")
    first: bool = Field(description="It was read for the first time, so that nothing could differ.")
    copied_again: bool = Field(
        description="Its key had changed, so that its rows could not be compared: it is copied again. Or rows had NULL in the declared key"
        " (`capture.tables`), or the same one: the table is parked."
    )
    since_stamp: bool = Field(
        description="Only rows with recent stamps were read (methods `timestamp`, `timestamp_delete_flag`): rows that are gone, and changes"
        " without a new stamp, are found by the next cycle that compares all rows."
    )
    known_before: str | None = Field(
        description="For the methods by stamps: this cycle or an earlier one read every row with an older stamp as it is now. Once the"
        " cycle is `applied`, those of them whose delete flag is set may be removed from the source. null: no stamps were read."
    )
    fault: str | None = Field(
        description="Code of the fault because of which the cycle left the table out: it is parked as `table_not_read`, and the next cycle"
        " that can read it finds all of its changes."
    )
    fault_detail: str | None
    rows_read: int = Field(description="Rows that were read with all their columns.")
    rows_hashed: int = Field(description="Rows that the database hashed, of which only key and hash were read.")
    rows_shared: int = Field(
        description="Rows, or keys and hashes, that the cycle of another subscription of the connection read for this one too. The source"
        " was not asked for them again."
    )
    bytes_read: int = Field(description="Bytes of what was read, as the database sent them.")
    ranges: int = Field(description="Ranges of keys that were compared by a hash of all their rows; 0: by rows.")
    ranges_different: int = Field(description="Those of these ranges whose hash had changed.")
    inserted: int = Field(description="Rows that are new since the cycle before.")
    updated: int = Field(description="Rows with other values than in the cycle before.")
    deleted: int = Field(description="Rows that are gone since the cycle before.")
    seconds: float
    snapshots: int = Field(
        default=1,
        description="In how many snapshots its ranges of keys were read. More than 1: the cycle lost its connection, and continued after"
        " the last range; each range is as it was at one moment, and ranges need not agree with each other.",
    )


class CycleView(BaseModel):
    """One reading of all tables, and what differed from the cycle before."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    number: int = Field(description="Increases with each cycle. The number of a cycle that failed is not used again.")
    position: str = Field(description="A wait for it ends when everything that the cycle found is visible.")
    state: CycleState = Field(
        description="`requested`: it begins as soon as no other cycle runs; `running`; `captured`: it has ended, and its changes are not"
        " all on the target; `applied`: all its changes are on the target; `failed`: it had no effect, and the next one finds what it would"
        " have found."
    )
    taken_at: datetime | None = Field(
        description="When its first snapshot of the source was taken, by the engine's clock; null: it has not ended."
    )
    ended_at: datetime | None = Field(description="When all tables had been read and compared; null: it has not ended.")
    seconds: float | None = Field(description="The time between the two.")
    one_snapshot: bool = Field(description="Whether all tables were read in one snapshot.")
    rows_read: int = Field(description="The sum over all tables, as the following ones.")
    rows_hashed: int
    rows_shared: int
    bytes_read: int
    inserted: int
    updated: int
    deleted: int
    fault: str | None = Field(description="Code of the fault of a cycle that failed.")
    fault_detail: str | None
    fault_table: str | None = Field(
        description="The table that a failed cycle was reading; null if it failed elsewhere."
    )
    source_reads: dict[str, int] = Field(
        description="What the source reported of its own work, such as pages read; empty where it reports nothing."
    )
    tables: list[CycleTableView] = Field(description="Empty: it has not ended, or it failed.")


class CyclePage(Page[CycleView]):
    """A page of cycles, the newest first."""

    as_of: datetime | None = Field(
        default=None,
        description="Readers of the target see the source's rows as they were at this time, but for what `since_stamp` leaves to later"
        " cycles; null: nothing was read yet.",
    )
    next_at: datetime | None = Field(
        default=None,
        description="When the next cycle begins by schedule, if none is requested before; null while the subscription does not run.",
    )


class CycleRequestedView(BaseModel):
    """A cycle that was requested."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"number": 4712, "position": "c4712"}]})

    number: int
    position: str = Field(
        description="A wait for it ends when everything that was committed before the request is visible. If the cycle fails, with the"
        " changes of the next one."
    )
