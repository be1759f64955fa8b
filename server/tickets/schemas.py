"""Bodies of tickets."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from engine.model.ticket import TicketState


class TicketRequest(BaseModel):
    """How to call it."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{}, {"name": "before the night batch"}]})

    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        pattern=r"^[^\x00-\x1f\x7f]*$",
        description="Shown again; it need not be unique.",
    )


class TicketTimes(BaseModel):
    """When the ticket reached each stage; null where it has not. `written_at` is by the source's clock, the others by the engine's."""

    model_config = ConfigDict(from_attributes=True)

    written_at: datetime | None = Field(description="Its marker was written on the source.")
    captured_at: datetime | None = Field(description="Its marker came out of the source's log.")
    sealed_at: datetime | None = Field(description="Its batch was complete.")
    computed_at: datetime | None = Field(description="The net changes of its batch were known.")
    applied_at: datetime | None = Field(description="Its batch was committed on the target.")


class TicketDurations(BaseModel):
    """How long each stage took; null where it has not ended. `capture_ms` and `total_ms` tell of two clocks, the source's and the
    engine's, and are as right as these agree."""

    capture_ms: float | None = Field(description="From the source to the engine.")
    seal_ms: float | None = Field(description="Waiting for its batch.")
    compute_ms: float | None
    apply_ms: float | None
    total_ms: float | None = Field(description="From the source to the target.")


class TicketCounts(BaseModel):
    """What had come out of the source's log before the ticket. Differences between tickets are what counts."""

    log_bytes: int = Field(description="Bytes of log, all that the source ever wrote up to there.")
    transactions: int = Field(description="Committed transactions, since `counted_since`.")
    commands: int = Field(
        description="Changes of rows, since `counted_since`; where the source sends large transactions before their end, those of"
        " transactions that rolled back too."
    )
    counted_since: datetime = Field(description="When the run of the subscription began that counts.")


class ThroughputView(BaseModel):
    """What was replicated between two tickets. The time is that from the capture of the earlier one to the commit of the later one."""

    since: str = Field(description="The earlier ticket.")
    seconds: float
    log_bytes: int
    transactions: int | None = Field(
        description="Null where the subscription was restarted in between; `commands` too."
    )
    commands: int | None
    log_gib_per_hour: float | None = Field(description="GiB (1024³ bytes) of log an hour.")
    commands_per_second: float | None
    transactions_per_second: float | None


class TicketView(BaseModel):
    """A marker put into the source's log and timed on its way to the target."""

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
        description="`pending`: its marker is not in the source's log yet; `under_way`; `applied`: whatever was committed on the source"
        " before it can be read on the target; `lost`: it could not be timed to the end."
    )
    position: str | None = Field(description="Of its marker in the source's log.")
    times: TicketTimes
    durations: TicketDurations
    counts: TicketCounts | None = Field(description="Null until it is captured.")
    throughput: ThroughputView | None = Field(
        description="What was replicated since the ticket asked for; null where none was, or until both are applied."
    )
    code: str | None = Field(description="Why it is lost.")
    reason: str | None
    remedy: str | None
    created_at: datetime
