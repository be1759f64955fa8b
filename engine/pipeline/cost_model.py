"""Chooses between ways to do the same work from what each has cost: where jobs run, how batches are written. Pure; for one thread."""

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
"""Measurements whose sizes differ by so many records (standard deviation) weigh as much for the cost of a record as what is
believed of it: jobs over few records say little about one over a hundred times as many."""
SURPRISE = 4.0
"""A measurement counts for at most so many times what was expected: a job that waited for a worker's start says nothing of the next."""
EXPIRES_AFTER = 50
"""After so many measurements of other ways, what is known of a way begins to fade: one that was slow for a time is tried again."""
FADING = 0.98
"""Weight of what is known relative to the initial belief from then on, for each further measurement."""
BETTER, IN_A_ROW = 0.8, 5
"""Another way has to take less than this share of the time to be worth a change, for so many choices one after another."""
PROBE_EVERY, PROBE_WITHIN = 64, 3.0
"""After so many choices another way is tried once, so that what is known of it stays true; unless it is expected to take so many
times as long."""
HERE_MS = 100.0
"""The longest job that is run in this process, which answers queries and the source meanwhile."""
CHEAP_MS = 20.0
"""A job this short never holds up the target's commits."""
TABLE_ROWS = 100
"""A touched table costs a batch of net changes as much as so many rows."""
LANE_CHOICES = (1, 2, 4)
LANES_FROM, LANES_TO = 500, 20_000
"""From so many transactions on a batch tells what a number of lanes is worth; another number is tried with so many at most."""
MOST_IN_A_GROUP = 65_536


class LinearCost:
    """Time as a fixed part and one per record, by least squares over all measurements so far; older ones count less.

    The part per record is drawn towards what is believed of it, the more the less the measurements differ in size.
    `fixed_ms` and `per_record_ms` are what is believed before the first one.
    """

    def __init__(self, fixed_ms: float, per_record_ms: float, records: int = 50_000) -> None:
        self._believed = per_record_ms
        self._sums: tuple[float, ...] = (0.0,) * 5
        for amount in (0, records):
            self._add(amount, fixed_ms + per_record_ms * amount)
        self._first = self._sums
        self._unrenewed = 0

    def learn(self, records: float, took_ms: float) -> None:
        """Work on so many records took so long."""
        took_ms = min(took_ms, SURPRISE * self.expected_ms(records) + 1.0)
        self._unrenewed = 0
        self._sums = tuple(each * KEPT for each in self._sums)
        self._add(records, took_ms)

    def fade(self) -> None:
        """Another way was measured. After many of those in a row what is known of this one counts less each time."""
        self._unrenewed += 1
        if self._unrenewed > EXPIRES_AFTER:
            pairs = zip(self._sums, self._first, strict=True)
            self._sums = tuple(known * FADING + first * (1 - FADING) for known, first in pairs)

    def expected_ms(self, records: float) -> float:
        return self.fixed_ms + self._per_record * records

    @property
    def fixed_ms(self) -> float:
        """Time of work on nothing."""
        n, x, y, _, _ = self._sums
        return max(0.0, (y - self._per_record * x) / n)

    @property
    def _per_record(self) -> float:
        n, x, y, xx, xy = self._sums
        belief = (n * TELLING) ** 2
        slope = (n * xy - x * y + belief * self._believed) / (n * xx - x * x + belief)
        # What the work took in all is the most that its records can have taken.
        return max(0.0, min(slope, y / x if x else slope))

    def _add(self, records: float, took_ms: float) -> None:
        terms = (1.0, records, took_ms, records * records, records * took_ms)
        self._sums = tuple(known + term for known, term in zip(self._sums, terms, strict=True))


class MeanCost:
    """Time of a record alone, as a moving mean. Nothing is believed before the first measurement."""

    def __init__(self) -> None:
        self._per_record: float | None = None

    def learn(self, records: float, took_ms: float) -> None:
        """Work on so many records took so long."""
        each = took_ms / records
        known = each if self._per_record is None else self._per_record
        self._per_record = known + (each - known) * 0.3

    def fade(self) -> None:
        """What is known stays until the next measurement."""

    def expected_ms(self, records: float) -> float | None:
        return None if self._per_record is None else self._per_record * records


