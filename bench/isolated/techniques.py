"""Techniques of applying the same changes to DuckDB, in sequence: `python -m bench.isolated.techniques`.

Reads one JSON object from standard input: `folder`, `scale`, `transactions` and `seconds`. Each technique starts with
new tables in a new file and applies the changes in order until they or its time are used up; then the tables are
compared with the expected content. Prints a JSON object for each.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from bench.isolated.changes import (
    CHANGES,
    COLUMNS,
    FILLER,
    KEYED,
    Changes,
    groups,
    history_rows,
    make,
    net,
    rows,
    runs,
    sizes,
)
from engine.model.batch import TableChanges
from engine.model.identity import RelationId, TableId, TableName
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.targets.duckdb.changes import Place, apply_changes
from engine.targets.duckdb.database import Database, transaction
from engine.targets.duckdb.settings import DuckDbSettings

Apply = Callable[[Any, Changes, slice], None]
"""Applies one slice of the transactions, inside a transaction of the caller."""

_SOURCE_TYPES = {"INTEGER": "int4", "BIGINT": "int8", "VARCHAR": "text"}


@dataclass(frozen=True, slots=True)
class Technique:
    """`group`: source transactions per target transaction. `indexed`: the tables have primary keys."""

    name: str
    netted: bool
    group: int
    apply: Apply
    indexed: bool = False
    prepare: Callable[[Any], None] = lambda _: None


def plain(connection: Any, changes: Changes, part: slice) -> None:
    """One statement per change, with its values in the text."""
    for number in range(part.start, part.stop):
        for table in KEYED:
            key, balance = int(changes.keys[table][number]), int(changes.balances[table][number])
            connection.execute(f"UPDATE {table} SET balance = {balance}, filler = '{FILLER}' WHERE id = {key}")
        connection.execute(f"INSERT INTO history VALUES {_history_values(changes, number)}")


def prepare(connection: Any) -> None:
    """Prepare the statements that `prepared` executes."""
    for table in KEYED:
        connection.execute(f"PREPARE change_{table} AS UPDATE {table} SET balance = $1, filler = $2 WHERE id = $3")
    connection.execute("PREPARE add_history AS INSERT INTO history VALUES ($1, $2, $3, $4)")


def prepared(connection: Any, changes: Changes, part: slice) -> None:
    """One prepared statement per change."""
    for number in range(part.start, part.stop):
        for table in KEYED:
            key, balance = int(changes.keys[table][number]), int(changes.balances[table][number])
            connection.execute(f"EXECUTE change_{table}({balance}, '{FILLER}', {key})")
        connection.execute(f"EXECUTE add_history{_history_values(changes, number)}")


def multi_row(connection: Any, changes: Changes, part: slice) -> None:
    """Net changes of a table as one DELETE and one INSERT, with all values in the text."""
    for table in KEYED:
        which = net(changes, table, part)
        keys, balances = changes.keys[table][which].tolist(), changes.balances[table][which].tolist()
        connection.execute(f"DELETE FROM {table} WHERE id IN ({', '.join(map(str, keys))})")
        images = ", ".join(f"({key}, {balance}, '{FILLER}')" for key, balance in zip(keys, balances, strict=True))
        connection.execute(f"INSERT INTO {table} VALUES {images}")
    images = ", ".join(_history_values(changes, number) for number in range(part.start, part.stop))
    connection.execute(f"INSERT INTO history VALUES {images}")


def bulk(connection: Any, changes: Changes, part: slice) -> None:
    """Net changes as Arrow columns, deleted and inserted by the engine's own function."""
    for table in KEYED:
        _replace(connection, table, rows(changes, table, net(changes, table, part)))
    _apply(connection, "history", None, history_rows(changes, part))


def bulk_without_net(connection: Any, changes: Changes, part: slice) -> None:
    """The same without net change: a set ends before a row would be in it twice."""
    for table in KEYED:
        for piece in runs(changes, table, part):
            _replace(connection, table, rows(changes, table, piece))
    _apply(connection, "history", None, history_rows(changes, part))


def bulk_update(connection: Any, changes: Changes, part: slice) -> None:
    """Net changes as Arrow columns, by UPDATE with a join in place of delete and insert."""
    for table in KEYED:
        with connection.staged(rows(changes, table, net(changes, table, part))) as source:
            connection.execute(f"UPDATE {table} SET balance = s.c1, filler = s.c2 FROM {source} AS s WHERE id = s.c0")
    _apply(connection, "history", None, history_rows(changes, part))


def bulk_merge(connection: Any, changes: Changes, part: slice) -> None:
    """Net changes as Arrow columns, by MERGE."""
    for table in KEYED:
        with connection.staged(rows(changes, table, net(changes, table, part))) as source:
            connection.execute(
                f"MERGE INTO {table} USING {source} AS s ON id = s.c0 WHEN MATCHED THEN UPDATE SET balance = s.c1,"
                " filler = s.c2 WHEN NOT MATCHED THEN INSERT VALUES (s.c0, s.c1, s.c2)"
            )
    _apply(connection, "history", None, history_rows(changes, part))


