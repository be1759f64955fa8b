"""Which way each batch is written to the target: what was declared, what the batch allows, and what has cost the least."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from engine.model.identity import TableId
from engine.model.schema import KeyMode
from engine.model.subscription import ApplyMode, ApplyPolicy, Visibility
from engine.model.target import InOrder, InOrderTarget, PartsTarget
from engine.pipeline.cost_model import GroupTuner, LaneTuner, NettingCostModel, Written
from engine.tables.planner import PlannedBatch

Announce = Callable[[str], None]
PARTS = 2
"""Into so many a batch is divided with relaxed visibility, where nobody says otherwise."""
MOST_SINGLE = 20_000
"""Records of a batch whose changes `auto` may write one by one: as one unit they are the parameters of one call, held in memory."""


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """How one batch is written; `way` None: as net changes, in up to so many `parts` that are committed one by one."""

    mode: ApplyMode = ApplyMode.BATCH
    way: InOrder | None = None
    parts: int = 1
    tuning: Mapping[str, float] = field(default_factory=dict)


AS_BATCH = ApplyPlan()


class ApplyModeSelector:
    """Chooses in the job stage, learns from the commit stage; may be called from any thread."""

    def __init__(
        self,
        policy: ApplyPolicy,
        target: InOrderTarget | None,
        parts: PartsTarget | None,
        announce: Announce,
        sets_aside: Callable[[TableId], bool] = lambda table: False,
    ) -> None:
        """`announce` tells the user that the way has changed, and why. `sets_aside`: whether rows of a table may or do stand aside."""
        self._sets_aside = sets_aside
        self._policy = policy
        self._target = target
        self._parts = parts if policy.visibility is Visibility.RELAXED else None
        self._as_net: ApplyPlan | None = None
        self._announce = announce
        self._lock = threading.Lock()
        self._lanes = LaneTuner()
        self._groups: GroupTuner | None = None
        self._net_or_not = NettingCostModel()
        self._told: str | None = None

    @property
    def keeps_transactions(self) -> bool:
        """Whether transactions are to stay apart, so that nothing that is staged of one may share a batch with another."""
        return self._target is not None and self._policy.mode in {ApplyMode.GROUPED, ApplyMode.TRANSACTIONAL}

    def choose(self, planned: PlannedBatch) -> ApplyPlan:
        """The way for a batch that was planned. May measure the target's commits, once."""
        if self._target is None or self._policy.mode is ApplyMode.BATCH:
            return self._net()
        if self._policy.mode is ApplyMode.AUTO:
            return self._by_cost(planned)
        reason = self._only_as_batch(planned)
        if reason is None and planned.batch.transactions == 1 and any(part.xid for part in planned.ranges):
            return AS_BATCH  # it stays what it is, whatever its size
        with self._lock:
            if reason is not None:
                self._tell(f"a batch is written as one target transaction: {reason}")
                return AS_BATCH
            self._told = None
            return self._in_order(planned, self._target)

    def learn(self, applying: ApplyPlan, transactions: int, written: Written) -> None:
        """A batch was written that way."""
        way, seconds = applying.way, written.took_ms / 1000
        with self._lock:
            if self._policy.mode is ApplyMode.AUTO:
                if written.changes:
                    self._net_or_not.learn(written)
                return
            if way is None:
                return
            self._lanes.learn(way.lanes, transactions, written.changes, seconds)
            if self._groups is not None and transactions:
                self._groups.learn(-(-transactions // way.group), seconds)

    def _net(self) -> ApplyPlan:
        """As net changes. May ask the target for what it allows, once."""
        with self._lock:
            if self._as_net is None:
                self._as_net = AS_BATCH
                lanes = self._policy.lanes or PARTS
                missing = self._parts.parts_missing(lanes) if self._parts is not None else None
                if missing is not None:
                    self._tell(f"batches become visible at once, in spite of the visibility `relaxed`: {missing}")
                elif self._parts is not None:
                    self._as_net = ApplyPlan(parts=lanes)
            return self._as_net

    def _in_order(self, planned: PlannedBatch, target: InOrderTarget) -> ApplyPlan:
        policy, transactions = self._policy, planned.batch.transactions
        lanes = policy.lanes or self._lanes.choose(transactions)
        tuning = {"lanes": float(lanes)}
        group = 1
        if policy.mode is ApplyMode.GROUPED:
            group = policy.group_size or 0
            if not group:
                if self._groups is None:
                    self._groups = GroupTuner(target.commit_rates())
                group = self._groups.size
                rates = self._groups.rates
                tuning |= {"commit_rate_low": round(rates.low, 1), "commit_rate_high": round(rates.high, 1)}
            tuning["group_size"] = float(group)
        return ApplyPlan(policy.mode, InOrder(policy.policy, lanes, group), tuning=tuning)

    def _by_cost(self, planned: PlannedBatch) -> ApplyPlan:
        # To find a row by all its columns one by one would read the table each time.
        slow = any(part.versions[-1].mode is KeyMode.BAG for part in planned.parts)
        if slow or self._only_as_batch(planned) is not None or not 0 < planned.records <= MOST_SINGLE:
            return self._net()
        as_parts = self._net().parts
        with self._lock:
            tuner = self._net_or_not
            before = tuner.net
            net = tuner.choose(planned.records)
            as_net, single = tuner.expected_ms(planned.records)
            tuning = {"net_ms": round(as_net, 2), "single_ms": round(single, 2), "net_share": round(tuner.net_share, 3)}
            if tuner.net != before:
                self._tell(
                    f"{'net changes' if tuner.net else 'changes one by one'} from now on: a batch of about {planned.records}"
                    f" changes in {tuner.tables:.0f} tables takes {as_net:.1f} ms as net changes, {single:.1f} ms one by one;"
                    f" {tuner.net_share:.0%} of the changes remain as net rows"
                )
        if net:
            return ApplyPlan(parts=as_parts, tuning=tuning)
        # One unit: the batch stays one target transaction.
        return ApplyPlan(ApplyMode.GROUPED, InOrder(group=max(1, planned.batch.transactions)), tuning=tuning)

    def _only_as_batch(self, planned: PlannedBatch) -> str | None:
        """Why a batch's changes cannot be written as they are, None where they can."""
        if any(self._sets_aside(part.table) for part in planned.parts):
            return "rows of a table that the target refuses are set aside"
        return _only_as_batch(planned)

    def _tell(self, what: str) -> None:
        if what != self._told:
            self._told = what
            self._announce(what)


def _only_as_batch(planned: PlannedBatch) -> str | None:
    """Why a batch's changes cannot be written as they are, None where they can."""
    if planned.handover or planned.resumed:
        return "a table joins, with all changes that it missed"
    if any(part.versions[0].computed and part.versions[0].mode is KeyMode.BAG for part in planned.parts):
        return "the source computes columns of a table without a key, whose rows are identified by all their values"
    if planned.reloads:
        return "rows of partitions are put into place"
    if planned.followed or planned.chunks:
        return "a table is being copied, and takes only a part of its changes"
    if planned.restructured:
        return "a table's structure changes in it"
    return None
