"""Cost models that choose between ways to do the same work by their measured cost: where jobs run, how batches are written.

Pure. Each object is used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from engine.model.subscription import BatchPolicy
from engine.model.target import CommitRates

T = TypeVar("T")

KEPT = 0.97
"""Weight of a measurement relative to the next one."""
TELLING = 300.0
"""Standard deviation of the measured sizes, in records, at which the measurements count as much as the assumed cost of a record. Jobs
with few records say little about a job with a hundred times as many."""
SURPRISE = 4.0
"""A measurement counts as at most this multiple of the expected time: a job that waited for a worker's start is not typical."""
EXPIRES_AFTER = 50
"""Measurements of other ways after which those of a way begin to fade, so that a way that was slow for a time is tried again."""
FADING = 0.98
"""Weight of the measurements relative to the assumed costs from then on, applied at each further measurement of another way."""
BETTER, IN_A_ROW = 0.8, 5
"""The current way changes if another one is expected to take less than this share of the time, in this many consecutive choices."""
PROBE_EVERY, PROBE_WITHIN = 64, 3.0
"""Another way is tried once after this many choices, to renew its measurements, unless it is expected to take this multiple of the time.
"""
CHEAP_MS = 20.0
"""A job up to this length counts as one that does not delay the target's commits."""
TABLE_ROWS = 100
"""Cost of a changed table in a batch of net changes, in rows."""
LANE_CHOICES = (1, 2, 4)
"""Numbers of lanes that are tried: powers of two, few enough that each is measured soon. More lanes can be set. Not measured."""
LANES_FROM, LANES_TO = 500, 20_000
"""Fewest transactions of a batch from which a number of lanes is measured, and most transactions with which another number is tried."""
MOST_IN_A_GROUP = 65_536
"""Most transactions of a group whose size is chosen by commit rates; it bounds the doubling only. A user may set up to 100,000. Not
measured."""


class LinearCost:
    """Time as a fixed part and a part per record, by least squares over all measurements, with smaller weights for older ones.

    `fixed_ms`, `per_record_ms`: the assumed cost before the first measurement. The less the measurements differ in size, the closer the
    part per record is to the assumed one. `records`: the size at which the assumption counts as measured.
    """

    def __init__(self, fixed_ms: float, per_record_ms: float, records: int = 50_000) -> None:
        self._believed = per_record_ms
        self._sums: tuple[float, ...] = (0.0,) * 5
        for amount in (0, records):
            self._add(amount, fixed_ms + per_record_ms * amount)
        self._first = self._sums
        self._unrenewed = 0

    def learn(self, records: float, took_ms: float) -> None:
        """Add a measurement."""
        took_ms = min(took_ms, SURPRISE * self.expected_ms(records) + 1.0)
        self._unrenewed = 0
        self._sums = tuple(each * KEPT for each in self._sums)
        self._add(records, took_ms)

    def fade(self) -> None:
        """Another way was measured. After EXPIRES_AFTER consecutive calls, the measurements of this way lose weight with each call."""
        self._unrenewed += 1
        if self._unrenewed > EXPIRES_AFTER:
            pairs = zip(self._sums, self._first, strict=True)
            self._sums = tuple(known * FADING + first * (1 - FADING) for known, first in pairs)

    def expected_ms(self, records: float) -> float:
        return self.fixed_ms + self._per_record * records

    @property
    def fixed_ms(self) -> float:
        """Time for zero records, in ms."""
        n, x, y, _, _ = self._sums
        return max(0.0, (y - self._per_record * x) / n)

    @property
    def _per_record(self) -> float:
        n, x, y, xx, xy = self._sums
        belief = (n * TELLING) ** 2
        slope = (n * xy - x * y + belief * self._believed) / (n * xx - x * x + belief)
        # The records cannot have taken more than the total time.
        return max(0.0, min(slope, y / x if x else slope))

    def _add(self, records: float, took_ms: float) -> None:
        terms = (1.0, records, took_ms, records * records, records * took_ms)
        self._sums = tuple(known + term for known, term in zip(self._sums, terms, strict=True))


class MeanCost:
    """Time per record, as a moving mean. There is no assumption before the first measurement."""

    def __init__(self) -> None:
        self._per_record: float | None = None

    def learn(self, records: float, took_ms: float) -> None:
        """Add a measurement. `records` must not be 0."""
        each = took_ms / records
        known = each if self._per_record is None else self._per_record
        self._per_record = known + (each - known) * 0.3

    def fade(self) -> None:
        """No effect: the mean is kept until the next measurement."""

    def expected_ms(self, records: float) -> float | None:
        """The expected time; None before the first measurement."""
        return None if self._per_record is None else self._per_record * records


