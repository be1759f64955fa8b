"""`lanes`: source transactions preserved on a remote PostgreSQL target, over one connection and over two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bench.contenders import DRAIN_TIMEOUT_S, PENSTOCK, PenstockSide, Side, wait_until
from bench.environment import CLUSTER_SETTINGS, Stage
from bench.errors import BenchError
from bench.facts import core_ms, load_average
from bench.round_trips import FORMS, Form, Statement, measured_ms, write
from bench.source_log import position
from bench.workload import DATABASE, Connection, Made, Mode, Size, Table, Workload, query_number
from engine.model.position import Lsn
from server.demo.embedded import EmbeddedPostgres, server_folder

Document = dict[str, Any]

FAR_S = 0.001
"""Network delay to the target, in seconds per direction: a round trip takes 2 ms."""
TARGET, APPLY = "postgres", "transactional"
"""The kind of target and the apply mode, which are fixed."""
CHANGES = 4
KEYED = ("accounts", "tellers", "branches")
_ROWS = 10_000
"""Rows of each keyed table, per step of the scale."""
_WARM_UP_PART = 10
_LONGEST_MS = 600_000
_SEPARATE = "round_trips"
"""The database of the target cluster that receives the transactions sent without Penstock."""
_TARGET_SETTINGS = {**CLUSTER_SETTINGS, "track_commit_timestamp": "on"}


@dataclass(frozen=True, slots=True)
class Way:
    """A lane policy and the number of lanes."""

    policy: str
    lanes: int

    @property
    def name(self) -> str:
        return f"{self.policy}, {_connections(self.lanes)}"


def _connections(number: int) -> str:
    return f"{number} connection{'' if number == 1 else 's'}"


def trips_name(form: Form, connections: int) -> str:
    """The key, among the figures of a round, of a form of sending over so many connections."""
    return f"{form.name}, {_connections(connections)}"


ONE, TWO, OPTIMISTIC = Way("pessimistic", 1), Way("pessimistic", 2), Way("optimistic", 2)
WAYS = (ONE, TWO, OPTIMISTIC)
PAIRS: tuple[tuple[str, str, str], ...] = (
    ("lanes, pessimistic", ONE.name, TWO.name),
    ("lanes, optimistic", ONE.name, OPTIMISTIC.name),
    *((form.name, trips_name(form, 1), trips_name(form, 2)) for form in FORMS),
)
"""Each comparison: its name, and the keys of the figures of one connection and of two.

A round's `ratio` is that of the first comparison.
"""

_SINGLE = "SELECT count(*) - count(DISTINCT xmin::text) FROM history"
_WHOLE = "SELECT count(*) FROM {0} AS k JOIN history AS h ON h.number = k.balance WHERE k.xmin <> h.xmin"
_BACKWARDS = """
SELECT count(*) FROM (SELECT pg_xact_commit_timestamp(xmin) AS at,
                             lag(pg_xact_commit_timestamp(xmin)) OVER (ORDER BY number) AS before FROM history) AS t
