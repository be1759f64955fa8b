"""A verification: every table compared with its source at a cut, and what was found reported as it comes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

import pyarrow as pa

from engine.control.problem import problem_of
from engine.copy.chunk_task import decoded_but_refused
from engine.link.client import ServerLink
from engine.link.messages import Difference, Problem, Verification, VerifiedTable, Verify
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.position import Lsn
from engine.model.quarantine import RefusedCause, Texts
from engine.model.schema import TableSchema
from engine.model.source import ExportedSnapshot, Source
from engine.model.subscription import TableSpec
from engine.model.target import TableRecord, TargetReader
from engine.model.values import value_type
from engine.net import decode_copy_text
from engine.net.decode import arrow_type
from engine.verify.compare import EarlyRows, VerifyTable, verify_tables, with_shared
from engine.verify.verdict import TableVerdict

CUTS = 5
"""A table truncated or rewritten behind a cut's snapshot cannot be read there any more: it is compared at another, so many in all."""


class Cuts(Protocol):
    """Source and target at one position, and the tables to compare there."""

    def cut(
        self, read_early: Callable[[ExportedSnapshot], None]
    ) -> AbstractContextManager[tuple[ExportedSnapshot, TargetReader]]: ...

    def records(self, tables: Sequence[TableId] | None) -> list[TableRecord]: ...


class Listener(Protocol):
    """Hears of a verification as it goes on."""

    def start(self, position: Lsn, total: int) -> None: ...

    def add(self, verdict: TableVerdict) -> None: ...


def verify_at_cuts(
    cuts: Cuts,
    source: Source,
    specs: Mapping[TableId, TableSpec],
    wanted: Sequence[TableId] | None,
    listener: Listener,
    cancelled: threading.Event,
    *,
    shared_only: bool = False,
) -> None:
    """Compare the tables, all live ones where `wanted` is None; the listener gets one verdict of each.

    `shared_only`: by the columns alone that both sides have, since the target does not follow changes of structure.

    Raises what making a cut raises.
    """
    left: dict[TableId, TableVerdict] = {}
    again: list[VerifyTable] = []
    for number in range(CUTS):
        early = EarlyRows(source, again, decode_copy_text)
        with cuts.cut(early.read) as (snapshot, reader):
            tables = [VerifyTable(specs[r.table], r) for r in cuts.records(wanted) if r.table in specs]
            if shared_only:
                now = source.describe([table.spec for table in tables])
                tables = [with_shared(t, now[t.spec.source]) if t.spec.source in now else t for t in tables]
            if number == 0:
                listener.start(snapshot.position, len(tables))
            for table in tables:
                decode = leaving_out(table.record.set_aside)
                (verdict,) = verify_tables(source, reader, snapshot, [table], decode, cancelled=cancelled, early=early)
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
    """What decodes COPY's text form, without up to so many rows that their columns cannot hold: they stand aside."""
    refused: list[tuple[Texts, RefusedCause]] = []

    def decode(lines: bytes, schema: TableSchema) -> Any:
        batches = decoded_but_refused(lines, schema, decode_copy_text, refused, most)
        if len(batches) == 1:
            return batches[0]
        fields = [pa.field(f"c{i}", arrow_type(value_type(column))) for i, column in enumerate(schema.columns)]
        return pa.concat_batches([pa.RecordBatch.from_pylist([], schema=pa.schema(fields)), *batches])

    return decode


class VerificationReport:
    """Progress of one verification as reports to the server."""

    def __init__(self, link: ServerLink, command: Verify, epoch: int) -> None:
        self._link = link
        self._command = command
        self._epoch = epoch
        self._position: Lsn | None = None
        self._total: int | None = None
        self._tables: list[VerifiedTable] = []
        self._broken: Problem | None = None

    def start(self, position: Lsn, total: int) -> None:
        self._position, self._total = position, total
        self._send("running", None)

    def add(self, verdict: TableVerdict) -> None:
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
                differing=tuple(Difference(key=d.key, kind=_kind(d.kind)) for d in verdict.differences),
            )
        )
        self._send("running", None)

    def end(self, state: Literal["succeeded", "failed", "cancelled"], problem: Problem | None = None) -> None:
        """A table that could not be compared makes the whole verification a failed one: it proves nothing."""
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
                problem=problem,
            )
        )


def _kind(text: str) -> Literal["missing", "extra", "different"]:
    return "missing" if text == "missing" else "extra" if text == "extra" else "different"
