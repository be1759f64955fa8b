"""`nodes`: the logs of one, two and four PostgreSQL nodes merged into one, and waits over three of them."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

from bench.contenders import connection_to, declared
from bench.environment import CLUSTER_SETTINGS
from bench.errors import BenchError
from bench.facts import core_ms, load_average
from bench.node_waits import measure_waits, write_global
from bench.small_transactions import Tpcb
from bench.workload import DATABASE, Connection, Mode, Size, Table, Workload
from server.demo.embedded import EmbeddedPostgres, server_folder

Document = dict[str, Any]

PLAIN = "one node, plain"
COUNTS = (1, 2, 4)
"""Numbers of nodes. Their order alternates from round to round, so that drift affects all alike."""
WAITED = 3
"""Nodes over which waits are measured."""
GLOBAL_SHARE = 100
"""One of so many transactions spans all nodes of a measurement that has several."""
MOST_SHARE = 0.05
"""Goal: the merge's part of the processor time of the capture: that of the reader, and of
the nodes' processes that decode and send their logs."""
SETTINGS = {**CLUSTER_SETTINGS, "shared_buffers": "'128MB'", "max_prepared_transactions": "16"}
_ROWS = 10_000
"""Accounts of each node."""


class Nodes(Tpcb):
    """Transactions of four changes each. `rate`: transactions a second while waits are measured, over all nodes."""

    name = "nodes"
    description = "the logs of 1, 2 and 4 nodes read and merged, a hundredth of the transactions global; waits over 3"
    modes: ClassVar[tuple[Mode, ...]] = (Mode.NODES,)
    full = Size(200_000, 1, rounds=3, seconds=30, rate=300)
    quick = Size(8_000, 1, rounds=1, seconds=5, rate=300)

    def tables(self) -> tuple[Table, ...]:
        return (Table("accounts"), Table("history", insert_only=True))

    def create(self, connection: Connection, scale: int) -> None:
        connection.execute("CREATE TABLE accounts (id bigint PRIMARY KEY, node int NOT NULL, amount bigint NOT NULL)")
        connection.execute("CREATE TABLE history (id bigint NOT NULL, at timestamptz NOT NULL, note text)")


def measure(workload: Workload, size: Size, waits_per_s: float, say: Callable[[str], None]) -> Document:
    """What each number of nodes gave in each round, and how long waits took over three of them."""
    with _clusters(workload, max(*COUNTS, WAITED), size.scale) as clusters:
        rounds = []
        for number in range(size.rounds):
            order = COUNTS[::-1] if number % 2 else COUNTS
            found = {count: _measured(workload, clusters[:count], size.amount, number) for count in order}
            rounds.append(_round(found, size.amount))
            say(f"nodes: round {number + 1} of {size.rounds}: {describe_round(rounds[-1])}")
        waits = measure_waits(clusters[:WAITED], workload.tables(), size.rate, waits_per_s, size.seconds)
        say(f"nodes: waits over {WAITED} nodes at {size.rate:g} transactions/s: median {waits['p50_ms']:.0f} ms")
    checks = {"equal": waits.pop("equal"), "wrong": _wrong(rounds), "never_lowered": never_lowered(rounds)}
    checks["merge_is_small"] = statistics.median(each["merge_share"] for each in rounds) <= MOST_SHARE
    return {"sides": list(rounds[0]["sides"]), "rounds": rounds, "waits": waits, "checks": checks}


def describe_round(done: Document) -> str:
    """One line of text for one round."""
    rates = [f"{name} {one['records_per_s']:,.0f} records/s" for name, one in done["sides"].items()]
    return f"{', '.join(rates)}; one node {done['ratio']:.2f} times plain; the merge {done['merge_share']:.1%} of the capture"


def never_lowered(rounds: Sequence[Document]) -> bool:
    """Whether the median rate does not fall from any number of nodes to the next one."""
    rates = [statistics.median(each["sides"][_name(count)]["records_per_s"] for each in rounds) for count in COUNTS]
    return all(one <= other for one, other in pairwise(rates))


def _wrong(rounds: Sequence[Document]) -> list[str]:
    """Measurements in which not all that was written was read."""
    return [
        f"round {number + 1}, {name}: {one['transactions']} of {one['written']} transactions were read"
        for number, each in enumerate(rounds)
        for name, one in each["sides"].items()
        if one["transactions"] < one["written"]
    ]


