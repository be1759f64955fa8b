"""A recorder of changes as other trigger-based tools have one: a row trigger for each table and event writes the row as CSV."""

from __future__ import annotations

from collections.abc import Sequence

from bench.workload import Connection

_DATA = """CREATE TABLE csv_data (
    data_id bigserial PRIMARY KEY, table_name text NOT NULL, event_type char(1) NOT NULL, pk_data text, row_data text, old_data text,
    transaction_id text, create_time timestamptz NOT NULL)"""
_COLUMNS = """
SELECT c.relname, array_agg(a.attname::text ORDER BY a.attnum), array_agg(t.typcategory = 'N' ORDER BY a.attnum),
       array_agg(coalesce(a.attnum = ANY(i.indkey), false) ORDER BY a.attnum)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND c.relname <> 'csv_data' GROUP BY c.relname
"""
_EVENTS = {"INSERT": ("NEW", None), "UPDATE": ("OLD", "OLD"), "DELETE": ("OLD", "OLD")}
"""By event: the row with the key, and the old row if there is one."""


def install(connection: Connection) -> None:
    """Record all changes of the tables in the schema `public`."""
    connection.execute(_DATA)
    for table, columns in columns_of(connection).items():
        for event, (key, old) in _EVENTS.items():
            texts = [
                _csv(key, [column for column in columns if column[2]]),
                "NULL" if event == "DELETE" else _csv("NEW", columns),
                "NULL" if old is None else _csv(old, columns),
            ]
            name = f"csv_{table}_{event.lower()}"
            connection.execute(
                f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO csv_data"
                f" (table_name, event_type, pk_data, row_data, old_data, transaction_id, create_time) VALUES ('{table}', '{event[0]}',"
                f" {', '.join(texts)}, pg_current_xact_id()::text, clock_timestamp()); RETURN NULL; END $$".encode()
            )
            connection.execute(
                f"CREATE TRIGGER {name} AFTER {event} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()".encode()
            )


def columns_of(connection: Connection) -> dict[str, list[tuple[str, bool, bool]]]:
    """By table of the schema `public`, its columns: name, whether it is a number, whether it is in the key."""
    found = connection.execute(_COLUMNS).fetchall()
    return {table: list(zip(names, numbers, keys, strict=True)) for table, names, numbers, keys in found}


def _csv(row: str, columns: Sequence[tuple[str, bool, bool]]) -> str:
    """SQL for the columns of a row as one line of CSV; NULL is empty."""
    parts = []
    for name, is_number, _ in columns:
        value = f'{row}."{name}"'
        text = f"{value}::text" if is_number else rf"""replace(replace({value}::text, '\', '\\'), '"', '\"')"""
        parts.append(f"""CASE WHEN {value} IS NULL THEN '' ELSE '"' || {text} || '"' END""")
    return " || ',' || ".join(parts) or "NULL"
