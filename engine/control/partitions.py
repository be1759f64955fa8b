"""The partitions that a subscription's table has on the source, with the last load of each."""

from __future__ import annotations

from contextlib import closing

from engine.connectors import open_source
from engine.control.supervisor import SubscriptionSupervisor
from engine.copy.partition_reload import hindrance
from engine.link.partitions import PartitionPart, PartitionsBody
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.partitions import Loads, Partition, generation_of, last_load


def listed_partitions(pipeline: SubscriptionSupervisor, table: TableId) -> PartitionsBody:
    """The partitions as the source's catalog shows them now, with the loads that the target has recorded. Queries both databases.

    Raises:
        EngineFault: TARGET_UNAVAILABLE if the subscription is starting, TABLE_MISSING if the source does not show the table, or the
            fault of opening or reading a database.
    """
    entry, target = pipeline.book.get(table), pipeline.target
    if entry is None or target is None:
        raise EngineFault(FaultKind.TARGET_UNAVAILABLE, pipeline.spec.name, "the subscription is starting")
    with closing(open_source(pipeline.spec.source)) as source:
        schema = source.describe([entry.spec]).get(entry.spec.source)
        if schema is None:
            raise EngineFault(FaultKind.TABLE_MISSING, str(entry.spec.source), "the source does not show it")
        tree = source.partitioned.partitions(schema)
    progress = target.progress(pipeline.spec.name)
    loads = progress.loads.get(table, {}) if progress is not None else {}
    names = {part.relation: str(part.name) for part in tree} | {schema.relation: str(schema.name)}
    whole = hindrance(entry)
    return PartitionsBody(partitions=tuple(_part(part, names[part.parent], loads, whole) for part in tree))


def _part(part: Partition, parent: str, loads: Loads, whole: str | None) -> PartitionPart:
    name = str(part.name)
    last = last_load(loads, name)
    return PartitionPart(
        name=name,
        parent=parent,
        leaf=part.leaf,
        bound=part.bound,
        obstacle=whole or part.obstacle,
        generation=generation_of(loads, name),
        reason=None if last is None else last.reason,
        position=None if last is None else last.position,
        loaded_us=None if last is None else last.loaded_us,
    )