WHERE at < before OR at IS NULL"""
_LAST_OF_ROW = """
SELECT count(*) FROM (SELECT number % {1} AS id, max(number) AS number FROM history GROUP BY 1) AS h
LEFT JOIN {0} AS k USING (id) WHERE k.balance IS DISTINCT FROM h.number"""


class Lanes(Workload):
    """Transactions of the shape of tpcb's, none of which shares a row with the thousands before or after it.

    They are numbered from 1 in commit order over all rounds.
    """

    name = "lanes"
    description = (
        "unrelated transactions one by one into a PostgreSQL target 2 ms away, over one lane and over two;"
        " in addition a round trip for each of them"
    )
    modes: ClassVar[tuple[Mode, ...]] = (Mode.LANES,)
    full = Size(40_000, 5, rounds=5, seconds=2)
    quick = Size(4_000, 1, rounds=2, seconds=0.5)

    def tables(self) -> tuple[Table, ...]:
        return (*map(Table, KEYED), Table("history", insert_only=True))

    def create(self, connection: Connection, scale: int) -> None:
        for table in KEYED:
            connection.execute(
                f"CREATE TABLE {table} (id int PRIMARY KEY, balance bigint NOT NULL, filler char(84))".encode()
            )
            rows = f"SELECT i, 0, '' FROM generate_series(0, {_ROWS * scale - 1}) AS i"
            connection.execute(f"INSERT INTO {table} {rows}".encode())
        connection.execute("CREATE TABLE history (number bigint NOT NULL, at timestamptz NOT NULL, note text)")
        connection.execute("VACUUM ANALYZE")

    def generate(self, postgres: EmbeddedPostgres, amount: int) -> Made:
        with postgres.connect(DATABASE) as connection:
            rows = query_number(connection, "SELECT count(*) FROM accounts")
            first = query_number(connection, "SELECT coalesce(max(number), 0) + 1 FROM history")
            updates = " ".join(f"UPDATE {table} SET balance = n WHERE id = n % {rows};" for table in KEYED)
            connection.execute("SET synchronous_commit = off")
            connection.execute(
                f"DO $$ BEGIN FOR n IN {first}..{first + amount - 1} LOOP {updates}"
                " INSERT INTO history VALUES (n, now(), 'unrelated'); COMMIT; END LOOP; END $$".encode()
            )
        return Made(amount, amount * CHANGES)


def measure(
    workload: Workload, size: Size, rest_s: float, say: Callable[[str], None], *, verify: bool = True
) -> Document:
    """The rate of every way and form in each round, and whether the target is right at the end."""
    with Stage(workload, size.scale, [PENSTOCK], say, side_of=_side, rest_s=rest_s) as stage:
        side = stage.penstock
        if side is None:
            raise AssertionError("the side that was asked for")
        trips = _Trips(side, workload, size)
        rounds = []
        for number in range(size.rounds):
            rounds.append(_round(stage, side, trips, size, number))
            say(f"{workload.name}: round {number + 1} of {size.rounds}: {describe_round(rounds[-1])}")
        stage.wait_until_idle()
        wrong = [*_end_wrong(stage, side), *trips.find_wrong()]
        say(f"{workload.name}: comparing source and copy")
        checks = {"equal": side.verify() if verify else True, "wrong": wrong}
        settings = {"source": stage.settings()}
        return {
            "sides": list(rounds[0]["sides"]),
            "clusters": settings,
            "delay": {"each_way_ms": FAR_S * 1000, "round_trip_measured_ms": trips.round_trip_ms},
            "rounds": rounds,
            "checks": checks,
        }


def ratios(sides: Document) -> Document:
    """The rate of two connections divided by that of one, by name of the comparison."""
    return {
        name: round(sides[two]["transactions_per_s"] / sides[one]["transactions_per_s"], 3)
        for name, one, two in PAIRS
        if {one, two} <= set(sides)
    }


def describe_round(done: Document) -> str:
    """One line of text for one round."""
    rates = [f"{name} {side['transactions_per_s']:,.0f}/s" for name, side in done["sides"].items()]
    return f"{', '.join(rates)}; two lanes {done['ratio']:.2f} times one"


def wrong_way(batches: Sequence[Document], way: Way) -> list[str]:
    """Descriptions of the batches that were not written in this way."""
    return [
        f"batch {batch['batch']} was written as {batch['mode']}, over {batch['tuning'].get('lanes', 1):g} lanes, instead of"
        f" {APPLY} over {way.lanes}"
        for batch in batches
        if batch["mode"] != APPLY or batch["tuning"].get("lanes") != way.lanes
    ]


def _side(name: str, source: EmbeddedPostgres) -> Side:
    cluster = EmbeddedPostgres(server_folder("penstock-bench-pg-"), durable=True, settings=_TARGET_SETTINGS)
    return PenstockSide(source, cluster, apply=APPLY, far_s=FAR_S)


def turns(number: int) -> tuple[list[Way], list[int]]:
    """The order of the ways, and of the connection counts of each form, in a round; reversed in every second round."""
    back = -1 if number % 2 else 1
    return list(WAYS[::back]), [1, 2][::back]


def _round(stage: Stage, side: PenstockSide, trips: _Trips, size: Size, number: int) -> Document:
    ways, counts = turns(number)
    found = {way.name: _written(stage, side, way, size.amount) for way in ways}
    for form in FORMS:
        found |= {trips_name(form, connections): trips.write(form, connections) for connections in counts}
    names = [*(way.name for way in WAYS), *(trips_name(form, connections) for form in FORMS for connections in (1, 2))]
    sides: Document = {name: found[name] for name in names}
    compared = ratios(sides)
    return {
        "transactions": size.amount,
        "row_changes": size.amount * CHANGES,
        "order": list(found),
        "load_average": load_average(),
        "core_ms": core_ms(),
        "sides": sides,
        "ratios": compared,
        "ratio": compared[PAIRS[0][0]],
    }


def _written(stage: Stage, side: PenstockSide, way: Way, amount: int) -> Document:
    """Collect one batch of exactly `amount` transactions, and time only its writing.

    The batch is sealed by its count alone. When it is written, all of it has been read and prepared, and nothing else
    arrives.
    """
    side.go_on_with(
        apply={"mode": APPLY, "policy": way.policy, "lanes": way.lanes},
        batch={"max_transactions": amount, "max_bytes": 1024**3, "max_age_ms": _LONGEST_MS},
    )
    stage.workload.generate(stage.source, max(1, amount // _WARM_UP_PART))
    stage.wait_until_idle()
    first = side.last_batch()
    stage.workload.generate(stage.source, amount)

    def written() -> int:
        return sum(batch["transactions"] for batch in side.batches(first))

    wait_until(lambda: written() >= amount, DRAIN_TIMEOUT_S, "the transactions were on the target")
    batches = side.batches(first)
    wrong = wrong_way(batches, way)
    if wrong:
        raise BenchError("; ".join(wrong))
    seconds = sum(batch["seconds"]["commit"] for batch in batches)
    return {
        "transactions": written(),
        "batches": len(batches),
        "seconds": round(seconds, 4),
        "transactions_per_s": round(written() / seconds, 1),
    }


class _Trips:
    """The same transactions sent without Penstock, into tables of their own, over the same delay."""

    def __init__(self, side: PenstockSide, workload: Workload, size: Size) -> None:
        self._side = side
        self._seconds = size.seconds
        self._rows = _ROWS * size.scale
        self._next = 1
        self._written = 0
        side.target.execute(f"CREATE DATABASE {_SEPARATE}")
        with side.target.connect(_SEPARATE) as connection:
            workload.create(connection, size.scale)
        with self._connect() as connection:
            self.round_trip_ms = measured_ms(connection)

    def write(self, form: Form, connections: int) -> Document:
        done = write(self._connect, form, connections, self._seconds, self._next, self._statements)
        self._next = done.pop("next")
        self._written += done["transactions"]
        return done

    def find_wrong(self) -> list[str]:
        """Descriptions of what is missing or wrong in the tables."""
        with self._side.target.connect(_SEPARATE) as connection:
            found = query_number(connection, "SELECT count(DISTINCT number) FROM history")
            wrong = [] if found == self._written else [f"{found} of {self._written} transactions sent are there"]
            for table in KEYED:
                others = query_number(connection, _LAST_OF_ROW.format(table, self._rows))
                wrong += [f"{others} rows of {table} are not as the last transaction left them"] if others else []
        return wrong

    def _connect(self) -> Connection:
        return self._side.target.connect(_SEPARATE, port=self._side.target_port)

    def _statements(self, number: int) -> Sequence[Statement]:
        row = number % self._rows
        updates = [(f"UPDATE {table} SET balance = %s WHERE id = %s", (number, row)) for table in KEYED]
        return [*updates, ("INSERT INTO history VALUES (%s, now(), 'unrelated')", (number,))]


def _end_wrong(stage: Stage, side: PenstockSide) -> list[str]:
    """Descriptions of what is wrong in the target's commit order, and in the position recorded there."""
    before = Lsn.parse(position(stage.source))
    stage.wait_until_idle()
    with side.target.connect(DATABASE) as connection:
        wrong = order_wrong(connection)
        recorded = connection.execute("SELECT position FROM penstock.progress").fetchall()
    newest = side.batches(side.last_batch() - 1)
    return wrong + position_wrong([row[0] for row in recorded], [batch["end"] for batch in newest], before)


def order_wrong(target: Connection) -> list[str]:
    """Descriptions of source transactions that are not exactly one target transaction, or that committed out of order.

    `target`: in a cluster with `track_commit_timestamp`.
    """
    parts = sum(query_number(target, _WHOLE.format(table)) for table in KEYED)
    counted = (
        (query_number(target, _SINGLE), "transactions share one of the target with others"),
        (parts, "rows were not written with the rest of their transaction"),
        (
            query_number(target, _BACKWARDS),
            "transactions were committed before the one that the source has before them",
        ),
    )
    return [f"{number} {what}" for number, what in counted if number]


def position_wrong(recorded: Sequence[str], ends: Sequence[str], before: Lsn) -> list[str]:
    """What is wrong with the recorded positions; [] if there is exactly one, which is the one end of the last batch.

    `before`: a position before the last transaction; the end has to be greater.
    """
    if list(recorded) == list(ends) and len(ends) == 1 and Lsn.parse(ends[0]) > before:
        return []
    return [
        f"on record are {list(recorded)}, the last transaction is after {before} and its batch ends at {list(ends)}"
    ]
