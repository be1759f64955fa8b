"""Receipts of waits: what is visible on the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class TableState:
    """A table by its name on the source. `reason`: why it does not follow, if it does not."""

    schema: str
    name: str
    state: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class TableException:
    """A declared way in which a table does not fully follow its source: `insert_only`, or `rows_set_aside` with their number."""

    schema: str
    name: str
    kind: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a wait has found visible on the target. Positions are text, like `0/16B3748`.

    `position`: what was waited for; for "now" the one that was read. `applied`: everything up to there is visible.
    `left_out`: tables that were not waited for because they are paused or parked. `structure`, `structure_at`: up to
    which position and time the source's catalog was known. `waited`: seconds; None for the wait of a query. `consistency`:
    which states of the source readers see, "transactions", "windows" or "snapshots"; None for rows read on the source.
    """

    position: str
    applied: str
    tables: tuple[TableState, ...]
    left_out: tuple[TableState, ...]
    exceptions: tuple[TableException, ...]
    on_arrival: bool
    sealed_at: datetime | None
    committed_at: datetime | None
    structure: str | None
    structure_at: datetime | None
    waited: float | None = None
    consistency: str | None = None


def parse_receipt(found: Mapping[str, Any], waited: float | None = None) -> Receipt:
    """The receipt of a server's answer; members that are unknown here are ignored.

    Raises KeyError, TypeError or ValueError if it is none.
    """
    return Receipt(
        position=str(found["position"]),
        applied=str(found["applied"]),
        tables=tuple(_state(item) for item in found["tables"]),
        left_out=tuple(_state(item) for item in found["left_out"]),
        exceptions=tuple(
            TableException(item["schema"], item["name"], item["kind"], item.get("rows")) for item in found["exceptions"]
        ),
        on_arrival=bool(found.get("on_arrival")),
        sealed_at=_time(found.get("sealed_at")),
        committed_at=_time(found.get("committed_at")),
        structure=found.get("structure"),
        structure_at=_time(found.get("structure_at")),
        waited=waited,
        consistency=found.get("consistency"),
    )


def _state(item: Mapping[str, Any]) -> TableState:
    return TableState(item["schema"], item["name"], item["state"], item.get("reason"))


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