def measured(costs: Mapping[T, LinearCost | MeanCost], way: T, records: float, took_ms: float) -> None:
    """Work on so many records took so long this way. What is known of the other ways fades."""
    for one, cost in costs.items():
        if one == way:
            cost.learn(records, took_ms)
        else:
            cost.fade()


class CostModel(Generic[T]):
    """What each way costs, and which of them is in use: `current`, until a neighbour is clearly cheaper.

    `costs` is in an order in which neighbours are alike; the first way is in use at first. A neighbour takes its place where it is
    expected to take less than the share `better` of the time in `in_a_row` choices one after another.
    """

    def __init__(
        self, costs: Mapping[T, LinearCost | MeanCost], better: float = BETTER, in_a_row: int = IN_A_ROW
    ) -> None:
        self.costs = dict(costs)
        self.current = next(iter(self.costs))
        self._better, self._in_a_row = better, in_a_row
        self._since = self._in_favour = self._probed = 0

    def learn(self, way: T, records: float, took_ms: float) -> None:
        """Work on so many records took so long this way."""
        measured(self.costs, way, records, took_ms)

    def choose(self, records: Mapping[T, float]) -> T:
        """The way for work on so many records, counted as each way counts them. May change `current`, and may try a neighbour."""
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
        tried = near[self._probed % len(near)]  # in turns, since what is known of each expires
        if self._since >= PROBE_EVERY and expected[tried] < mine * PROBE_WITHIN:
            self._since, self._probed = 0, self._probed + 1
            return tried
        return self.current


@dataclass(frozen=True, slots=True)
class Way:
    """Where a job runs, and in how many tasks."""

    path: Literal["driver", "spark"]
    tasks: int = 1


HERE = Way("driver")


class JobPlacement:
    """Chooses the way that costs the least processor time among those that are quick enough.

    Quick enough is what does not hold up the commits: the stages overlap, so that a job may take as long as a commit does. Where
    none is, the quickest one is taken. A policy that names a limit or a number is followed. Each batch is judged by itself: sizes
    differ by orders of magnitude from one to the next, where staying with a way took 3.1 times as long as the best one (simulated:
    100, 10,000 and 1,000,000 records mixed), this choice 1.02 times.
    """

    def __init__(self, policy: BatchPolicy) -> None:
        self._policy = policy
        self._costs = {HERE: LinearCost(1.0, 0.001)}

    def choose(self, records: int, commit_ms: float, spark: int) -> Way:
        """`commit_ms`: what commits took lately; `spark`: how many tasks it runs concurrently, 0 where it is not there."""
        if not spark or records == 0:
            return HERE
        ways = [way for way in self._allowed(records, spark) if self._fits(way, records)]
        if len(ways) == 1:
            return ways[0]
        expected = {way: self._cost(way).expected_ms(records) for way in ways}
        enough = [way for way in ways if expected[way] <= max(commit_ms, CHEAP_MS)]
        if enough:
            return min(enough, key=lambda way: expected[way] * way.tasks)
        return min(ways, key=lambda way: expected[way])

    def learn(self, way: Way, records: int, took_ms: float) -> None:
        """A job over so many records went this way. What is known of the other ways fades."""
        self._cost(way)
        measured(self._costs, way, records, took_ms)

    @property
    def setup_ms(self) -> Mapping[str, float]:
        """What a job costs before its first record, by path."""
        spark = [cost.fixed_ms for way, cost in self._costs.items() if way.path == "spark"]
        return {"driver": self._costs[HERE].fixed_ms, **({"spark": min(spark)} if spark else {})}

    def _allowed(self, records: int, most: int) -> list[Way]:
        small, tasks = self._policy.small_rows, self._policy.tasks
        spark = [Way("spark", count) for count in ([tasks] if tasks is not None else _doubled(most))]
        if small is not None:
            return [HERE] if records < small else spark
        return [HERE, *spark]

    def _fits(self, way: Way, records: int) -> bool:
        free = self._policy.small_rows is None
        return way != HERE or not free or self._cost(way).expected_ms(records) <= HERE_MS

    def _cost(self, way: Way) -> LinearCost:
        return self._costs.setdefault(way, LinearCost(60.0 + 20.0 * way.tasks, 0.001 / way.tasks))


