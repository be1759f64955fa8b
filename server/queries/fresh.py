"""A query on rows with a required freshness, for the tables of its own statement, and where it runs if the target cannot give them.

The wait for the position is done here. Whether the tables follow is decided by the engine in the snapshot that the
statement reads, so that no table can park between the wait and the read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from engine.model.positions import ONLY_LOG, Marks, first_uncovered
from engine.model.table_state import TableStateKind
from server.errors import Problem, ReportedProblem
from server.freshness.errors import FreshnessTimeout, FreshnessUnavailable, FreshnessUnreachable
from server.freshness.schemas import LeftOutTable, Receipt, Staleness
from server.freshness.service import WaitService
from server.freshness.subscription_status import SubscriptionStatus
from server.freshness.wait import WaitSpec, left_out_tables, receipt_for_tables, receipt_of_source
from server.freshness.wait_registry import how_to_follow, what_is_left_out
from server.gateway.hub import QueryResult

_PAUSE_S = 0.05
_INCLUDE = "send on_unavailable 'include' for the rows that are there"
_NOT_READY = "table_not_ready"
_UNAVAILABLE = frozenset({FreshnessUnreachable.code, FreshnessUnavailable.code, _NOT_READY, "query_unavailable"})
"""Codes of the problems after which a query may run on the source."""


class Otherwise(StrEnum):
    """What happens to a query if the target does not have the required rows; which values are possible depends on the reason."""

    ERROR = "error"
    STALE = "stale"
    INCLUDE = "include"
    SOURCE = "source"


class Run(Protocol):
    """Runs the statement. `following`: refuse it if one of its tables does not follow its source. `available`: refuse it if one does not
    follow until a user acts. `on_source`: run it on the source."""

    def __call__(
        self, *, following: bool = False, available: bool = False, on_source: bool = False
    ) -> Awaitable[QueryResult]: ...


@dataclass(frozen=True, slots=True)
class FreshnessRequirement:
    """The required freshness of the rows. `waits` false: none. `marks` None: everything committed until now."""

    waits: bool
    marks: Marks | None
    timeout_s: float
    on_timeout: Otherwise
    on_unavailable: Otherwise
    refuse_early: bool = False

    @property
    def following(self) -> bool:
        """Refuse the query if one of its tables does not follow."""
        return self.on_unavailable is not Otherwise.INCLUDE


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The rows of a query. `position`: in the text form of its source. `receipt`: if it waited or ran on the source. `left_out`: its
    tables whose rows are older than the position."""

    result: QueryResult
    position: str
    receipt: Receipt | None
    left_out: Sequence[LeftOutTable]
    stale: Staleness | None = None


