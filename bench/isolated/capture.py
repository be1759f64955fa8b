"""The log reader without an engine, for measurement: `python -m bench.isolated.capture`.

Reads one JSON object as the first line of standard input: `source` (settings of a connection), `tables`, `slot` and
`folder`. Creates publications and slot, starts the engine's log reader process, and prints a JSON object for every
report: what has been captured, and the position reached. Each further line of input releases the captured segments; the
end of the input ends the program.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from engine.connectors import open_source
from engine.model.fault import EngineFault
from engine.model.identity import Ordinal, TableId, TableName
from engine.model.source import Landed
from engine.model.subscription import ConnectionSpec, TableSpec
from engine.pipeline.log_reader import Confirm, Durable, Failed, Moved, ReaderConfig, ReaderEvent, Started
from engine.pipeline.reader_process import ReaderProcess
from engine.queue import QueueCatalog
from engine.queue.durability_switch import KeepDurable

APPLICATION = "penstock bench 1"


class Account:
    """Replaces the engine's intake: counts what was captured and keeps its blocks, sorts nothing. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._catalog = QueueCatalog(folder)
        self._lock = threading.Lock()
        self._counts = {"records": 0, "controls": 0, "bytes": 0}
        self._end: Any = None

    def count_event(self, reader: ReaderProcess, event: ReaderEvent) -> None:
        """Count one report of the reader and print the totals."""
        del reader
        with self._lock:
            if isinstance(event, Failed):
                _print_document({"failed": str(EngineFault(event.kind, event.subject, event.detail))})
            elif isinstance(event, Started):
                _print_document({"started": True})
            elif isinstance(event, Landed | Moved | Durable):
                if isinstance(event, Landed):
                    self._add(event)
                self._end = event.wal_end
                _print_document({"wal_end": str(event.wal_end), **self._counts})

    def release(self) -> Confirm | None:
        """Forget all captured blocks and delete full segments; returns what may be confirmed to the source."""
        with self._lock:
            if self._end is None:
                return None
            self._catalog.retain(self._catalog.next_ordinal, self._end)
            return Confirm(self._end)

    def _add(self, landed: Landed) -> None:
        self._counts["controls"] += len(landed.controls)
        if landed.block is not None:
            self._catalog.add(landed.block)
            self._counts["records"] += landed.block.count
            self._counts["bytes"] += landed.block.length


def main() -> int:
    """Run until the input ends. Exit code 1 if the source cannot be read; the fault is printed as the reader reports it."""
    try:
        _run()
    except EngineFault as fault:
        _print_document({"failed": str(fault)})
        return 1
    return 0


def _run() -> None:
    order: dict[str, Any] = json.loads(sys.stdin.readline())
    source = open_source(ConnectionSpec("source", "postgres", order["source"]))
    slot, folder = str(order["slot"]), Path(order["folder"])
    tables = [table_of(number, one) for number, one in enumerate(order["tables"])]
    source.sent_tables.prepare(tables, slot)
    with source.reader.create(slot) as snapshot:
        start = snapshot.position
    config = ReaderConfig(
        open_source,
        ConnectionSpec("source", "postgres", order["source"]),
        slot,
        APPLICATION,
        start,
        folder,
        Ordinal(0),
        KeepDurable(on=False, number=0),
    )
    account = Account(folder)
    reader = ReaderProcess(config, account.count_event)
    try:
        for _ in sys.stdin:
            confirm = account.release()
            if confirm is not None:
                reader.send(confirm)
    finally:
        reader.stop()
        source.close()


def table_of(number: int, one: dict[str, Any]) -> TableSpec:
    """The table in an entry of the order."""
    name = TableName(one["schema"], one["name"])
    return TableSpec(TableId(f"t{number:x}"), name, name, insert_only=bool(one.get("insert_only")))


def _print_document(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    sys.exit(main())