def _doubled(most: int) -> list[int]:
    """1, 2, 4 … and `most`."""
    return [*(1 << n for n in range((most - 1).bit_length())), most]


@dataclass(frozen=True, slots=True)
class Written:
    """What a batch held, and how long the target took for it. `net_rows`: None where its net changes were not worked out."""

    changes: int
    tables: int
    net_rows: int | None
    took_ms: float


class NettingCostModel:
    """Whether a batch's net changes are worth working out, or its changes are written one by one.

    Net changes cost by table and row, a change by itself costs more than a row among many. Where rows change again and again there
    are far fewer net rows than changes.
    """

    def __init__(self) -> None:
        self.costs = CostModel({True: LinearCost(3.0, 0.008), False: LinearCost(2.0, 0.016)})
        self.net_share = self.tables = 1.0
        """Net rows for each change, and tables that a batch touches, lately."""

    @property
    def net(self) -> bool:
        """The way that is in use."""
        return self.costs.current

    def choose(self, records: int) -> bool:
        """Whether to work out the net changes of a batch of about so many changes. May change `net`, and may try the other way."""
        return self.costs.choose(self._units(records))

    def expected_ms(self, records: int) -> tuple[float, float]:
        """As net changes, and as they are."""
        units = self._units(records)
        as_net, single = (cost.expected_ms(units[way]) or 0.0 for way, cost in self.costs.costs.items())
        return as_net, single

    def learn(self, written: Written) -> None:
        """A batch was written, as net changes where those are known."""
        self.tables += (written.tables - self.tables) * 0.1
        if written.net_rows is None:
            self.costs.learn(False, written.changes, written.took_ms)
            return
        self.net_share += (written.net_rows / max(written.changes, 1) - self.net_share) * 0.1
        self.costs.learn(True, written.net_rows + TABLE_ROWS * written.tables, written.took_ms)

    def _units(self, records: int) -> dict[bool, float]:
        return {True: records * self.net_share + TABLE_ROWS * self.tables, False: records}


class LaneTuner:
    """How many lanes write: the number whose changes take the least time.

    A moving mean, since nothing can be believed of a number of lanes before it is tried: with a cost of the kind of a job's, batches
    took 1.25 times as long as with the best number, with a mean 1.05 times (simulated over curves, speeds, sizes, and changes of them).
    """

    def __init__(self) -> None:
        self._costs = CostModel({lanes: MeanCost() for lanes in LANE_CHOICES}, better=0.9, in_a_row=1)

    def choose(self, transactions: int) -> int:
        """For a batch of so many."""
        if LANES_FROM <= transactions <= LANES_TO:
            return self._costs.choose(dict.fromkeys(LANE_CHOICES, transactions))
        return self._costs.current

    def learn(self, lanes: int, transactions: int, changes: int, seconds: float) -> None:
        """A batch took so long with so many lanes."""
        if transactions >= LANES_FROM and changes:
            self._costs.learn(lanes, changes, seconds * 1000)


class GroupTuner:
    """How many source transactions make one target transaction: doubled while commits come more often than is good, else halved.

    They shall come near the low rate, which is what the disk takes of full buffers, and far from the high one, of tiny commits.
    """

    def __init__(self, rates: CommitRates) -> None:
        self.rates = rates
        self.size = 1

    def learn(self, commits: int, seconds: float) -> None:
        """So many target transactions took so long."""
        most = self.rates.high - 0.9 * (self.rates.high - self.rates.low)
        if commits > most * seconds:
            self.size = min(self.size * 2, MOST_IN_A_GROUP)
        else:
            self.size = max(self.size // 2, 1)