def measured(costs: Mapping[T, LinearCost | MeanCost], way: T, records: float, took_ms: float) -> None:
    """Add a measurement of one way, and let those of the other ways fade."""
    for one, cost in costs.items():
        if one == way:
            cost.learn(records, took_ms)
        else:
            cost.fade()


class CostModel(Generic[T]):
    """The costs of several ways, and the way in use (`current`).

    `costs` is ordered so that neighbours are similar; `current` begins with the first. It changes to a neighbour that is expected to
    take less than the share `better` of the time in `in_a_row` consecutive choices.
    """

    def __init__(
        self, costs: Mapping[T, LinearCost | MeanCost], better: float = BETTER, in_a_row: int = IN_A_ROW
    ) -> None:
        self.costs = dict(costs)
        self.current = next(iter(self.costs))
        self._better, self._in_a_row = better, in_a_row
        self._since = self._in_favour = self._probed = 0

    def learn(self, way: T, records: float, took_ms: float) -> None:
        """Add a measurement of one way, and let those of the other ways fade."""
        measured(self.costs, way, records, took_ms)

    def choose(self, records: Mapping[T, float]) -> T:
        """The way for the next work. `records`: its size by way, in the unit of its cost. May change `current`, or try a neighbour once."""
        ways = list(self.costs)
        at = ways.index(self.current)
        near = [way for way in ways[max(at - 1, 0) : at + 2] if way != self.current]
        mine = self.costs[self.current].expected_ms(records[self.current])
        self._since += 1
        if mine is None:
            return self.current
        expected = {way: ms for way in near if (ms := self.costs[way].expected_ms(records[way])) is not None}
        best = min(expected, key=expected.__getitem__, default=self.current)
        self._in_favour = self._in_favour + 1 if expected.get(best, mine) < mine * self._better else 0
        if self._in_favour >= self._in_a_row:
            self.current, self._in_favour, self._since = best, 0, 0
            return best
        if untried := [way for way in near if way not in expected]:
            return untried[0]
        tried = near[self._probed % len(near)]  # Alternately, because the measurements of each expire.
        if self._since >= PROBE_EVERY and expected[tried] < mine * PROBE_WITHIN:
            self._since, self._probed = 0, self._probed + 1
            return tried
        return self.current


@dataclass(frozen=True, slots=True)
class Way:
    """Where a job runs: in this process (`driver`) or on Spark, and in how many tasks."""

    path: Literal["driver", "spark"]
    tasks: int = 1


HERE = Way("driver")


class JobPlacement:
    """Chooses where a job runs: the way with the least processor time among those that are fast enough, else the fastest.

    A job is fast enough if it does not delay the commits: the stages overlap, so a job may take as long as a commit. The policy's
    `small_rows` and `tasks` take precedence. A long job does not block this process, which also answers queries and
    the source: kernels run without Python's global lock, and another thread waited at most 6 ms for it during jobs of 300,000 records of
    `tpcb`. When jobs here were limited to 100 ms, a backlog of 1.3 million records took the engine, the JVM and the Spark workers 2.8 s of
    processor time instead of 1.7 s.

    Each batch is decided separately, because consecutive sizes differ by orders of magnitude. In a simulation with 100, 10,000 and
    1,000,000 records mixed, a model that keeps its current way took 3.1 times as long as the best choice; this one took 1.02 times.
    """

    def __init__(self, policy: BatchPolicy) -> None:
        self._policy = policy
        self._costs = {HERE: LinearCost(1.0, 0.001)}

    def choose(self, records: int, commit_ms: float, spark: int) -> Way:
        """`commit_ms`: duration of recent commits. `spark`: number of tasks that Spark runs concurrently, 0 if it is not available."""
        if not spark or records == 0:
            return HERE
        ways = self._allowed(records, spark)
        if len(ways) == 1:
            return ways[0]
        expected = {way: self._cost(way).expected_ms(records) for way in ways}
        enough = [way for way in ways if expected[way] <= max(commit_ms, CHEAP_MS)]
        if enough:
            return min(enough, key=lambda way: expected[way] * way.tasks)
        return min(ways, key=lambda way: expected[way])

    def learn(self, way: Way, records: int, took_ms: float) -> None:
        """Add a measurement of a job, and let those of the other ways fade."""
        self._cost(way)
        measured(self._costs, way, records, took_ms)

    @property
    def setup_ms(self) -> Mapping[str, float]:
        """Fixed cost of a job in ms, by path; without `spark` if Spark was never considered."""
        spark = [cost.fixed_ms for way, cost in self._costs.items() if way.path == "spark"]
        return {"driver": self._costs[HERE].fixed_ms, **({"spark": min(spark)} if spark else {})}

    def _allowed(self, records: int, most: int) -> list[Way]:
        small, tasks = self._policy.small_rows, self._policy.tasks
        spark = [Way("spark", count) for count in ([tasks] if tasks is not None else _doubled(most))]
        if small is not None:
            return [HERE] if records < small else spark
        return [HERE, *spark]

    def _cost(self, way: Way) -> LinearCost:
        return self._costs.setdefault(way, LinearCost(60.0 + 20.0 * way.tasks, 0.001 / way.tasks))


