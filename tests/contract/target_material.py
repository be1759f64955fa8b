"""Tables, rows and batches for tests of targets; nothing here knows which target it is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from engine.model.batch import TableChanges
from engine.model.fault import EngineFault
from engine.model.identity import BatchId, Epoch, RelationId, SubscriptionName, TableId, TableName
from engine.model.last_commit import LastCommit
from engine.model.position import Lsn
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.model.target import BatchCommit, LogStart, TableCommit, Target
from engine.model.values import Kind, ValueType, value_type
from engine.targets.duckdb.target import DuckDbTarget
from engine.targets.postgres.target import PostgresTarget
from tests.fixtures.answers import answered

SUBSCRIPTION = SubscriptionName("shop")
SYSTEM = "7300000000000000001"
SLOT = "shop_a1b2"

_ARROW = {
    Kind.BOOL: pa.bool_(),
    Kind.INT16: pa.int16(),
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.UINT32: pa.uint32(),
    Kind.FLOAT32: pa.float32(),
    Kind.FLOAT64: pa.float64(),
    Kind.TEXT: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us"),
    Kind.TIMESTAMPTZ: pa.timestamp("us", tz="UTC"),
    Kind.TIME: pa.time64("us"),
    Kind.UUID: pa.string(),
}
_BY_NUMBER = {Kind.DATE: pa.int32(), Kind.TIMESTAMP: pa.int64(), Kind.TIMESTAMPTZ: pa.int64(), Kind.TIME: pa.int64()}

Row = tuple[Any, ...]


def source_type(text: str) -> SourceType:
    """`int4`, `numeric(10,2)`, `int4[]` as the catalog would describe them."""
    if text.endswith("[]"):
        element = source_type(text[:-2])
        return SourceType("_" + element.name, element=element)
    if text.startswith("numeric("):
        precision, scale = (int(part) for part in text[8:-1].split(","))
        return SourceType("numeric", modifier=(precision << 16 | scale) + 4)
    return SourceType(text)


def structure(
    name: TableName,
    columns: Mapping[str, str],
    key: Sequence[str] = (),
    mode: KeyMode = KeyMode.KEYED,
    first_attnum: int = 1,
) -> TableSchema:
    """A structure whose columns are numbered from `first_attnum` in the order given."""
    made = tuple(
        Column(column, source_type(kind), number) for number, (column, kind) in enumerate(columns.items(), first_attnum)
    )
    return TableSchema(name, RelationId(16384), made, tuple(key), mode, ReplicaIdentity.DEFAULT)


def arrow_type(value: ValueType) -> Any:
    if value.kind is Kind.LIST:
        assert value.element is not None
        return pa.list_(arrow_type(value.element))
    if value.kind is Kind.DECIMAL:
        return pa.decimal128(value.precision, value.scale)
    return _ARROW[value.kind]


def column_of(values: Sequence[Any], value: ValueType) -> Any:
    """An Arrow array; dates and times may be given as their number of days or microseconds."""
    plain = _BY_NUMBER.get(value.kind)
    if plain is not None and all(v is None or isinstance(v, int) for v in values):
        return pa.array(values, plain).cast(arrow_type(value))
    return pa.array(values, arrow_type(value))


def inserts(schema: TableSchema, rows: Sequence[Row]) -> Any:
    """Rows as TableChanges.inserts holds them."""
    return pa.table(
        {f"c{i}": column_of([row[i] for row in rows], value_type(column)) for i, column in enumerate(schema.columns)}
    )


def keys(schema: TableSchema, rows: Sequence[Row]) -> Any:
    """Key tuples as TableChanges.deletes holds them."""
    return pa.table(
        {
            f"k{j}": column_of([row[j] for row in rows], value_type(column))
            for j, column in enumerate(schema.key_columns)
        }
    )


def images(schema: TableSchema, rows: Mapping[Row, int]) -> Any:
    """Images to delete with their counts, for a table without a key."""
    table = inserts(schema, list(rows))
    return table.append_column("n", pa.array(list(rows.values()), pa.int64()))


def partials(schema: TableSchema, rows: Sequence[tuple[Row, Row, frozenset[int]]]) -> Any:
    """Rows to complete: (key of the existing row, values, positions of unset columns)."""
    table = keys(schema, [key for key, _, _ in rows])
    values = inserts(schema, [row for _, row, _ in rows])
    for name in values.schema.names:
        table = table.append_column(name, values[name])
    for i in sorted(frozenset().union(*(unset for _, _, unset in rows))):
        table = table.append_column(f"u{i}", pa.array([i in unset for _, _, unset in rows]))
    return table


def changes(
    table: TableId,
    *,
    delete: Any = None,
    insert: Any = None,
    partial: Any = None,
    truncated: bool = False,
    paired: int = 0,
) -> TableChanges:
    return TableChanges(table, truncated, delete, insert, partial, paired=paired)


class Pipeline:
    """Drives a target as the engine would, counting batches and positions."""

    def __init__(self, target: Target, subscription: SubscriptionName = SUBSCRIPTION, epoch: int = 1) -> None:
        self.target = target
        self.subscription = subscription
        self.epoch = Epoch(epoch)
        self.batch = 0
        self.end = 1000

    def claim(self) -> Pipeline:
        self.target.claim(self.subscription, self.epoch, LogStart(SYSTEM, 1, SLOT, Lsn(self.end)))
        return self

    def load(self, table: TableId, schema: TableSchema, rows: Sequence[Row]) -> None:
        """Copy a table and hand it over."""
        self.target.adopt(self.subscription, table, schema.name)
        self.target.begin_copy(self.subscription, table, schema.name, schema)
        if rows:
            assert self.target.append_copy(table, inserts(schema, rows)) == len(rows)
        self.target.finish_copy(table)
        self.commit(TableCommit(table, schema, schema.name, handover=True))

    def commit(
        self,
        *tables: TableCommit,
        removed: Sequence[TableId] = (),
        dropped: Sequence[TableId] = (),
        stale: Sequence[TableId] = (),
        marks: Mapping[TableId, str | None] | None = None,
        last: LastCommit | None = None,
        then_parked: Mapping[TableId, str] | None = None,
    ) -> Lsn:
        """The next batch; the counters move only when it succeeded."""
        end = Lsn(self.end + 100)
        number = BatchId(self.batch + 1)
        batch = BatchCommit(
            self.subscription,
            self.epoch,
            number,
            end,
            tables,
            removed=tuple(removed),
            dropped=tuple(dropped),
            stale=tuple(stale),
            marks=marks or {},
            then_parked=then_parked or {},
            last=last,
        )
        self.write(batch)
        self.batch, self.end = number, end.value
        return end

    def write(self, batch: BatchCommit) -> None:
        self.target.commit(batch)

    def change(self, table: TableId, schema: TableSchema, *buckets: TableChanges) -> Lsn:
        return self.commit(TableCommit(table, schema, schema.name, buckets))

    def rows(self, schema: TableSchema) -> list[Row]:
        """Every row of the target table, sorted by its columns' text."""
        return sorted(self.select(f"SELECT * FROM {sql_name(schema.name)}"), key=lambda row: tuple(map(str, row)))

    def look(self, sql: str) -> list[Row]:
        """The target's rows, including those that readers do not see."""
        if isinstance(self.target, PostgresTarget):
            with self.target._sessions.session() as session:
                return list(session.execute(sql.encode()).fetchall())
        assert isinstance(self.target, DuckDbTarget)
        with self.target._open().reader() as connection:
            return list(connection.execute(sql).fetchall())

    def select(self, sql: str) -> list[Row]:
        answer = answered(self.target, sql, 100_000, 30.0, self.subscription)
        return [tuple(row.values()) if len(row) else () for row in answer.table.to_pylist()]


def sql_name(name: TableName) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in (name.schema, name.name))


def fault_of(call: Callable[[], object]) -> EngineFault:
    """The fault that `call` raises."""
    with pytest.raises(EngineFault) as caught:
        call()
    return caught.value
