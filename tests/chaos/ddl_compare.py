"""Compares a table of a quiet source with its copy by what both print, independently of the product's own comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from engine.model.identity import TableName
from engine.model.subscription import TableSpec
from tests.fixtures.replication import Replica
from tests.pg.source_behaviour.text_oracle import _dsn, _held_rows, _printed_rows, columns_of

Row = tuple[str | None, ...]


def difference(replica: Replica, spec: TableSpec, now: TableName) -> str | None:
    """What is different, without values; None where nothing is. `now`: the table's name on the source."""
    target = replica.pipeline.target
    progress = target.progress(replica.spec.name) if target is not None else None
    assert target is not None
    assert progress is not None
    record = progress.tables[spec.table]
    columns = [column.name for column in record.schema.columns]
    expected = columns_of(replica.database, now)
    if columns != expected:
        return f"its columns are {columns}, and on the source {expected}"
    source = Counter(_printed_rows(replica.database.dsn, now, record.schema.columns))
    held: Sequence[Row] = (
        _printed_rows(_dsn(replica.spec.target), record.target, record.schema.columns)
        if replica.spec.target.kind == "postgres"
        else [tuple(map(_array_text, row)) for row in _held_rows(replica, target, record)]
    )
    copy = Counter(held)
    missing, extra = source - copy, copy - source
    if not missing and not extra:
        return None
    places = [name for place, name in enumerate(columns) if _values(missing, place) != _values(extra, place)]
    return f"{missing.total()} rows missing, {extra.total()} too many; of {source.total()}; columns {places}"


def _array_text(held: object) -> str | None:
    """An array of numbers as PostgreSQL prints it."""
    if isinstance(held, list):
        return "{" + ",".join("NULL" if each is None else str(each) for each in held) + "}"
    return held if isinstance(held, str) else None


def _values(rows: Counter[Row], place: int) -> Counter[str | None]:
    counted: Counter[str | None] = Counter()
    for row, count in rows.items():
        counted[row[place]] += count
    return counted