def _doubled(most: int) -> list[int]:
    """The powers of two below `most`, and `most`."""
    return [*(1 << n for n in range((most - 1).bit_length())), most]


@dataclass(frozen=True, slots=True)
class Written:
    """Size of a written batch, and the time that the target took. `net_rows`: None if its net changes were not computed."""

    changes: int
    tables: int
    net_rows: int | None
    took_ms: float


class NettingCostModel:
    """Chooses between writing a batch's net changes (True) and writing its changes one by one (False).

    Net changes cost time per table and per net row. A single change costs more than a net row, but if rows change repeatedly, there are
    far fewer net rows than changes.
    """

    def __init__(self) -> None:
        self.costs = CostModel({True: LinearCost(3.0, 0.008), False: LinearCost(2.0, 0.016)})
        self.net_share = self.tables = 1.0
        """Moving means: net rows per change, and tables per batch."""

    @property
    def net(self) -> bool:
        """The way in use: whether net changes are written."""
        return self.costs.current

    def choose(self, records: int) -> bool:
        """Whether to write net changes of a batch with about `records` changes. May change `net`, or try the other way once."""
        return self.costs.choose(self._units(records))

    def expected_ms(self, records: int) -> tuple[float, float]:
        """Expected times of a batch in ms: as net changes, and one by one."""
        units = self._units(records)
        as_net, single = (cost.expected_ms(units[way]) or 0.0 for way, cost in self.costs.costs.items())
        return as_net, single

    def learn(self, written: Written) -> None:
        """Add a measurement: of net changes if `net_rows` is set, else of single changes."""
        self.tables += (written.tables - self.tables) * 0.1
        if written.net_rows is None:
            self.costs.learn(False, written.changes, written.took_ms)
            return
        self.net_share += (written.net_rows / max(written.changes, 1) - self.net_share) * 0.1
        self.costs.learn(True, written.net_rows + TABLE_ROWS * written.tables, written.took_ms)

    def _units(self, records: int) -> dict[bool, float]:
        return {True: records * self.net_share + TABLE_ROWS * self.tables, False: records}


class LaneTuner:
    """Chooses the number of lanes (concurrent connections) with the least time per change.

    It uses moving means, because nothing can be assumed about a number of lanes before it is measured. In simulations of several cost
    curves, speeds and sizes, batches took 1.05 times as long as with the best number; with LinearCost they took 1.25 times.
    """

    def __init__(self) -> None:
        self._costs = CostModel({lanes: MeanCost() for lanes in LANE_CHOICES}, better=0.9, in_a_row=1)

    def choose(self, transactions: int) -> int:
        """The number of lanes for a batch of `transactions` source transactions. May try another number once."""
        if LANES_FROM <= transactions <= LANES_TO:
            return self._costs.choose(dict.fromkeys(LANE_CHOICES, transactions))
        return self._costs.current

    def learn(self, lanes: int, transactions: int, changes: int, seconds: float) -> None:
        """Add a measurement. Batches with fewer than LANES_FROM transactions are ignored."""
        if transactions >= LANES_FROM and changes:
            self._costs.learn(lanes, changes, seconds * 1000)


class GroupTuner:
    """Chooses the number of source transactions per target transaction: doubled while the commit rate is too high, else halved.

    The commit rate should be near `rates.low`, the disk's rate with full buffers, and far from `rates.high`, its rate of tiny commits.
    """

    def __init__(self, rates: CommitRates) -> None:
        self.rates = rates
        self.size = 1

    def learn(self, commits: int, seconds: float) -> None:
        """Adjust `size` after `commits` target transactions that took `seconds`."""
        most = self.rates.high - 0.9 * (self.rates.high - self.rates.low)
        if commits > most * seconds:
            self.size = min(self.size * 2, MOST_IN_A_GROUP)
        else:
            self.size = max(self.size // 2, 1)
