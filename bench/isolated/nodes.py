"""The merge of several nodes' logs without an engine, for measurement: `python -m bench.isolated.nodes`.

Reads one JSON object as the first line of standard input: `nodes` (settings of a connection to each), `tables` and `folder`. Creates
slots and publications, also those of a plain reader of the first node, and prints `{"ready": true}`. Each further line of input, a
JSON object with `plain`, reads the backlog of all nodes, or of the first one without the merge, up to the present ends; what was read is
printed.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Any

import psutil
import psycopg

from bench.isolated.capture import table_of
from engine.model.position import Lsn
from engine.model.source import LogStream
from engine.model.subscription import FOLDER, CaptureSpec, ConnectionSpec
from engine.sort.merge import LogMerge
from engine.sources.postgres_log.source import PostgresSource
from engine.sources.postgres_logs.merged_chunk import warm
from engine.sources.postgres_logs.source import PartitionedSource

APPLICATION = "penstock bench nodes"
READER, PLAIN = "bench_nodes", "bench_plain"
GID_PATTERN = "^(?P<gtid>.+)@"
_MERGE = (
    "add_commits",
    "add",
    "add_all",
    "heard",
    "marked",
    "release",
    "wants_marks",
    "ask_marks",
    "released_to",
    "releases_log",
    "waits_for",
)


class MergeTime:
    """Processor time in seconds that is spent in the merge, as that of the whole process is taken."""

    def __init__(self) -> None:
        self.seconds = 0.0
        for name in _MERGE:
            setattr(LogMerge, name, self._timed(getattr(LogMerge, name)))

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def timed(*given: Any, **named: Any) -> Any:
            began = thread_time()
            try:
                return call(*given, **named)
            finally:
                self.seconds += thread_time() - began

        return timed


def main() -> None:
    """Run until the input ends."""
    order: dict[str, Any] = json.loads(sys.stdin.readline())
    nodes = [{"name": f"n{number}", "settings": one} for number, one in enumerate(order["nodes"])]
    capture = CaptureSpec("postgres_logs", {FOLDER: str(Path(order["folder"])), "gid_pattern": GID_PATTERN})
    source = PartitionedSource(ConnectionSpec("nodes", "partitioned", {"nodes": json.dumps(nodes)}, capture=capture))
    plain = PostgresSource(ConnectionSpec("plain", "postgres", order["nodes"][0]))
    tables = [table_of(number, one) for number, one in enumerate(order["tables"])]
    source.sent_tables.prepare(tables, READER)
    plain.sent_tables.prepare(tables, PLAIN)
    with source.reader.create(READER) as snapshot:
        start = snapshot.position
    with plain.reader.create(PLAIN) as snapshot:
        plain_start = snapshot.position
    warm()
    gc.freeze()  # As the log reader does.
    merge = MergeTime()
    _print_document({"ready": True})
    for line in sys.stdin:
        if json.loads(line)["plain"]:
            stream: LogStream = plain.log.open_stream(PLAIN, plain_start, APPLICATION)
            _print_document(_read(stream, plain.log.now, merge, order["nodes"][:1]))
        else:
            stream = source.log.open_stream(READER, start, APPLICATION)
            _print_document(_read(stream, source.log.now, merge, order["nodes"]))
    for reader, one in ((READER, source), (PLAIN, plain)):
        one.reader.end_other(reader, APPLICATION)
        one.reader.remove(reader)
        one.close()


def _senders(nodes: Sequence[Mapping[str, Any]]) -> list[psutil.Process]:
    """The processes that send the logs of these nodes to this one."""
    found = []
    for node in nodes:
        parameters = {name: node[name] for name in ("host", "port", "user", "password") if name in node}
        with psycopg.connect(**parameters, dbname=node["database"]) as connection:
            sql = "SELECT pid FROM pg_stat_replication WHERE application_name = %s"
            found += [psutil.Process(pid) for (pid,) in connection.execute(sql, [APPLICATION])]
    return found


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    return sum(each.user + each.system for each in (process.cpu_times() for process in processes))


def _read(
    stream: LogStream, end: Callable[[], Lsn], merge: MergeTime, nodes: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Read up to `end`, which is asked for once the session is there. The time counts from there, that of the
    processes that send from their start on. `nodes`: settings of connections to those whose logs are read."""
    senders = _senders(nodes)
    began, cpu, merged = perf_counter(), process_time(), merge.seconds
    wanted, reached = end(), Lsn(0)
    records = transactions = size = 0
    try:
        while reached < wanted:
            chunk = stream.read(0.05)
            if chunk is not None:
                reached = chunk.wal_end
                records += chunk.count
                size += len(chunk.data)
                transactions += int((chunk.data[chunk.offsets[:-1]] == ord("C")).sum()) if chunk.count else 0
            else:
                stream.ask_position()
        seconds, sent = perf_counter() - began, _cpu_s(senders)
    finally:
        stream.close()
    return {
        "records": records,
        "transactions": transactions,
        "bytes": size,
        "seconds": seconds,
        "cpu_s": process_time() - cpu,
        "merge_s": merge.seconds - merged,
        "senders_cpu_s": sent,
    }


def _print_document(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    main()
