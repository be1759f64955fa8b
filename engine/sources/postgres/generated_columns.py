"""Values of generated columns that the log does not contain: the source computes them from the rows that the engine sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psycopg
from psycopg import sql

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.schema import Column, Input
from engine.sources.postgres.connect import SOURCE, Connector

_ROW = sql.Identifier("__penstock_row")


def compute(
    connector: Connector, table: TableId, columns: Sequence[Column], inputs: Mapping[int, str], rows: int
) -> bytes:
    """COPY text with the values of `columns` (each has an expression), one line per row, in order.

    Args:
        inputs: by attribute number, each column that an expression reads, as the text form of a text[] with one element per row.

    Raises:
        EngineFault: TABLE_STRUCTURE_CHANGED if an expression fails or does not exist any more; SOURCE_* if the source is lost.
    """
    with connector.session(table) as connection:
        try:
            found = bytearray()
            with connection.cursor() as cursor, cursor.copy(_query(columns, inputs, rows)) as copy:
                for data in copy:
                    found += data
            return bytes(found)
        except psycopg.Error as error:
            fault = SOURCE.fault(error, table)
            if fault.kind is not FaultKind.INTERNAL:
                raise fault from error
            detail = f"the source does not compute {', '.join(c.name for c in columns)}: {fault.detail}"
            raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, table, detail) from error


def _query(columns: Sequence[Column], inputs: Mapping[int, str], rows: int) -> sql.Composed:
    """The query names each input as the expressions do."""
    read: dict[int, Input] = {}
    for column in columns:
        if column.expression is not None:
            read |= {one.attnum: one for one in column.expression.inputs}
    expressions = [sql.SQL(c.expression.sql) for c in columns if c.expression is not None]
    given = [sql.SQL("generate_series(1, {})").format(sql.Literal(rows))]
    given += [sql.SQL("unnest({}::text[])").format(sql.Literal(inputs[number])) for number in read]
    places = [sql.Identifier(f"i{number}") for number in read]
    typed = [
        sql.SQL("u.{}::{} AS {}").format(place, sql.SQL(one.type), sql.Identifier(one.name))
        for place, one in zip(places, read.values(), strict=True)
    ]
    comma = sql.SQL(", ")
    return sql.SQL("COPY (SELECT {} FROM (SELECT {} FROM ROWS FROM ({}) AS u({})) AS r ORDER BY {}) TO STDOUT").format(
        comma.join(expressions),
        comma.join([sql.SQL("u.{}").format(_ROW), *typed]),
        comma.join(given),
        comma.join([_ROW, *places]),
        _ROW,
    )
