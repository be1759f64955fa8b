"""Which ranges of the tables' keys a verification compares, if it compares only a share of each table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.model.copies import KeyBound
from engine.model.identity import TableId
from engine.model.ranges import KeySample, NotByRanges, SampledRange
from engine.model.schema import Column, TableSchema
from engine.model.source import Source
from engine.model.target import TableRecord


@dataclass(slots=True)
class Sampling:
    """The choice of one verification. The ranges of a table are chosen once, so that a comparison after a repair is of the same ones."""

    share: float
    seed: str
    """The verification's id."""
    _chosen: dict[TableId, KeySample] = field(default_factory=dict)

    def of(self, source: Source, table: TableId, schema: TableSchema) -> KeySample:
        """Ranges with about this share of the table. Raises NotByRanges if it has to be compared whole; EngineFault as `sample_key`."""
        known = self._chosen.get(table)
        if known is None or not set(known.columns) <= set(schema.key_columns):
            known = source.copies.sample_key(schema, self.share, f"{self.seed}/{table}")
            if known is None:
                raise NotByRanges("a table whose key cannot be walked")
            self._chosen[table] = known
        if known.whole:
            raise NotByRanges("few rows")
        return known


def borders(ranges: Sequence[SampledRange]) -> tuple[list[KeyBound], list[bool]]:
    """Bounds that cut all keys into ranges, ascending, and which of these are the given ones: as of RangedRows.keep."""
    bounds: list[KeyBound] = []
    wanted: list[bool] = []
    for after, upto in ((each.keys.after, each.keys.upto) for each in ranges):
        if after is not None and (not bounds or bounds[-1] != after):
            bounds.append(after)
            wanted.append(False)
        wanted.append(True)
        if upto is None:
            return bounds, wanted
        bounds.append(upto)
    return bounds, [*wanted, False]


def on_target(record: TableRecord, columns: Sequence[Column]) -> list[Column]:
    """The target's columns for those of a sample."""
    named = {column.attnum: column for column in record.schema.key_columns}
    return [named[column.attnum] for column in columns]
