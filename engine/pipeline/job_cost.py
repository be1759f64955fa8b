"""How a batch's job is run, chosen from what jobs cost before: in this process or in Spark, and there in how many tasks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from engine.model.subscription import BatchPolicy

KEPT = 0.97
"""What a measurement counts beside the next one."""
TELLING = 300.0
"""Jobs that differ by so many records (standard deviation) tell as much of the cost of a record as what is believed of it. What jobs
over few records cost says little of one over a hundred times as many."""
SURPRISE = 4.0
"""A job counts for at most so many times what was expected: one that had to wait for a worker's start tells nothing of the next."""
EXPIRES_AFTER = 50
"""So many jobs after the last one that went this way, what is known of it begins to fade: one that was slow for a time is tried again."""
FADING = 0.98
"""What it counts from then on beside what was believed at first, for each further job."""
HERE_MS = 100.0
"""The longest job that is run in this process, which answers queries and the source meanwhile."""
CHEAP_MS = 20.0
"""A job this short never holds up the target's commits."""


class LinearCost:
    """Time as a fixed part and one per record, by least squares over all measurements so far; older ones count less.

    The part per record is drawn towards what is believed of it, the more the less the measurements differ in size.
    `fixed_ms` and `per_record_ms` are what is believed before the first one.
    """

    def __init__(self, fixed_ms: float, per_record_ms: float, records: int = 50_000) -> None:
        self._believed = per_record_ms
        self._n = self._x = self._y = self._xx = self._xy = 0.0
        for amount in (0, records):
            self._add(amount, fixed_ms + per_record_ms * amount)
        self._first = self._sums
        self._unrenewed = 0

    def learn(self, records: int, took_ms: float) -> None:
        """A job over so many records took so long."""
        took_ms = min(took_ms, SURPRISE * self.expected_ms(records) + 1.0)
        self._unrenewed = 0
        self._sums = tuple(each * KEPT for each in self._sums)
        self._add(records, took_ms)

    def fade(self) -> None:
        """A job was measured that says nothing of this cost. After many of them in a row what is known counts less each time."""
        self._unrenewed += 1
        if self._unrenewed <= EXPIRES_AFTER:
            return
        self._sums = tuple(
            known * FADING + first * (1 - FADING) for known, first in zip(self._sums, self._first, strict=True)
        )

    def expected_ms(self, records: int) -> float:
        return self.fixed_ms + self._per_record * records

    @property
    def fixed_ms(self) -> float:
        """Time of a job over nothing."""
        return max(0.0, (self._y - self._per_record * self._x) / self._n)

    @property
    def _per_record(self) -> float:
        belief = (self._n * TELLING) ** 2
        spread = self._n * self._xx - self._x * self._x
        together = self._n * self._xy - self._x * self._y
        slope = (together + belief * self._believed) / (spread + belief)
        # What jobs took in all is the most that their records can have taken.
        return max(0.0, min(slope, self._y / self._x if self._x else slope))

    @property
    def _sums(self) -> tuple[float, ...]:
        return self._n, self._x, self._y, self._xx, self._xy

    @_sums.setter
    def _sums(self, sums: tuple[float, ...]) -> None:
        self._n, self._x, self._y, self._xx, self._xy = sums

    def _add(self, records: int, took_ms: float) -> None:
        self._n += 1
        self._x += records
        self._y += took_ms
        self._xx += float(records) * records
        self._xy += records * took_ms


@dataclass(frozen=True, slots=True)
class Way:
    """Where a job runs, and in how many tasks."""

    path: Literal["driver", "spark"]
    tasks: int = 1


HERE = Way("driver")


class JobPlacement:
    """Chooses the way that costs the least processor time among those that are quick enough. Used by one thread.

    Quick enough is what does not hold up the commits: the stages overlap, so that a job may take as long as a commit does. Where
    none is, the quickest one is taken. A policy that names a limit or a number is followed.
    """

    def __init__(self, policy: BatchPolicy) -> None:
        self._policy = policy
        self._costs: dict[Way, LinearCost] = {HERE: LinearCost(1.0, 0.001)}

    def choose(self, records: int, commit_ms: float, spark: int) -> Way:
        """`commit_ms`: what commits took lately; `spark`: how many tasks it runs beside each other, 0 where it is not there."""
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
        self._cost(way).learn(records, took_ms)
        for other, cost in self._costs.items():
            if other != way:
                cost.fade()

    @property
    def setup_ms(self) -> Mapping[str, float]:
        """What a job costs before its first record, by path."""
        spark = [cost.fixed_ms for way, cost in self._costs.items() if way.path == "spark"]
        return {"driver": self._costs[HERE].fixed_ms, **({"spark": min(spark)} if spark else {})}

    def _allowed(self, records: int, most: int) -> list[Way]:
        small, tasks = self._policy.small_rows, self._policy.tasks
        counts = [tasks] if tasks is not None else _doubled(most)
        spark = [Way("spark", count) for count in counts]
        if small is not None:
            return [HERE] if records < small else spark
        return [HERE, *spark]

    def _fits(self, way: Way, records: int) -> bool:
        free = self._policy.small_rows is None
        return way != HERE or not free or self._cost(way).expected_ms(records) <= HERE_MS

    def _cost(self, way: Way) -> LinearCost:
        if way not in self._costs:
            self._costs[way] = LinearCost(60.0 + 20.0 * way.tasks, 0.001 / way.tasks)
        return self._costs[way]


def _doubled(most: int) -> list[int]:
    """1, 2, 4 … and `most`."""
    counts = [1]
    while counts[-1] * 2 < most:
        counts.append(counts[-1] * 2)
    return counts if counts[-1] == most else [*counts, most]
