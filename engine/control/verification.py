"""A verification: compares tables with their source at cuts, and reports each result to the server as soon as it is known."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa

from engine.control.problem import problem_of
from engine.copy.split_task import decoded_but_refused
from engine.link.client import ServerLink
from engine.link.message import Problem
from engine.link.verifications import Difference, RowCounts, Verification, VerifiedTable, Verify
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.position import Lsn
from engine.model.quarantine import RefusedCause, Texts
from engine.model.repair import RepairedRows
from engine.model.schema import TableSchema
from engine.model.source import ExportedSnapshot, Source
from engine.model.subscription import TableSpec
from engine.model.target import TableRecord, TargetReader
from engine.model.values import value_type
from engine.model.verification import VerificationMethod
from engine.net import decode_copy_text
from engine.net.decode import arrow_type
from engine.platform.clock import Clock
from engine.verify.compare import DIFFERENCES, EarlyRows, VerifyLimits, VerifyTable, verify_tables, with_shared
from engine.verify.sampling import Sampling
from engine.verify.verdict import TableVerdict

CUTS = 5
"""Most cuts of one verification. A table that was truncated or rewritten after a cut's snapshot cannot be read in it any more, and is
compared at the next cut."""


class Cuts(Protocol):
    """Pairs of reads of source and target at one position. See `pipeline.cuts`."""

    def cut(
        self, read_early: Callable[[ExportedSnapshot], None]
    ) -> AbstractContextManager[tuple[ExportedSnapshot, TargetReader]]:
        """A source snapshot and a reader of the target at its position, for the time of the block.

        `read_early` is called with the snapshot before the target has reached its position.
        """
        ...

    def records(self, tables: Sequence[TableId] | None) -> list[TableRecord]:
        """The target's records of the live tables among these, or of all live tables if None."""
        ...


class Listener(Protocol):
    """Receives the progress of a verification, in the thread that verifies."""

    def start(self, position: Lsn, total: int) -> None:
        """The first cut was made at `position`; `total` tables are compared. Called once, before `add`."""
        ...

    def add(self, verdict: TableVerdict) -> None:
        """The result of one table. Called once for each table, unless the verification is cancelled or fails."""
        ...


@dataclass(frozen=True, slots=True)
class Comparing:
    """How tables are compared.

    `sampling`: only the ranges of keys that it chooses are, where that is possible; None: all rows.
    `shared_only`: only columns that both sides have, because the target does not follow schema changes. `limits`: as of `verify_tables`.
    """

    method: VerificationMethod = VerificationMethod.ROWS
    sampling: Sampling | None = None
    shared_only: bool = False
    limits: VerifyLimits | None = None


_BY_ROWS = Comparing()


def verify_at_cuts(
    cuts: Cuts,
    source: Source,
    specs: Mapping[TableId, TableSpec],
    wanted: Sequence[TableId] | None,
    listener: Listener,
    cancelled: threading.Event,
    how: Comparing = _BY_ROWS,
) -> None:
    """Compare the wanted tables, or all live ones if `wanted` is None. The listener receives one verdict for each.

    Args:
        specs: by table; tables without a spec are left out.
        cancelled: ends the comparison early when set.

    Raises:
        EngineFault: a cut could not be made.
    """
    left: dict[TableId, TableVerdict] = {}
    again: list[VerifyTable] = []
    for number in range(CUTS):
        early = EarlyRows(source, again, decode_copy_text)
        with cuts.cut(early.read) as (snapshot, reader):
            tables = [VerifyTable(specs[r.table], r) for r in cuts.records(wanted) if r.table in specs]
            if how.shared_only:
                now = source.describe([table.spec for table in tables])
                tables = [with_shared(t, now[t.spec.source]) if t.spec.source in now else t for t in tables]
            if number == 0:
                listener.start(snapshot.position, len(tables))
            for table in tables:
                decode = leaving_out(table.record.set_aside)
                (verdict,) = verify_tables(
                    source,
                    reader,
                    snapshot,
                    [table],
                    decode,
                    cancelled=cancelled,
                    limits=how.limits,
                    early=early,
                    method=how.method,
                    sampling=how.sampling,
                )
                if verdict.code == FaultKind.TABLE_STRUCTURE_CHANGED:
                    left[verdict.table] = verdict
                    continue
                left.pop(verdict.table, None)
                listener.add(verdict)
        if not left or cancelled.is_set():
            break
        again = [table for table in tables if table.spec.table in left]
        wanted = list(left)
    for verdict in left.values():
        listener.add(verdict)