def _name(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _round(found: dict[int, tuple[Document, Document]], amount: int) -> Document:
    merged = {_name(count): _rated(found[count][0], amount) for count in COUNTS}
    plain = _rated(found[1][1], amount)
    return {
        "load_average": load_average(),
        "core_ms": core_ms(),
        "sides": {PLAIN: plain, **merged},
        "ratio": round(merged[_name(1)]["records_per_s"] / plain["records_per_s"], 3),
        "merge_share": round(max(one["merge_s"] / (one["cpu_s"] + one["senders_cpu_s"]) for one in merged.values()), 4),
        "merge_share_of_reader": round(max(one["merge_s"] / one["cpu_s"] for one in merged.values()), 4),
    }


def _rated(one: Document, amount: int) -> Document:
    rated = {name: round(value, 3) for name, value in one.items()}
    return {**rated, "written": amount, "records_per_s": round(one["records"] / one["seconds"])}


def _measured(
    workload: Workload, nodes: Sequence[EmbeddedPostgres], amount: int, number: int
) -> tuple[Document, Document]:
    """What was read of a backlog of `amount` transactions over these nodes with the merge, and of the first node without it."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.isolated.nodes"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        tables = [declared(table) for table in workload.tables()]
        settings = [connection_to(node)["settings"] for node in nodes]
        _asked(process, {"nodes": settings, "tables": tables, "folder": str(folder / "reader")})
        _write(nodes, amount, f"b{number}-{len(nodes)}")
        plain = _asked(process, {"plain": True})
        return _asked(process, {"plain": False}), plain
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def _asked(process: subprocess.Popen[str], order: Document) -> Document:
    if process.stdin is None or process.stdout is None:
        raise AssertionError("both are pipes")
    process.stdin.write(json.dumps(order) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise BenchError(f"the reader of the nodes ended with {process.wait(60)}")
    found: Document = json.loads(line)
    return found


def _write(nodes: Sequence[EmbeddedPostgres], amount: int, name: str) -> None:
    """Write a backlog: local transactions of all nodes at the same time, and then global ones."""
    spans = amount // GLOBAL_SHARE if len(nodes) > 1 else 0
    each = [(amount - spans) // len(nodes)] * len(nodes)
    each[0] += amount - spans - sum(each)
    faults: list[BaseException] = []

    def write(node: EmbeddedPostgres, count: int) -> None:
        try:
            with node.connect(DATABASE) as connection:
                connection.execute("SET synchronous_commit = off")
                connection.execute(
                    f"DO $$ BEGIN FOR n IN 1..{count} LOOP"
                    f" UPDATE accounts SET amount = amount + 1 WHERE id = (SELECT min(id) FROM accounts) + n % {_ROWS};"
                    f" UPDATE accounts SET amount = amount - 1 WHERE id = (SELECT min(id) FROM accounts) + (n + 1) % {_ROWS};"
                    " INSERT INTO history VALUES (n, now(), 'a'), (n, now(), 'b'); COMMIT; END LOOP; END $$".encode()
                )
        except BaseException as error:
            faults.append(error)

    threads = [Thread(target=write, args=pair, daemon=True) for pair in zip(nodes, each, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    with ExitStack() as stack:
        sessions = [stack.enter_context(node.connect(DATABASE)) for node in nodes]
        for number in range(spans):
            # Two parts whatever the number of nodes, so that backlogs of more nodes are no more work.
            pair = [(number + after) % len(sessions) for after in range(2)]
            write_global(sessions, pair, f"{name}-", number)


@contextmanager
def _clusters(workload: Workload, count: int, scale: int) -> Iterator[list[EmbeddedPostgres]]:
    clusters = [
        EmbeddedPostgres(server_folder("penstock-bench-pg-"), durable=True, settings=SETTINGS) for _ in range(count)
    ]
    try:
        for number, cluster in enumerate(clusters):
            cluster.start()
            cluster.execute(f"CREATE DATABASE {DATABASE}")
            with cluster.connect(DATABASE) as connection:
                workload.create(connection, scale)
                first = number * 10 * _ROWS
                rows = f"SELECT i, {number}, 0 FROM generate_series({first}, {first + _ROWS}) AS i"
                connection.execute(f"INSERT INTO accounts {rows}".encode())
                connection.execute("VACUUM ANALYZE")
        yield clusters
    finally:
        for cluster in clusters:
            cluster.destroy()
