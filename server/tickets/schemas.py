"""Bodies of tickets."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from engine.model.ticket import TicketState
from server.remedies import Remedied


class TicketRequest(BaseModel):
    """A ticket to create."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{}, {"name": "before the night batch"}]})

    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        pattern=r"^[^\x00-\x1f\x7f]*$",
        description="A label; it need not be unique.",
    )


class TicketTimes(BaseModel):
    """Time at which the ticket reached each stage; null if it has not. `written_at` is by the source's clock, the others by the
    engine's."""

    model_config = ConfigDict(from_attributes=True)

    written_at: datetime | None = Field(description="Its marker was written on the source.")
    captured_at: datetime | None = Field(description="Its marker was read from the source's log.")
    sealed_at: datetime | None = Field(description="Its batch was complete.")
    computed_at: datetime | None = Field(description="The net changes of its batch were computed.")
    applied_at: datetime | None = Field(description="Its batch was committed on the target.")


class TicketDurations(BaseModel):
    """Duration of each stage; null if it has not ended. `capture_ms` and `total_ms` compare the source's clock with the engine's, and are
    only as accurate as these agree."""

    capture_ms: float | None = Field(description="From the source to the engine.")
    seal_ms: float | None = Field(description="Waiting for its batch.")
    compute_ms: float | None
    apply_ms: float | None
    total_ms: float | None = Field(description="From the source to the target.")


class TicketCounts(BaseModel):
    """Counts of what was read from the source's log before the ticket. Only differences between tickets are meaningful."""

    log_bytes: int | None = Field(
        description="Bytes of log that the source had ever written up to the ticket; null if positions of this source do not count bytes."
    )
    transactions: int = Field(description="Committed transactions, since `counted_since`.")
    commands: int = Field(
        description="Row changes since `counted_since`; if the source streams in-progress transactions, including those of transactions"
        " that rolled back."
    )
    counted_since: datetime = Field(description="Start of the run of the subscription whose counts these are.")


class ThroughputView(BaseModel):
    """Throughput between two tickets, over the time from the capture of the earlier one to the commit of the later one."""

    since: str = Field(description="The earlier ticket.")
    seconds: float
    log_bytes: int | None = Field(
        description="Null if positions of this source do not count bytes; so is `log_gib_per_hour`."
    )
    transactions: int | None = Field(description="Null if the subscription was restarted in between; so is `commands`.")
    commands: int | None
    log_gib_per_hour: float | None = Field(description="GiB (1024³ bytes) of log an hour.")
    commands_per_second: float | None
    transactions_per_second: float | None


class TicketView(Remedied):
    """A marker in the source's log, timed on its way to the target."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "tk0c5d8a0c3f6e",
                    "name": "after",
                    "state": "applied",
                    "position": "0/16B3748",
                    "times": {
                        "written_at": "2026-05-04T10:00:00.000100Z",
                        "captured_at": "2026-05-04T10:00:00.003100Z",
                        "sealed_at": "2026-05-04T10:00:00.053100Z",
                        "computed_at": "2026-05-04T10:00:00.061100Z",
                        "applied_at": "2026-05-04T10:00:00.078100Z",
                    },
                    "durations": {
                        "capture_ms": 3.0,
                        "seal_ms": 50.0,
                        "compute_ms": 8.0,
                        "apply_ms": 17.0,
                        "total_ms": 78.0,
                    },
                    "counts": {
                        "log_bytes": 23803720,
                        "transactions": 1200,
                        "commands": 4800,
                        "counted_since": "2026-05-04T09:00:00Z",
                    },
                    "throughput": None,
                    "code": None,
                    "reason": None,
                    "remedy": None,
                    "created_at": "2026-05-04T10:00:00Z",
                }
            ]
        }
    )

    id: str
    name: str | None
    state: TicketState = Field(
        description="`pending`: its marker is not yet in the source's log; `under_way`: the marker is on its way; `applied`: everything"
        " committed on the source before it is readable on the target; `lost`: it could not be timed."
    )
    position: str | None = Field(description="Position of its marker in the source's log.")
    times: TicketTimes
    durations: TicketDurations
    counts: TicketCounts | None = Field(description="Null until it is captured.")
    throughput: ThroughputView | None = Field(
        description="Throughput since the requested earlier ticket; null if none was requested, or until both are applied."
    )
    code: str | None = Field(description="Reason of `lost`.")
    reason: str | None
    created_at: datetime
