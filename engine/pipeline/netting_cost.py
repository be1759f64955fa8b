"""How batches are best written, from what writing them cost before. Pure; used by one thread at a time."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.target import CommitRates
from engine.pipeline.job_cost import LinearCost

MOST_IN_A_GROUP = 65_536
LANE_CHOICES = (1, 2, 4)
LANES_FROM, LANES_TO = 500, 20_000
"""From so many transactions on a batch tells what a number of lanes is worth; another number is tried with so many at most."""
BETTER = 0.8
"""The other way has to take less than this share of the time to be worth a change."""
IN_A_ROW = 5
"""For so many batches one after another."""
PROBE_EVERY = 64
"""After so many batches the other way is tried once, so that what is known of it stays true."""
PROBE_WITHIN = 3.0
"""Unless it is expected to take so many times as long. That expectation fades while the way is not used."""
TABLE_ROWS = 100
"""A touched table costs a batch of net changes as much as so many rows."""
_KEPT = 0.9


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


class LaneTuner:
    """How many lanes write: the number whose changes take the least time. A neighbour is tried now and then."""

    def __init__(self) -> None:
        self._cost: dict[int, float] = {}
        self._best = 1
        self._since = 0
        self._downwards = True
        """Where the last neighbour was tried that was not the only one."""

    def choose(self, transactions: int) -> int:
        """For a batch of so many."""
        if transactions < LANES_FROM:
            return self._best
        self._since += 1
        if transactions > LANES_TO:
            return self._best
        untried = [lanes for lanes in LANE_CHOICES if lanes not in self._cost]
        near = [lanes for lanes in untried if lanes <= 2 * self._best]
        if near:
            return near[0]
        if self._since >= PROBE_EVERY:
            self._since = 0
            return self._neighbour()
        return self._best

    def _neighbour(self) -> int:
        """The next number of lanes, or the one before: in turns, since what is known of either expires."""
        at = LANE_CHOICES.index(self._best)
        near = [lanes for lanes in LANE_CHOICES[max(at - 1, 0) : at + 2] if lanes != self._best]
        if len(near) > 1:
            self._downwards = not self._downwards
        return near[0] if self._downwards else near[-1]

    def learn(self, lanes: int, transactions: int, changes: int, seconds: float) -> None:
        """A batch took so long with so many lanes."""
        if transactions < LANES_FROM or not changes:
            return
        cost = seconds / changes
        before = self._cost.get(lanes, cost)
        self._cost[lanes] = before + (cost - before) * 0.3
        best = min(self._cost, key=lambda known: self._cost[known])
        if self._cost[best] < self._cost.get(self._best, cost) * 0.9:
            self._best, self._since = best, 0


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
        self._net = LinearCost(3.0, 0.008)
        self._single = LinearCost(2.0, 0.016)
        self._share = 1.0
        self._tables = 1.0
        self._since = self._in_favour = 0
        self.net = True
        """The way that is in use."""

    def choose(self, records: int) -> bool:
        """Whether to work out the net changes of a batch of about so many changes. May change `net`, and may try the other way."""
        net, single = self.expected_ms(records)
        mine, other = (net, single) if self.net else (single, net)
        self._in_favour = self._in_favour + 1 if other < mine * BETTER else 0
        self._since += 1
        if self._in_favour >= IN_A_ROW:
            self.net, self._in_favour, self._since = not self.net, 0, 0
        elif self._since >= PROBE_EVERY and other < mine * PROBE_WITHIN:
            self._since = 0
            return not self.net
        return self.net

    def expected_ms(self, records: int) -> tuple[float, float]:
        """As net changes, and as they are."""
        return self._net.expected_ms(self._units(records * self._share, self._tables)), self._single.expected_ms(
            records
        )

    def learn(self, written: Written) -> None:
        """A batch was written, as net changes where those are known."""
        self._tables += (written.tables - self._tables) * (1 - _KEPT)
        if written.net_rows is None:
            self._single.learn(written.changes, written.took_ms)
            self._net.fade()
            return
        self._single.fade()
        share = written.net_rows / max(written.changes, 1)
        self._share += (share - self._share) * (1 - _KEPT)
        self._net.learn(self._units(written.net_rows, written.tables), written.took_ms)

    @property
    def net_share(self) -> float:
        """Net rows for each change, lately."""
        return self._share

    @property
    def tables(self) -> float:
        """Tables that a batch touches, lately."""
        return self._tables

    @staticmethod
    def _units(rows: float, tables: float) -> int:
        return int(rows + TABLE_ROWS * tables)
