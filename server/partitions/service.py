"""Partitions: the request to the engine, the view of its answer, and which partitions may be reloaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from engine.link.partitions import PartitionPart, PartitionsBody
from engine.model.positions import PositionForm, text_of
from server.db.session import ReadSession
from server.errors import Conflict, InvalidRequest
from server.lookup.tables import require_table
from server.partitions.schemas import PartitionsView, PartitionView


class TableNotPartitioned(Conflict):
    code = "table_not_partitioned"
    title = "The table is not partitioned"
    default_remedy = "Reload the whole table: leave 'partitions' out."


class PartitionUnknown(InvalidRequest):
    code = "partition_unknown"
    title = "The table has no such partition"
    default_remedy = "Name partitions of the table as schema.name; GET …/partitions lists them."


class PartitionNotComparable(Conflict):
    code = "partition_not_comparable"
    title = "The partition cannot be reloaded separately"
    default_remedy = "Reload the whole table: leave 'partitions' out."


def partitions_payload(session: ReadSession, name: str, table_id: str) -> dict[str, Any]:
    """The payload of the request to the engine. Raises NotFound."""
    return {"subscription": name, "table": require_table(session, name, table_id).id}


def partitions_view(table_id: str, answer: Mapping[str, Any], form: PositionForm) -> PartitionsView:
    """The engine's answer as the REST interface shows it."""
    parts = PartitionsBody.model_validate(answer).partitions
    return PartitionsView(table_id=table_id, partitions=[_partition_view(part, form) for part in parts])


def refuse_unloadable(answer: Mapping[str, Any], names: Sequence[str] | None) -> None:
    """Refuse a reload of these partitions alone; `names` None: a reload of whichever differ.

    Raises:
        TableNotPartitioned, PartitionUnknown, PartitionNotComparable.
    """
    known = {part.name: part for part in PartitionsBody.model_validate(answer).partitions}
    if not known:
        raise TableNotPartitioned("The source has the table as one without partitions.")
    missing = [name for name in names or () if name not in known]
    if missing:
        detail = f"The table has no partition {', '.join(missing)}. It has {', '.join(known)}."
        raise PartitionUnknown(detail, extra={"known": list(known)})
    for name in names or ():
        if known[name].obstacle is not None:
            raise PartitionNotComparable(
                f"Which rows are in {name} cannot be determined on the target: {known[name].obstacle}."
            )


def _partition_view(part: PartitionPart, form: PositionForm) -> PartitionView:
    return PartitionView(
        name=part.name,
        parent=part.parent,
        has_rows=part.leaf,
        bound=part.bound,
        reloadable=part.obstacle is None,
        obstacle=part.obstacle,
        generation=part.generation,
        reason=part.reason,
        position=text_of(form, part.position),
        loaded_at=None if part.loaded_us is None else datetime.fromtimestamp(part.loaded_us / 1e6, tz=UTC),
    )
