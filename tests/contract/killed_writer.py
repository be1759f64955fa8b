"""Run as a program: commits batch after batch to a target file until it is killed, and says how far it has come."""

from __future__ import annotations

import sys
from pathlib import Path

from engine.model.identity import TableId, TableName
from engine.model.target import TableCommit
from engine.targets.duckdb.settings import DuckDbSettings
from engine.targets.duckdb.target import DuckDbTarget
from tests.contract.target_material import Pipeline, changes, inserts, keys, structure

LEFT = TableId("t0a")
RIGHT = TableId("t0b")
ACCOUNTS = 500
left = structure(TableName("public", "left"), {"id": "int4", "batch": "int8"}, ["id"])
right = structure(TableName("public", "right"), {"id": "int4", "batch": "int8"}, ["id"])


def run(path: Path) -> None:
    """Every batch replaces every row of both tables by its own number; small limits make checkpoints frequent."""
    pipeline = Pipeline(DuckDbTarget(path, DuckDbSettings(checkpoint_threshold="64KB")))
    progress = pipeline.target.progress(pipeline.subscription)
    if progress is None:
        pipeline.claim()
        for table, schema in ((LEFT, left), (RIGHT, right)):
            pipeline.load(table, schema, [(i, 0) for i in range(ACCOUNTS)])
    else:
        pipeline.batch, pipeline.end = progress.batch, progress.end.value
        pipeline.claim()
    while True:
        number = pipeline.batch + 1
        commits = [
            TableCommit(
                table,
                schema,
                schema.name,
                (
                    changes(
                        table,
                        delete=keys(schema, [(i,) for i in range(ACCOUNTS)]),
                        insert=inserts(schema, [(i, number) for i in range(ACCOUNTS)]),
                    ),
                ),
            )
            for table, schema in ((LEFT, left), (RIGHT, right))
        ]
        pipeline.commit(*commits)
        print(number, flush=True)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
