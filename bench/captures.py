"""`triggers`: what each way to capture costs those who write, and how fast its changes are read.

Four sources have the same tables: one is not captured, one is captured by its log, one by triggers, and one has triggers that record
rows as CSV, as other tools have them (`csv_recorder`). In each round all get the same transactions, in turns, while the processes that
send changes are held. So the time of the writers contains what the source does for the capture, and nothing of an engine. Then each
backlog is drained: the recorded CSV into a PostgreSQL, by a statement for each row (`csv_reader`). Afterwards waits are timed at a
steady rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

from bench import backlog, csv_recorder, steady
from bench.contenders import PENSTOCK, PenstockSide, Side
from bench.csv_reader import CsvReader
from bench.environment import Stage
from bench.small_transactions import Tpcb
from bench.workload import DATABASE, Connection, Mode, Size, Workload
from server.demo.embedded import EmbeddedPostgres

Document = dict[str, Any]

NONE, LOG, TRIGGERS, CSV = "not captured", "log", "triggers", "CSV triggers"
WAYS = (NONE, LOG, TRIGGERS, CSV)
FOLLOWED = (LOG, TRIGGERS)
"""Ways whose copy is Penstock's."""
DRAINED = (*FOLLOWED, CSV)
GOALS = (
    "goal for triggers",
    None,
    "at least 0.70",
    "at most 0.80",
    "at least 150,000",
    "at least 3.0",
    "at most 300",
    None,
)
"""As a row of the report: the part of the throughput, the part of the time that CSV triggers add, rows a second, the same in multiples
of those of the CSV reader, and milliseconds."""
_WARM_UP_PART = 10


class Triggers(Tpcb):
    """`amount` transactions each way and round; `rate` a second while waits are timed."""

    name = "triggers"
    description = (
        "tpcb by eight clients without capture, captured by the log, and by triggers: cost for writers, drain, waits"
    )
    modes: ClassVar[tuple[Mode, ...]] = (Mode.CAPTURES,)
    full = Size(60_000, 10, rounds=4, seconds=30, rate=200)
    quick = Size(5_000, 2, rounds=1, seconds=5, rate=200)


class TriggersSide(PenstockSide):
    """Captured by triggers. Its positions are windows, which a session closes after its commit."""

    slot = "false"
    sender = (
        "SELECT l.pid FROM penstock.readers r JOIN pg_locks l ON l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted"
        " AND (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended('penstock reader ' || r.name, 0)"
    )
    capture: ClassVar[Document | None] = {"kind": "triggers"}

    def __init__(self, source: EmbeddedPostgres) -> None:
        super().__init__(source)
        self._from = source

    def arm(self, number: int, position: str) -> Future[float]:
        with self._from.connect(DATABASE) as connection:
            return super().arm(number, self.position(connection))

    def position(self, connection: Connection) -> str:
        row = connection.execute("SELECT penstock.close_window()").fetchone()
        if row is None:
            raise AssertionError("the statement returns a row")
        return f"w{row[0]}"


@dataclass(frozen=True, slots=True)
class Steady:
    """The steady load of the waits: transactions and waits a second, and seconds before and during the measurement."""

    rate: float
    waits: float
    warm_up_s: float
    seconds: float


