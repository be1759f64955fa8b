"""A query on rows with a required freshness, for the tables of its own statement.

The wait for the position is done here. Whether the tables follow is decided by the engine in the snapshot that the
statement reads, so that no table can park between the wait and the read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from dataclasses import dataclass
from typing import Protocol

from engine.model.positions import ONLY_LOG, Marks, first_uncovered
from engine.model.table_state import TableStateKind
from server.errors import ReportedProblem
from server.freshness.errors import FreshnessTimeout, FreshnessUnreachable
from server.freshness.schemas import LeftOutTable, Receipt
from server.freshness.service import WaitService
from server.freshness.subscription_status import SubscriptionStatus
from server.freshness.wait import WaitSpec, left_out_tables, receipt_for_tables
from server.freshness.wait_registry import how_to_follow, what_is_left_out
from server.gateway.hub import QueryResult

_PAUSE_S = 0.05
_INCLUDE = "send on_unavailable 'include' for the rows that are there"


class Run(Protocol):
    """Runs the statement. `following`: refuse it if one of its tables does not follow its source. `available`: refuse it if one does not
    follow until a user acts."""

    def __call__(self, *, following: bool = False, available: bool = False) -> Awaitable[QueryResult]: ...


@dataclass(frozen=True, slots=True)
class FreshnessRequirement:
    """The required freshness of the rows. `marks` None: everything committed until now."""

    marks: Marks | None
    timeout_s: float
    following: bool
    """Refuse the query if one of its tables does not follow."""


async def query_present_rows(status: SubscriptionStatus, run: Run, *, available: bool) -> QueryResult:
    """The statement's rows as they are. `available`: refuse it if one of its tables does not follow until a user acts.

    Raises:
        FreshnessUnreachable: such a table.
    """
    try:
        return await run(available=available)
    except ReportedProblem as problem:
        if problem.code == FreshnessUnreachable.code:
            raise _unreachable(status, _known_tables(status, problem.extra.get("tables", ())), problem) from None
        raise


async def query_fresh_rows(
    waits: WaitService, status: SubscriptionStatus, requirement: FreshnessRequirement, run: Run
) -> tuple[QueryResult, Receipt]:
    """The statement's rows, and the receipt of the wait.

    Raises:
        FreshnessTimeout: the deadline passed.
        FreshnessUnreachable: the subscription is halted, or a table of the statement does not follow.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + requirement.timeout_s
    tables: frozenset[str] = frozenset()
    while True:
        # Of a table that is live only later, it is not known up to where its structure is the catalog's.
        live = {view.id for view in status.tables.values() if view.state is TableStateKind.LIVE}
        spec = WaitSpec(status.name, requirement.marks, tables, named=True, timeout_s=max(0.0, deadline - loop.time()))
        receipt = (await waits.run_wait_now(spec)).receipt
        try:
            result = await run(following=requirement.following)
        except ReportedProblem as problem:
            tables = _tables_to_wait_for(status, problem)
            if loop.time() >= deadline:
                raise FreshnessTimeout(f"{problem.detail} after {requirement.timeout_s * 1000:.0f} ms.") from None
            await asyncio.sleep(_PAUSE_S)
            continue
        if first_uncovered({ONLY_LOG: result.position}, status.form.parse(receipt.position)) is not None:
            result.frames.close()
            raise _too_old(status.text(result.position), receipt.position)
        if requirement.following and requirement.marks is None and not result.tables <= live:
            result.frames.close()
            tables = _known_tables(status, result.tables)
            continue
        return result, receipt_for_tables(status, receipt, result.tables, result.not_following)


def tables_left_out(status: SubscriptionStatus, result: QueryResult) -> list[LeftOutTable]:
    """The tables of the statement that did not follow their source when it ran: their rows are older than `result.position`."""
    return left_out_tables(status, result.not_following)


def _tables_to_wait_for(status: SubscriptionStatus, problem: ReportedProblem) -> frozenset[str]:
    """The tables to wait for, if the engine refused the statement because of them; else raises its refusal."""
    blamed = _known_tables(status, problem.extra.get("tables", ()))
    if problem.code == FreshnessUnreachable.code:
        raise _unreachable(status, blamed, problem)
    if problem.code != "table_not_ready":
        raise problem
    return blamed


def _unreachable(status: SubscriptionStatus, blamed: Collection[str], problem: ReportedProblem) -> FreshnessUnreachable:
    """The error with this process's reason if its status has the table as left out: the engine may have forgotten the reason."""
    views = [status.tables[table] for table in blamed]
    listed = [{"schema": view.schema, "name": view.name, "state": view.state.value} for view in views]
    left_out = next((view for view in views if view.left_out), None)
    if left_out is None:
        return FreshnessUnreachable(problem.detail, problem.remedy, extra={"tables": listed})
    remedy = f"{how_to_follow(left_out)}; or {_INCLUDE}."
    return FreshnessUnreachable(what_is_left_out(left_out), remedy, extra={"tables": listed})


def _known_tables(status: SubscriptionStatus, tables: Collection[str]) -> frozenset[str]:
    return frozenset(tables) & status.tables.keys()


def _too_old(found: str | None, wanted: str) -> ReportedProblem:
    return ReportedProblem(
        502, "answer_too_old", f"The engine answered from {found}, before {wanted}.", "Send the query again."
    )