class FreshQuery:
    """One query: waits, runs the statement, and if the target does not have the rows does what the requirement says."""

    def __init__(
        self, waits: WaitService, status: SubscriptionStatus, requirement: FreshnessRequirement, run: Run
    ) -> None:
        self._waits = waits
        self._status = status
        self._requirement = requirement
        self._run = run

    async def rows(self) -> FoundRows:
        """The statement's rows.

        Raises:
            FreshnessTimeout: the deadline passed.
            FreshnessUnreachable: the subscription is halted, or a table of the statement does not follow.
        """
        try:
            return await self._rows_of_target()
        except Problem as problem:
            if not self._is_for_source(problem):
                raise
        return await self._rows_of_source()

    def _is_for_source(self, problem: Problem) -> bool:
        if isinstance(problem, FreshnessTimeout):
            return self._requirement.on_timeout is Otherwise.SOURCE
        return self._requirement.on_unavailable is Otherwise.SOURCE and problem.code in _UNAVAILABLE

    async def _rows_of_target(self) -> FoundRows:
        wanted = self._requirement
        if not wanted.waits:
            return self._found(await self._present_rows(following=wanted.on_unavailable is Otherwise.SOURCE))
        try:
            return await self._fresh_rows()
        except FreshnessTimeout as late:
            if wanted.on_timeout is not Otherwise.STALE:
                raise
            wanted_position = late.extra.get("position")
        return await self._stale_rows(wanted_position)

    async def _present_rows(self, *, following: bool = False) -> QueryResult:
        """The rows as they are; refused if one of the tables does not follow until a user acts, unless those are to be included."""
        try:
            return await self._run(following=following, available=self._requirement.following)
        except ReportedProblem as problem:
            if problem.code == FreshnessUnreachable.code:
                raise self._unreachable(self._known(problem.extra.get("tables", ())), problem) from None
            raise

    async def _fresh_rows(self) -> FoundRows:
        loop, wanted, status = asyncio.get_running_loop(), self._requirement, self._status
        deadline = loop.time() + wanted.timeout_s
        tables: frozenset[str] = frozenset()
        while True:
            # Of a table that is live only later, it is not known up to where its structure is the catalog's.
            live = {view.id for view in status.tables.values() if view.state is TableStateKind.LIVE}
            receipt = (await self._waits.run_wait_now(self._wait(tables, deadline - loop.time()))).receipt
            try:
                result = await self._run(following=wanted.following)
            except ReportedProblem as problem:
                tables = self._tables_to_wait_for(problem)
                if loop.time() >= deadline:
                    detail = f"{problem.detail} after {wanted.timeout_s * 1000:.0f} ms."
                    raise FreshnessTimeout(detail, extra={"position": receipt.position}) from None
                await asyncio.sleep(_PAUSE_S)
                continue
            self._check_position(result, status.form.parse(receipt.position))
            if wanted.following and wanted.marks is None and not result.tables <= live:
                result.frames.close()
                tables = self._known(result.tables)
                continue
            return self._found(result, receipt_for_tables(status, receipt, result.tables, result.not_following))

    def _wait(self, tables: frozenset[str], left_s: float) -> WaitSpec:
        wanted = self._requirement
        patient = wanted.on_timeout is not Otherwise.ERROR
        name, timeout_s = self._status.name, max(0.0, left_s)
        return WaitSpec(
            name,
            wanted.marks,
            tables,
            named=True,
            timeout_s=timeout_s,
            patient=patient,
            refuse_early=wanted.refuse_early,
        )

    async def _stale_rows(self, wanted: str | None) -> FoundRows:
        """The rows that the target has. `wanted`: the position that was waited for, where it is known."""
        result = await self._present_rows()
        shown = str(self._status.text(result.position))
        stale = Staleness(wanted=wanted, position=shown, seconds_behind=self._status.seconds_behind())
        return self._found(result, stale=stale)

    async def _rows_of_source(self) -> FoundRows:
        result = await self._run(on_source=True)
        if result.ran_on != "source":
            result.frames.close()
            raise engine_too_old("The engine cannot run queries on a source.")
        self._check_position(result, self._requirement.marks or ())
        return self._found(
            result, receipt_of_source(self._status, str(self._status.text(result.position)), result.tables)
        )

    def _found(self, result: QueryResult, receipt: Receipt | None = None, stale: Staleness | None = None) -> FoundRows:
        shown = str(self._status.text(result.position))
        return FoundRows(result, shown, receipt, left_out_tables(self._status, result.not_following), stale)

    def _check_position(self, result: QueryResult, marks: Marks) -> None:
        """Raise ReportedProblem if the answer's position does not cover the marks."""
        if first_uncovered({ONLY_LOG: result.position}, marks) is not None:
            result.frames.close()
            raise _too_old(self._status.text(result.position), self._status.form.text(marks))

    def _tables_to_wait_for(self, problem: ReportedProblem) -> frozenset[str]:
        """The tables to wait for, if the engine refused the statement because of them; else raises its refusal."""
        blamed = self._known(problem.extra.get("tables", ()))
        if problem.code == FreshnessUnreachable.code:
            # A table that was just resumed, or whose reload was just requested, may be unknown as such to the engine.
            if (
                blamed
                and not any(self._status.tables[table].left_out for table in blamed)
                and not self._status.is_halted
            ):
                return blamed
            raise self._unreachable(blamed, problem)
        if problem.code != _NOT_READY or self._requirement.on_unavailable is Otherwise.SOURCE:
            raise problem
        return blamed

    def _unreachable(self, blamed: Collection[str], problem: ReportedProblem) -> FreshnessUnreachable:
        """The error with this process's reason if its status has the table as left out: the engine may have forgotten the reason."""
        views = [self._status.tables[table] for table in blamed]
        listed = [{"schema": view.schema, "name": view.name, "state": view.state.value} for view in views]
        left_out = next((view for view in views if view.left_out), None)
        if left_out is None:
            return FreshnessUnreachable(problem.detail, problem.remedy, extra={"tables": listed})
        remedy = f"{how_to_follow(left_out)}; or {_INCLUDE}."
        return FreshnessUnreachable(what_is_left_out(left_out), remedy, extra={"tables": listed})

    def _known(self, tables: Collection[str]) -> frozenset[str]:
        return frozenset(tables) & self._status.tables.keys()


def _too_old(found: str | None, wanted: str) -> ReportedProblem:
    return ReportedProblem(
        502, "answer_too_old", f"The engine answered from {found}, before {wanted}.", "Send the query again."
    )


def engine_too_old(detail: str) -> ReportedProblem:
    return ReportedProblem(502, "engine_too_old", detail, "Run the same release of server and engine.")