TECHNIQUES = (
    Technique("a statement a change", False, 1, plain),
    Technique("a statement a change, primary keys", False, 1, plain, indexed=True),
    Technique("a prepared statement a change", False, 1, prepared, prepare=prepare),
    *(
        Technique("a prepared statement a change, primary keys", False, group, prepared, True, prepare)
        for group in (1, 100, 1_000)
    ),
    *(Technique("statements of many rows", True, group, multi_row) for group in (100, 1_000)),
    *(Technique("bulk delete and insert", False, group, bulk_without_net) for group in (100, 1_000)),
    *(Technique("bulk delete and insert", True, group, bulk) for group in (1, 10, 100, 1_000, 10_000, 100_000)),
    Technique("bulk update by join", True, 10_000, bulk_update),
    Technique("bulk merge", True, 10_000, bulk_merge),
)


def measure(technique: Technique, changes: Changes, scale: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Run one technique, at least one group; its figures, and whether the tables have the expected content."""
    path = folder / "techniques.duckdb"
    database = Database(path, DuckDbSettings())
    try:
        connection, done = database.writer, 0
        _create(connection, scale, indexed=technique.indexed)
        technique.prepare(connection)
        began = perf_counter()
        for part in groups(changes, technique.group):
            with transaction(connection):
                technique.apply(connection, changes, part)
            done = part.stop
            if perf_counter() - began >= seconds:
                break
        took = perf_counter() - began
        equal = _is_right(connection, changes, scale, done)
    finally:
        database.close(checkpoint=False)
        for file in folder.glob(f"{path.name}*"):
            file.unlink()
    return {
        "technique": technique.name,
        "netted": technique.netted,
        "transactions_per_commit": min(technique.group, done),
        "transactions": done,
        "row_changes": done * CHANGES,
        "seconds": round(took, 4),
        "rows_per_s": round(done * CHANGES / took, 1),
        "equal": equal,
    }


def main() -> None:
    """Run all techniques."""
    order = json.loads(sys.stdin.readline())
    scale = int(order["scale"])
    changes = make(int(order["transactions"]), scale)
    for technique in TECHNIQUES:
        found = measure(technique, changes, scale, float(order["seconds"]), Path(order["folder"]))
        print(json.dumps(found), flush=True)


def _create(connection: Any, scale: int, *, indexed: bool) -> None:
    for table, columns in COLUMNS.items():
        key = ", PRIMARY KEY (id)" if indexed and table in KEYED else ""
        connection.execute(f"CREATE TABLE {table} ({', '.join(' '.join(column) for column in columns)}{key})")
    for table, count in sizes(scale).items():
        connection.execute(f"INSERT INTO {table} SELECT i, 0, '{FILLER}' FROM range({count}) AS r(i)")
    connection.execute("CHECKPOINT")


def _is_right(connection: Any, changes: Changes, scale: int, done: int) -> bool:
    for table, count in sizes(scale).items():
        found = connection.execute(f"SELECT id, balance FROM {table} ORDER BY id").fetchnumpy()
        right = changes.balances_after(table, done, count)
        if not (np.array_equal(found["id"], np.arange(count)) and np.array_equal(found["balance"], right)):
            return False
    columns = ", ".join(f"sum({name})" for name, _ in COLUMNS["history"])
    sums = [int(column[:done].sum(dtype=np.int64)) for column in (*changes.keys.values(), changes.delta)]
    found = connection.execute(f"SELECT count(*), {columns} FROM history").fetchall()[0]
    return [int(value) for value in found] == [done, *sums]


def _replace(connection: Any, table: str, images: Any) -> None:
    _apply(connection, table, images.select(["c0"]).rename_columns(["k0"]), images)


def _apply(connection: Any, table: str, deletes: Any, inserts: Any) -> None:
    place = _PLACES[table]
    apply_changes(connection, place, [TableChanges(place.table, False, deletes, inserts, None)])


def _history_values(changes: Changes, number: int) -> str:
    values = [int(changes.keys[table][number]) for table in KEYED]
    return f"({', '.join(map(str, values))}, {int(changes.delta[number])})"


def _places() -> Iterator[tuple[str, Place]]:
    for number, (table, columns) in enumerate(COLUMNS.items(), start=1):
        typed = [Column(name, SourceType(_SOURCE_TYPES[kind]), at + 1) for at, (name, kind) in enumerate(columns)]
        keyed = table in KEYED
        schema = TableSchema(
            TableName("main", table),
            RelationId(number),
            tuple(typed),
            ("id",) if keyed else (),
            KeyMode.KEYED if keyed else KeyMode.APPEND,
            ReplicaIdentity.DEFAULT if keyed else ReplicaIdentity.NOTHING,
        )
        yield table, Place(TableId(f"t{number}"), table, schema)


_PLACES = dict(_places())


if __name__ == "__main__":
    main()
