"""Kills nodes, the coordinator of their transactions and the engine, while the merged copy of three nodes is read.

The nodes are clusters of their own, or databases of one cluster. Amounts and rows move between them in transactions that are committed in
two phases, by a coordinator that dies at its steps and is followed by another one; others are local, large, or rolled back after some of
their prepares. Rows also move by ordinary transactions, by several nodes within a short time. Nodes are stopped for short and for long,
their sessions cut, the sessions that send their logs cut or stopped; engine, log reader, server and Spark workers are killed. The copy's
sums are read continuously, and clients read what they committed after waits for "now", for positions of all nodes, or of one; also while
the transaction is not committed on its other nodes yet. All rows are compared at cuts under load, and at the end once more, one by one. At
the end the subscription is deleted, after which nothing of it is left on the nodes. Even seeds begin with the queue in `persist` mode, odd
ones in `memory`; seeds whose half is odd use the order `strict`. Prints a JSON summary; a failure writes the seed and the list of events to
a file and exits with 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any
from unittest.mock import patch

from tests.chaos import node_bank, node_kills
from tests.chaos.kill_run import FOUND_S, KillRun, Part, report_failure
from tests.chaos.killer import Killer, Kind
from tests.chaos.node_bank import NODES, NodeBank
from tests.chaos.node_coordinator import GID_PATTERN, OWN_PREFIX
from tests.chaos.node_kills import NodeKills
from tests.chaos.node_outages import OUTAGES, Outage
from tests.chaos.node_parcels import PARCELS, Sightings
from tests.chaos.reader import Readers
from tests.fixtures.rig import Rig

_SETTINGS = {
    "logical_decoding_work_mem": "'64kB'",
    "max_prepared_transactions": "50",
    "max_connections": "200",
    "log_min_messages": "warning",
}
_ENGINE: tuple[Kind, ...] = ("engine", "log_reader", "spark_worker", "server", "queue_mode")
_ROUND: tuple[Kind, ...] = (
    *_ENGINE,
    *node_kills.KINDS,
    "log_reader",
    "coordinator",
    "coordinator",
    "walsender",
    "sender_stopped",
)
_MEMORY_MB = 2_500.0
_QUICK = 0.03
"""See Carriers.quick: one in ten seconds, so that tables are live most of the time. Not measured."""
_RESTART_PAUSE_S = 1.0
"""See `run`."""
_PAGE = 2_000
"""Rows that are read of the copy at once, and compared."""
_LEFT = (
    "SELECT 'slot', slot_name::text FROM pg_replication_slots WHERE database = current_database()"
    " UNION ALL SELECT 'publication', pubname::text FROM pg_publication"
    " UNION ALL SELECT 'prepared', gid FROM pg_prepared_xacts WHERE database = current_database()"
)
_KEYS = {"entries": "move, node", "moves": "move", "follows": "move", "bulk": "move, n"}


class NodesRun(KillRun):
    """A run whose source are the nodes of `bank`."""

    def __init__(self, rig: Rig, options: argparse.Namespace, bank: NodeBank) -> None:
        super().__init__(rig, options, [*_ENGINE, *node_kills.KINDS])
        self._bank = bank
        self._seconds: float = options.seconds
        self._layout: str = options.layout
        self._outage: str | None = options.outage
        self._skews: list[float] = []
        self._copied: Counter[str] = Counter()
        """By table, how often it was copied again."""
        self._kills = NodeKills(bank, random.Random(f"{options.seed}/nodes"))
        self._readers = Readers(rig, node_bank.SUMS, node_bank.EXPECTED, bank)
        self._trial = Outage(rig, bank, self.note, options.seconds, self._readers.sums)
        # Commit times order what one client did one after another, unless clocks differ.
        bank.adapt(self.pace.rest, 1.0 if order_of(options.seed) == "strict" and not options.skew else _QUICK)
        self._sightings = Sightings(rig)
        self.killer = Killer(rig, self.rng, others=self._kills.kinds())

    @property
    def tables(self) -> int:
        return len(node_bank.TABLES)

    @property
    def readers(self) -> Readers:
        return self._readers

    def parts(self) -> tuple[Part, ...]:
        return (self._bank, self._bank.carriers, self._kills, self._readers, self._sightings, self.memory, self.pace)

    def violations(self) -> list[Any]:
        return [*super().violations(), *self._sightings.violations]

    @contextmanager
    def calm(self) -> Iterator[None]:
        """All nodes are there; the load continues."""
        with self._kills.calm():
            yield

    def round(self) -> list[Kind]:
        return self.rng.sample(_ROUND, len(_ROUND))

    def start_watching(self) -> None:
        """As of each run; the load of an outage does not rest while the copy is late."""
        if self._outage is None:
            super().start_watching()
        else:
            self._readers.start()
            self.memory.start()
            self.began = monotonic()
        self._sightings.start()

    def go(self) -> None:
        self._bank.work()
        self._skews = self._bank.places.skews()
        self.rig.wait_until(self._connected, FOUND_S, "the nodes' connections")
        tables = [{"schema": "public", "name": name} for name in node_bank.TABLES]
        self.rig.declare(tables, batch={"small_rows": 40}, queue={"mode": self.queue_mode})
        self.rig.wait_live(self.tables)
        self.note("live")
        self.start_watching()
        try:
            if self._outage is None:
                self._kill_for(self._seconds)
            else:
                self._trial.run(self._outage)
        finally:
            if self._outage is None:
                self.pace.stop()
            with self._kills.calm():
                self._bank.stop()
            self._readers.stop()
            self._sightings.stop()
        self.look()
        self.cut()
        self._compare_rows()
        self.memory.stop()
        self.look()
        self._copied = Counter(event["subject"] for event in self.rig.api.items("/events", kind="table_reloading"))
        self._leave()

    def summary(self) -> dict[str, Any]:
        coordinator = self._bank.coordinator.counts
        return {
            "layout": self._layout,
            **({} if self._outage is None else {"outage": self._outage, **self._trial.figures}),
            "order": order_of(self.seed),
            "clocks_ahead_s": self._skews,
            **super().summary(),
            "transactions": dict(sorted(self._bank.counts.items())),
            "lost_transactions": dict(self._bank.lost),
            "spread_transactions": dict(coordinator.outcomes),
            "finished_by_successors": dict(coordinator.finished),
            "coordinator_died": dict(sorted(coordinator.deaths.items())),
            "parcels": dict(sorted(self._bank.carriers.counts.items())),
            "parcels_read": self._sightings.reads,
            "earlier_parcels_seen": self._sightings.earlier,
            "copied_again": dict(self._copied),
        }

    def _connected(self) -> bool:
        for node in range(NODES):
            self.rig.api.put(f"/connections/n{node}", self._bank.places.connection(node))
        return True

    def _kill_for(self, seconds: float) -> None:
        self.killer.wait_for_progress(self.now())
        kinds: list[Kind] = []
        while self.elapsed < seconds:
            kinds = kinds or self.round()
            self.kill_and_look(kinds.pop())

    def _compare_rows(self) -> None:
        """Every row of the copy with those of all nodes, one by one. Nothing is written any more."""
        self.rig.api.post(f"{self.rig.path}/freshness-waits", {"timeout_ms": 60_000}, timeout_s=70)
        for table in node_bank.TABLES:
            key = _KEYS.get(table, "id")
            sql = f"SELECT * FROM {table} ORDER BY {key}"
            rows: list[tuple[Any, ...]] = []
            for node in range(NODES):
                if table != "shared" or node in node_bank.SHARED_ON:
                    with self._bank.places.connect(node) as session:
                        rows += session.execute(sql.encode()).fetchall()
            rows.sort()
            copied: list[tuple[Any, ...]] = []
            while page := self.rig.query(f"{sql} LIMIT {_PAGE} OFFSET {len(copied)}"):
                copied += [tuple(row) for row in page]
            self.note("rows compared", table=table, rows=len(rows))
            assert table != "parcels" or [row[0] for row in rows] == list(range(1, PARCELS + 1)), "parcels were lost"
            assert copied == rows, f"{table} differs: {_first_difference(copied, rows)}"

    def _leave(self) -> None:
        """The subscription goes, and nothing of it is left on any node."""
        self.rig.api.delete(self.rig.path)
        left: list[Any] = []

        def nothing() -> bool:
            left[:] = []
            for node in range(NODES):
                with self._bank.places.connect(node) as session:
                    left.extend(session.execute(_LEFT).fetchall())
            return not left

        self.rig.wait_until(nothing, FOUND_S, f"nothing was left on the nodes: {left}")


def _first_difference(copied: list[tuple[Any, ...]], rows: list[tuple[Any, ...]]) -> str:
    at = next((n for n, (one, other) in enumerate(zip(copied, rows, strict=False)) if one != other), None)
    if at is None:
        at = min(len(copied), len(rows))
    return f"{len(copied)} and {len(rows)} rows; {str(copied[at : at + 2])[:200]} and {str(rows[at : at + 2])[:200]}"


def order_of(seed: int) -> str:
    """In which order the logs are merged."""
    return "strict" if seed // 2 % 2 else "causal"


def main() -> int:
    parser = argparse.ArgumentParser(prog="nodes", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120, help="how long to kill (120)")
    parser.add_argument("--seed", type=int, default=1, help="chooses kills, moments and transactions (1)")
    parser.add_argument("--layout", choices=["clusters", "databases"], default="clusters", help="the nodes (clusters)")
    parser.add_argument(
        "--outage",
        choices=OUTAGES,
        help="in place of kills, for --seconds: the first node's log is not sent (silent), or its server is stopped; or a standby takes its"
        " place (promoted), or a node is added and one removed (nodes). Of clusters only",
    )
    parser.add_argument(
        "--skew",
        type=int,
        default=0,
        help="seconds by which clocks of two clusters differ from the machine's; needs faketime (0)",
    )
    parser.add_argument("--memory-mb", type=float, default=_MEMORY_MB, help="most of all our processes together (2500)")
    parser.add_argument("--failures", type=Path, default=Path("var/chaos"), help="where a failure is written down")
    options = parser.parse_args()
    run: KillRun | None = None
    bank = NodeBank(options.layout, options.seed, _SETTINGS, options.skew)
    capture = {
        "kind": "postgres_logs",
        "gid_pattern": GID_PATTERN,
        "own_prefix": OWN_PREFIX,
        "order": order_of(options.seed),
    }
    try:
        with (
            patch("server.processes.supervisor._PAUSE_MOST_S", _RESTART_PAUSE_S),
            Rig(durable=True, source=bank, capture=capture) as rig,
        ):
            run = NodesRun(rig, options, bank)
            run.go()
    except Exception as error:
        report_failure(run, error, options.failures)
        return 1
    sys.stdout.write(json.dumps(run.summary(), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