def leaving_out(most: int) -> Callable[[bytes, TableSchema], Any]:
    """A decoder of COPY text to one record batch that leaves out up to `most` rows whose values their columns cannot hold.

    The target has set these rows aside, so they are not compared.
    """
    refused: list[tuple[Texts, RefusedCause]] = []

    def decode(lines: bytes, schema: TableSchema) -> Any:
        batches = decoded_but_refused(lines, schema, decode_copy_text, refused, most)
        if len(batches) == 1:
            return batches[0]
        fields = [pa.field(f"c{i}", arrow_type(value_type(column))) for i, column in enumerate(schema.columns)]
        return pa.concat_batches([pa.RecordBatch.from_pylist([], schema=pa.schema(fields)), *batches])

    return decode


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """What a repair did to a table (`applied`), or would do. `rows` None: nothing, for the `reason`."""

    rows: RepairedRows | None = None
    applied: bool = False
    position: Lsn | None = None
    """Where the target was when the repair was written."""
    reason: str | None = None


class VerificationReport:
    """Listener that reports the progress of one verification to the server."""

    def __init__(self, link: ServerLink, command: Verify, epoch: int, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._command = command
        self._epoch = epoch
        self._position: Lsn | None = None
        self._total: int | None = None
        self._tables: list[VerifiedTable] = []
        self._broken: Problem | None = None

    def start(self, position: Lsn, total: int) -> None:
        self._position, self._total = position, total
        self._send("running", None)

    def add(self, verdict: TableVerdict, repair: TableOutcome | None = None) -> None:
        """As Listener. `repair`: what a repair did to the table, or would."""
        if verdict.code is not None:
            kind = FaultKind(verdict.code) if verdict.code in set(FaultKind) else FaultKind.INTERNAL
            self._broken = problem_of(EngineFault(kind, str(verdict.source), verdict.detail or ""))
            return
        self._tables.append(
            VerifiedTable(
                table=verdict.table,
                equal=verdict.equal,
                position=verdict.position,
                source_rows=verdict.source_rows,
                target_rows=verdict.target_rows,
                set_aside=verdict.set_aside,
                differing=tuple(
                    Difference(key=d.key, kind=_kind(d.kind), columns=d.columns)
                    for d in verdict.differences[:DIFFERENCES]
                ),
                method=verdict.method,
                by_rows_because=verdict.by_rows_because,
                sample=verdict.sample,
                whole_because=verdict.whole_because,
                ranges=verdict.ranges,
                ranges_different=verdict.ranges_different,
                bytes_from_source=verdict.bytes_from_source,
                **_parts_of(repair),
            )
        )
        self._send("running", None)

    def end(self, state: Literal["succeeded", "failed", "cancelled"], problem: Problem | None = None) -> None:
        """Report the end. If a table could not be compared, `succeeded` is reported as `failed` with that table's problem."""
        if state == "succeeded" and self._broken is not None:
            self._send("failed", self._broken)
        else:
            self._send(state, problem)

    def _send(self, state: Literal["running", "succeeded", "failed", "cancelled"], problem: Problem | None) -> None:
        self._link.report(
            Verification(
                subscription=self._command.subscription,
                epoch=self._epoch,
                verification_id=self._command.verification_id,
                state=state,
                position=self._position,
                tables=tuple(self._tables),
                total=self._total,
                seconds=(self._clock.monotonic_ms() - self._began_ms) / 1000,
                problem=problem,
            )
        )


def _parts_of(outcome: TableOutcome | None) -> dict[str, Any]:
    if outcome is None:
        return {}
    rows = outcome.rows
    counts = None if rows is None else RowCounts(inserted=rows.inserted, updated=rows.updated, deleted=rows.deleted)
    counted = {"repaired": counts, "repaired_at": outcome.position} if outcome.applied else {"would_repair": counts}
    return {**counted, "not_repaired": outcome.reason}


def _kind(text: str) -> Literal["missing", "extra", "different"]:
    return "missing" if text == "missing" else "extra" if text == "extra" else "different"
