"""Cuts a table into splits for parallel tasks: ranges of its key, which hold every row once under any snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.masks import Mask
from engine.model.schema import TableSchema
from engine.model.source import TableSplit
from engine.records.copy_fields import unescaped
from engine.sources.mariadb.catalog import MariaDbTable
from engine.sources.mariadb.connect import MariaDbConnection, literal, quoted, rows
from engine.sources.mariadb.types import HEX_MARK, ColumnFacts, Printed, read_line, read_text

ROW_BYTES = 100
"""Assumed size of a row if the source has no statistics of the table."""
_UNASSIGNED = dict.fromkeys(b"\x81\x8d\x8f\x90\x9d")
"""Characters of MariaDB's latin1, which are unassigned in the code page 1252."""


def cut_table(
    connection: MariaDbConnection, table: MariaDbTable, schema: TableSchema, split_bytes: int
) -> list[TableSplit]:
    """Cut the table into splits of about `split_bytes`. Raises EngineFault(TABLE_STRUCTURE_CHANGED) if it lacks a column."""
    select = select_lines(table, schema)
    step, row_bytes = step_of(table, split_bytes)
    bounds = _bounds(connection, table, step)
    rows_each = step if bounds else table.rows
    return [
        split_of(schema, f"{select} WHERE {condition}{and_kept(schema)}", rows_each * row_bytes, rows_each)
        for condition in _conditions(key_of(table), bounds)
    ]


def step_of(table: MariaDbTable, split_bytes: int) -> tuple[int, int]:
    """Rows of a split of about so many bytes, and the estimated bytes of a row."""
    row_bytes = max(ROW_BYTES, table.bytes // table.rows) if table.rows else ROW_BYTES
    return max(1, split_bytes // row_bytes), row_bytes


def select_lines(table: MariaDbTable, schema: TableSchema) -> str:
    """A query for lines of COPY text of the schema's columns, to which a condition can be added. Raises as `printed_values`."""
    line = read_line(list(printed_values(table, schema).values()))
    return f"SELECT {line} FROM {quoted(schema.name.schema, schema.name.name)}"


def and_kept(schema: TableSchema) -> str:
    """SQL that adds the row filter to a condition; empty without one."""
    return "" if schema.row_filter is None else f" AND ({schema.row_filter.text})"


def printed_values(table: MariaDbTable, schema: TableSchema) -> dict[str, str]:
    """SQL of the texts of the schema's columns, by name. Raises EngineFault(TABLE_STRUCTURE_CHANGED) if the table lacks one."""
    printed = {facts.name: how for facts, how in table.printed}
    names = [column.on_source for column in schema.columns]
    if not set(names) <= printed.keys():
        raise EngineFault(FaultKind.TABLE_STRUCTURE_CHANGED, str(schema.name), "a column of it was renamed or dropped")
    return {column: read_text(quoted(column), printed[column].sql.format(quoted(column))) for column in names}


def split_of(schema: TableSchema, text: str, size: int = 0, count: int = 0) -> TableSplit:
    """A query over the table, to be read as a split. `size`, `count`: bytes and rows, for estimates."""
    filtered = () if schema.row_filter is None else schema.row_filter.columns
    columns = (*((int(column.attnum), column.on_source) for column in schema.columns), *filtered)
    masks: tuple[tuple[int, Mask], ...] = tuple(
        (place, column.mask) for place, column in enumerate(schema.columns) if column.mask is not None
    )
    reads = TableName(schema.name.schema, schema.name.name)
    return TableSplit(schema.relation, text, size, count, RelationId(schema.relation), reads, columns, masks)


def key_of(table: MariaDbTable) -> list[tuple[ColumnFacts, Printed]]:
    """The columns of the primary key if all sort as literals of their values do; else none, and the table is not cut."""
    primary = next((index for index in table.indexes if index.name == "PRIMARY"), None)
    found = [] if primary is None else [(f, h) for name in primary.columns for f, h in table.printed if f.name == name]
    return found if all(how.ordered for _, how in found) else []


def _bounds(connection: MariaDbConnection, table: MariaDbTable, step: int) -> list[list[str]]:
    """Keys that end a split of `step` rows, except the last, as literals."""
    key = key_of(table)
    if not key:
        return []
    found: list[list[str]] = []
    while True:
        texts = place_after(connection, table, key, found[-1] if found else None, step)
        if texts is None:
            return found
        found.append(key_literals(key, texts))


def place_after(
    connection: MariaDbConnection,
    table: MariaDbTable,
    key: Sequence[tuple[ColumnFacts, Printed]],
    after: Sequence[str] | None,
    step: int,
    *,
    descending: bool = False,
) -> list[str] | None:
    """The key, as texts, of the row `step` rows after these literals; None if there are fewer rows. `descending`: counted backwards,
    and that at the literals too."""
    order = ", ".join(f"{quoted(facts.name)}{' DESC' if descending else ''}" for facts, _ in key)
    values = ", ".join(f"CAST({how.sql.format(quoted(facts.name))} AS CHAR)" for facts, how in key)
    where = "" if after is None else f"WHERE {compared(key, after, '<=' if descending else '>')}"
    statement = f"SELECT {values} FROM {quoted(table.name.schema, table.name.name)} {where} ORDER BY {order} LIMIT {step - 1}, 1"
    row = rows(connection, statement)
    return [unescaped(value) for value in row[0]] if row else None


def key_literals(key: Sequence[tuple[ColumnFacts, Printed]], texts: Sequence[str | None]) -> list[str]:
    """Literals of a key's values, as of `key_literal`."""
    return [key_literal(how, str(text)) for (_, how), text in zip(key, texts, strict=True)]


def key_literal(how: Printed, value: str) -> str:
    """A value of a key column as a literal, from its text as rows are printed, without escapes."""
    if how.name == "bytea":
        return f"X'{value.removeprefix(HEX_MARK)}'"
    return value.lstrip("0") or "0" if how.number and value.isdecimal() else value if how.number else literal(value)


def can_be_stored(facts: ColumnFacts, text: str | None) -> bool:
    """Whether the column's character set has all characters of the text. If not, MariaDB refuses to compare the two."""
    charset = facts.collation.split("_")[0]
    if charset in {"utf8", "utf8mb3"}:
        return max(str(text), default="") <= "\uffff"
    codec = {"ascii": "ascii", "latin1": "cp1252"}.get(charset, "utf-8")
    try:
        str(text).translate(_UNASSIGNED).encode(codec)
    except UnicodeEncodeError:
        return False
    return True


def _conditions(key: list[tuple[ColumnFacts, Printed]], bounds: Sequence[list[str]]) -> list[str]:
    if not bounds:
        return ["TRUE"]
    found = [compared(key, bounds[0], "<=")]
    for low, high in pairwise(bounds):
        found.append(f"{compared(key, low, '>')} AND {compared(key, high, '<=')}")
    return [*found, compared(key, bounds[-1], ">")]


def compared(key: Sequence[tuple[ColumnFacts, Printed]], bound: Sequence[str], operator: str) -> str:
    """The key compared with a bound, column by column, so that the index is used."""
    names = [quoted(facts.name) for facts, _ in key]
    strict = operator[0]
    parts = []
    for place in range(len(names)):
        same = [f"{name} = {value}" for name, value in zip(names[:place], bound[:place], strict=True)]
        last = operator if place == len(names) - 1 else strict
        parts.append("(" + " AND ".join([*same, f"{names[place]} {last} {bound[place]}"]) + ")")
    return "(" + " OR ".join(parts) + ")"