def measure(
    workload: Workload, size: Size, at: Steady, rest_s: float, say: Callable[[str], None], *, verify: bool = True
) -> Document:
    """The figures of each way in each round, and whether both copies are equal at the end."""
    with ExitStack() as stack:
        stages = {way: stack.enter_context(_stage(way, workload, size, rest_s, say)) for way in WAYS}
        reader = _csv_reader(stack, stages[CSV], _stage("target of the CSV reader", workload, size, rest_s, say))
        for stage in stages.values():
            backlog.one_round(stage, list(stage.sides.values()), max(1, size.amount // _WARM_UP_PART))
        reader.drain()
        rounds = []
        for number in range(size.rounds):
            found = {way: _written(stages[way], size.amount) for way in turn(number)}
            found[CSV] |= _read(reader)
            ratios = {
                "ratio": kept(found, TRIGGERS),
                "ratio_of_log": kept(found, LOG),
                "ratio_of_csv": kept(found, CSV),
            }
            rounds.append({"sides": found, **ratios})
            say(f"{workload.name}: round {number + 1} of {size.rounds}: {describe_round(rounds[-1])}")
        followed = {way: stage.penstock for way, stage in stages.items() if stage.penstock is not None}
        waits = {way: _waits(stages[way], side, at) for way, side in followed.items()}
        for way, found_waits in waits.items():
            say(f"{workload.name}: {way}: {describe_waits(found_waits)}")
        wrong = []
        for way, side in followed.items():
            stages[way].wait_until_idle()
            if verify and not side.verify():
                wrong.append(f"the copy by {way} differs")
        if verify:
            reader.drain()
            wrong += [f"the CSV reader's {table} differs" for table in reader.differing()]
        return {
            "sides": list(WAYS),
            "clusters": {"source": stages[NONE].settings()},
            "rounds": rounds,
            "waits": waits,
            "checks": {"equal": not wrong, "wrong": wrong},
        }


def turn(number: int, ways: Sequence[str] = WAYS) -> Sequence[str]:
    """The order of the ways in a round; it begins with another one each time."""
    first = number % len(ways)
    return (*ways[first:], *ways[:first])


def kept(sides: Document, way: str) -> float:
    """The part of the uncaptured source's throughput that is left with this capture."""
    return round(float(sides[way]["transactions_per_s"] / sides[NONE]["transactions_per_s"]), 3)


def added(sides: Document, way: str) -> float | None:
    """The time that a transaction takes longer than without capture, in multiples of what CSV triggers add; None if they add none."""
    plain, own, csv = (1 / float(sides[name]["transactions_per_s"]) for name in (NONE, way, CSV))
    return round((own - plain) / (csv - plain), 3) if csv > plain else None


def faster(sides: Document, way: str) -> float:
    """How many times as many rows a second are drained as by the CSV reader."""
    return round(float(sides[way]["drain_rows_per_s"] / sides[CSV]["drain_rows_per_s"]), 2)


def describe_round(done: Document) -> str:
    """One line of text for one round."""
    sides = done["sides"]
    written = ", ".join(f"{way} {sides[way]['transactions_per_s']:,.0f}" for way in WAYS)
    drained = ", ".join(f"{way} {sides[way]['drain_rows_per_s']:,.0f}" for way in DRAINED)
    shares = f"{done['ratio_of_log']:.0%} with the log, {done['ratio']:.0%} with triggers, {done['ratio_of_csv']:.0%} with CSV triggers"
    of_csv = added(sides, TRIGGERS)
    shares += "" if of_csv is None else f"; triggers add {of_csv:.2f} of the time that CSV triggers add"
    times = f"triggers {faster(sides, TRIGGERS):.1f} times as fast as the CSV reader"
    return f"transactions/s written: {written} ({shares}); rows/s drained: {drained} ({times})"


def describe_waits(found: Document) -> str:
    """One line of text for the waits of one way."""
    waits = found["waits"]
    times = ", ".join(f"{name} {waits[f'{name}_ms']:.0f} ms" for name in ("p50", "p95", "p99", "max"))
    return f"waits at {found['transactions_per_s']:,.0f} transactions/s: {times}, {waits['failed']} failed"


def _stage(way: str, workload: Workload, size: Size, rest_s: float, say: Callable[[str], None]) -> Stage:
    def side(_name: str, source: EmbeddedPostgres) -> Side:
        return TriggersSide(source) if way == TRIGGERS else PenstockSide(source)

    names = [PENSTOCK] if way in FOLLOWED else []
    return Stage(workload, size.scale, names, lambda line: say(f"{line} ({way})"), side_of=side, rest_s=rest_s)


def _csv_reader(stack: ExitStack, source: Stage, copy: Stage) -> CsvReader:
    """Install the recorder, and begin to follow it into a database with the same rows."""
    target = stack.enter_context(copy)
    from_, to = stack.enter_context(source.connect()), stack.enter_context(target.connect())
    csv_recorder.install(from_)
    return CsvReader(from_, to)


def _read(reader: CsvReader) -> Document:
    rows, seconds = reader.drain()
    return {"drain_s": round(seconds, 3), "drain_rows_per_s": round(rows / seconds, 1)}


def _written(stage: Stage, amount: int) -> Document:
    done = backlog.one_round(stage, list(stage.sides.values()), amount)
    found: Document = {
        "transactions": done["transactions"],
        "written_s": done["generate_s"],
        "transactions_per_s": round(done["transactions"] / done["generate_s"], 1),
        "log_bytes": done["log"]["bytes"],
    }
    drained = done["sides"].get(PENSTOCK)
    if drained is None:
        return found
    return {**found, "drain_s": drained["seconds"], "drain_rows_per_s": drained["rows_per_s"], "drain": drained}


def _waits(stage: Stage, side: PenstockSide, at: Steady) -> Document:
    return steady.measure(stage, side, rate=at.rate, waits=at.waits, warm_up=at.warm_up_s, seconds=at.seconds)
