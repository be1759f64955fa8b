"""Chooses how each batch is written to the target, from the declared policy, the batch's contents, and the measured costs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from engine.model.identity import TableId
from engine.model.schema import KeyMode
from engine.model.subscription import ApplyMode, ApplyPolicy, Visibility
from engine.model.target import InOrderPlan, InOrderTarget, PartsTarget
from engine.pipeline.cost_model import GroupTuner, LaneTuner, NettingCostModel, Written
from engine.tables.planner import PlannedBatch

Announce = Callable[[str], None]
PARTS = 2
"""Number of parts of a batch with relaxed visibility, unless the policy's `lanes` sets another."""
MOST_SINGLE = 20_000
"""Most records of a batch that `auto` writes one by one. They are the parameters of one call, held in memory."""


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """How one batch is written. `way` None: as net changes, in up to `parts` parts that are committed separately.

    `tuning`: figures on which the choice was based, by name, for the report of the batch.
    """

    mode: ApplyMode = ApplyMode.BATCH
    way: InOrderPlan | None = None
    parts: int = 1
    tuning: Mapping[str, float] = field(default_factory=dict)


AS_BATCH = ApplyPlan()


class ApplyModeSelector:
    """`choose` is called by the job stage, `learn` by the commit stage. Any thread may use it."""

    def __init__(
        self,
        policy: ApplyPolicy,
        target: InOrderTarget | None,
        parts: PartsTarget | None,
        announce: Announce,
        sets_aside: Callable[[TableId], bool] = lambda table: False,
    ) -> None:
        """`announce` reports to the user that batches are written in another way from now on, and why.

        `target`, `parts`: None if the target cannot write changes in order, or a batch in parts.
        `sets_aside`: whether refused rows of a table are set aside, or some are already.
        """
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
        self._reported: str | None = None

    @property
    def keeps_transactions(self) -> bool:
        """Whether transactions have to remain separate, so that a batch must not mix staged slices of one with other transactions."""
        return self._target is not None and self._policy.mode in {ApplyMode.GROUPED, ApplyMode.TRANSACTIONAL}

    def choose(self, planned: PlannedBatch) -> ApplyPlan:
        """The plan for a planned batch. The first call may measure the target's commit rates, which blocks."""
        if self._target is None or self._policy.mode is ApplyMode.BATCH:
            return self._net()
        if self._policy.mode is ApplyMode.AUTO:
            return self._by_cost(planned)
        reason = self._only_as_batch(planned)
        if reason is None and planned.batch.transactions == 1 and any(part.xid for part in planned.ranges):
            return AS_BATCH  # The transaction remains one unit, whatever its size.
        with self._lock:
            if reason is not None:
                self._report_mode(f"a batch is written as one target transaction: {reason}")
                return AS_BATCH
            self._reported = None
            return self._in_order(planned, self._target)

    def learn(self, applying: ApplyPlan, transactions: int, written: Written) -> None:
        """Record what a batch cost that was written with this plan. `transactions`: its source transactions."""
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
        """The plan to write net changes. The first call may query the target whether it can commit in parts."""
        with self._lock:
            if self._as_net is None:
                self._as_net = AS_BATCH
                lanes = self._policy.lanes or PARTS
                missing = self._parts.parts_missing(lanes) if self._parts is not None else None
                if missing is not None:
                    self._report_mode(
                        f"batches become visible at once, in spite of the visibility `relaxed`: {missing}"
                    )
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
        return ApplyPlan(policy.mode, InOrderPlan(policy.policy, lanes, group), tuning=tuning)

    def _by_cost(self, planned: PlannedBatch) -> ApplyPlan:
        # Without a key, each single change would read the whole table to find its row.
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
                self._report_mode(
                    f"{'net changes' if tuner.net else 'changes one by one'} from now on: a batch of about {planned.records}"
                    f" changes in {tuner.tables:.0f} tables takes {as_net:.1f} ms as net changes, {single:.1f} ms one by one;"
                    f" {tuner.net_share:.0%} of the changes remain as net rows"
                )
        if net:
            return ApplyPlan(parts=as_parts, tuning=tuning)
        # One unit: the batch stays one target transaction.
        return ApplyPlan(ApplyMode.GROUPED, InOrderPlan(group=max(1, planned.batch.transactions)), tuning=tuning)

    def _only_as_batch(self, planned: PlannedBatch) -> str | None:
        """Why a batch's changes cannot be written one by one, as text; None if they can."""
        if any(self._sets_aside(part.table) for part in planned.parts):
            return "rows of a table that the target refuses are set aside"
        return _only_as_batch(planned)

    def _report_mode(self, what: str) -> None:
        if what != self._reported:
            self._reported = what
            self._announce(what)


def _only_as_batch(planned: PlannedBatch) -> str | None:
    """The reasons that follow from the batch alone."""
    if planned.batch.last is not None and planned.batch.last.logs is not None:
        return "the source merges several logs, whose state is recorded at the end of a batch"
    if planned.handover or planned.resumed:
        return "a table joins, with all changes that it missed"
    if any(part.versions[-1].soft_delete for part in planned.parts):
        return "a table keeps deleted rows, with their last values"
    if any(part.versions[-1].skipped for part in planned.parts):
        return "not all operations of a table are followed"
    if any(part.versions[-1].scattered for part in planned.parts):
        return "rows of a table are on several nodes"
    if any(part.versions[-1].history for part in planned.parts):
        return "the versions of a table's rows are kept"
    if any(part.versions[-1].staging for part in planned.parts):
        return "the changes of tables are kept in staging tables"
    if any(part.versions[0].computed and part.versions[0].mode is KeyMode.BAG for part in planned.parts):
        return "the source computes columns of a table without a key, whose rows are identified by all their values"
    if planned.reloads:
        return "rows of partitions are put into place"
    if planned.followed or planned.chunks:
        return "a table is being copied, and takes only a part of its changes"
    if planned.restructured:
        return "a table's structure changes in it"
    return None
