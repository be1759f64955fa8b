"""A verification with repair: it compares tables at a cut, writes the source's rows in place of those that differ at a second cut, and
compares the repaired tables at a third one.

The rows are read under the snapshot of the second cut, and written in a target transaction of their own between the batch that ends there
and the next batch, in the thread that commits batches. At that position the target has exactly the source's changes up to the snapshot,
whichever way the batch was written, so that neither its ledger nor its apply mode matters; the position is reported as applied only after
the repair, and the transaction leaves the progress record as it is. A kill leaves all of the repair or nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from engine.control.verification import Comparing, Cuts, TableOutcome, VerificationReport, verify_at_cuts
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId
from engine.model.position import Lsn
from engine.model.quarantine import Texts
from engine.model.repair import MOST_BYTES, MOST_REPAIRED, RepairResult, TableRepair
from engine.model.schema import TableSchema
from engine.model.source import ExportedSnapshot, Source
from engine.model.subscription import TableSpec
from engine.net import decode_copy_text
from engine.targets.quarantined_rows import texts_of, typed
from engine.verify.compare import VerifyLimits
from engine.verify.repairable import why_not, would_write
from engine.verify.verdict import TableVerdict

CUTS = 5
"""Most cuts of one repair: a table that was truncated after a cut's snapshot cannot be read in it any more."""
_DECODED_BYTES = 4 * 1024 * 1024
"""Bytes of COPY text that are decoded at once. Not measured."""

Read = TypeVar("Read")
Written = TypeVar("Written")


class RepairCuts(Cuts, Protocol):
    """See `pipeline.cuts`."""

    def write_at_cut(self, read: Callable[[ExportedSnapshot], Read], write: Callable[[Read, Lsn], Written]) -> Written:
        """Write to the target, when it is at the position of a source snapshot, what `read` returns of the snapshot."""
        ...

    def write_repair(self, verification: str, tables: Sequence[TableRepair], position: Lsn) -> RepairResult:
        """As RepairTarget.repair, to be called in `write`. Reports what was repaired as events."""
        ...


@dataclass(frozen=True, slots=True)
class _Rows:
    """What was read of the source: rows by table; the tables that could not be read, with the reason, if another cut is of no use."""

    repairs: Sequence[TableRepair]
    left: Mapping[TableId, str]


class TableRepairs:
    """The comparisons and repairs of one verification. Used by one thread."""

    def __init__(
        self,
        cuts: RepairCuts,
        source: Source,
        specs: Mapping[TableId, TableSpec],
        report: VerificationReport,
        cancelled: threading.Event,
        how: Comparing,
    ) -> None:
        """Arguments as of `verify_at_cuts`."""
        self._cuts = cuts
        self._source = source
        self._specs = specs
        self._report = report
        self._cancelled = cancelled
        self._how = replace(how, limits=replace(how.limits or VerifyLimits(), differences=MOST_REPAIRED + 1))
        self._waiting: dict[TableId, TableVerdict] = {}
        """Verdicts of tables that are to be repaired."""
        self._schemas: dict[TableId, TableSchema] = {}
        """Their columns on the target when they were compared."""
        self._apply = False

    def run(self, verification: str, wanted: Sequence[TableId] | None, *, apply: bool) -> None:
        """Compare the tables, and repair them if `apply`, else report what a repair would write. Raises as `verify_at_cuts`."""
        self._apply = apply
        self._compare(wanted, self)
        if not self._waiting or self._cancelled.is_set():
            for verdict in self._waiting.values():
                self._report.add(verdict)
            return
        try:
            outcomes = self._repair(verification)
        except EngineFault:
            for verdict in self._waiting.values():
                self._report.add(verdict)
            raise
        listener = _Repaired(self._report, self._waiting, outcomes)
        for table, outcome in outcomes.items():
            if outcome.rows is None:
                self._report.add(self._waiting[table], outcome)
        try:
            if listener.expected:
                self._compare(list(listener.expected), listener)
        finally:
            listener.end()

    def start(self, position: Lsn, total: int) -> None:
        """As Listener."""
        self._report.start(position, total)

    def add(self, verdict: TableVerdict) -> None:
        """As Listener. Holds back the verdict of a table that is to be repaired."""
        if verdict.equal or verdict.code is not None:
            self._report.add(verdict)
            return
        reason = why_not(self._specs[verdict.table], verdict)
        if reason is not None:
            self._report.add(verdict, TableOutcome(applied=self._apply, reason=reason))
        elif self._apply and verdict.compared is not None:
            self._waiting[verdict.table], self._schemas[verdict.table] = verdict, verdict.compared.schema
        else:
            self._report.add(verdict, TableOutcome(would_write(verdict)))

    def _compare(self, wanted: Sequence[TableId] | None, listener: TableRepairs | _Repaired) -> None:
        verify_at_cuts(self._cuts, self._source, self._specs, wanted, listener, self._cancelled, self._how)

    def _repair(self, verification: str) -> dict[TableId, TableOutcome]:
        """Repair the tables that wait for it, at as many cuts as are needed. One outcome for each."""
        found: dict[TableId, TableOutcome] = {}
        for _ in range(CUTS):
            todo = [table for table in self._waiting if table not in found]
            if not todo or self._cancelled.is_set():
                break

            try:
                rows, result, position = self._cuts.write_at_cut(
                    partial(self._read, todo), partial(self._write, verification)
                )
            except EngineFault as fault:
                if fault.kind is not FaultKind.SOURCE_TIMEOUT:
                    raise
                found |= {table: TableOutcome(applied=True, reason=fault.detail) for table in todo}
                break
            for table, counts in result.written.items():
                found[table] = TableOutcome(counts, applied=True, position=position)
            for table, reason in {**rows.left, **result.left}.items():
                found[table] = TableOutcome(applied=True, reason=reason)
        left = [table for table in self._waiting if table not in found]
        detail = "the verification was cancelled" if self._cancelled.is_set() else _NEVER_STILL
        return found | {table: TableOutcome(applied=True, reason=detail) for table in left}

    def _write(self, verification: str, rows: _Rows, position: Lsn) -> tuple[_Rows, RepairResult, Lsn]:
        return rows, self._cuts.write_repair(verification, rows.repairs, position), position

    def _read(self, tables: Sequence[TableId], snapshot: ExportedSnapshot) -> _Rows:
        """The rows of the tables with the keys that differed. A table that was truncated or changed after the snapshot is in neither part
        of the result."""
        repairs: list[TableRepair] = []
        left: dict[TableId, str] = {}
        room = MOST_BYTES
        for table in tables:
            try:
                repair, size = self._read_table(table, snapshot, room)
            except EngineFault as fault:
                if fault.kind in _SOURCE_LOST:
                    raise
                if fault.kind is not FaultKind.TABLE_STRUCTURE_CHANGED:
                    left[table] = fault.detail
                continue
            if repair is None:
                left[table] = (
                    f"the rows that differ have more than {MOST_BYTES >> 20} MiB; repair fewer tables at once, or reload it"
                )
                continue
            room -= size
            repairs.append(repair)
        return _Rows(repairs, left)

    def _read_table(self, table: TableId, snapshot: ExportedSnapshot, room: int) -> tuple[TableRepair | None, int]:
        """The table's repair and its bytes of COPY text; None if that is more than `room`."""
        schema, spec = self._schemas[table], self._specs[table]
        keys = list(dict.fromkeys(difference.exact for difference in self._waiting[table].differences))
        wanted = set(keys)
        names = [f"c{[column.name for column in schema.columns].index(name)}" for name in schema.key]
        batches: list[Any] = []
        size = 0
        for text in _pieces(self._source, schema, spec, keys, snapshot):
            batch = decode_copy_text(text, schema)
            rows = pa.Table.from_batches([batch])
            mask = [key in wanted for key in texts_of(rows, names, schema.key_columns)]
            chosen = rows.filter(pa.array(mask, pa.bool_()))
            size += len(text) * chosen.num_rows // max(1, rows.num_rows)
            if size > room:
                return None, size
            batches.append(chosen)
        of_keys = replace(schema, columns=schema.key_columns)
        typed_keys = typed(of_keys, keys, decode_copy_text)
        named = typed_keys.rename_columns([f"k{j}" for j in range(len(schema.key))])
        rows = pa.concat_tables(batches) if batches else pa.Table.from_batches([decode_copy_text(b"", schema)])
        return TableRepair(table, schema, named, rows.combine_chunks()), size


_SOURCE_LOST = frozenset({FaultKind.COPY_LOST, FaultKind.SOURCE_UNREACHABLE, FaultKind.SOURCE_AUTHENTICATION})
_NEVER_STILL = f"the table was truncated, rewritten or changed its columns after the snapshots of {CUTS} cuts; verify again, or reload it"


class _Repaired:
    """Listener of the comparison after a repair."""

    def __init__(
        self,
        report: VerificationReport,
        before: Mapping[TableId, TableVerdict],
        outcomes: Mapping[TableId, TableOutcome],
    ) -> None:
        self._report = report
        self._before = before
        self._outcomes = outcomes
        self.expected = {table for table, outcome in outcomes.items() if outcome.rows is not None}
        """The repaired tables that were not compared again yet."""

    def start(self, position: Lsn, total: int) -> None:
        """As Listener. The verification's position remains that of its first cut."""

    def add(self, verdict: TableVerdict) -> None:
        """As Listener. Of an equal table the differences that were repaired are shown."""
        if verdict.code is not None:
            self._uncompared(verdict.table, verdict.detail or verdict.code)
            return
        self.expected.discard(verdict.table)
        if verdict.equal:
            verdict = replace(verdict, differences=self._before[verdict.table].differences)
        self._report.add(verdict, self._outcomes[verdict.table])

    def end(self) -> None:
        """No more tables are compared."""
        for table in sorted(self.expected):
            self._uncompared(table, "the table is not live any more, or the comparison ended early")

    def _uncompared(self, table: TableId, why: str) -> None:
        """Report the table as it was before its repair: nothing newer is known."""
        self.expected.discard(table)
        reason = f"{why}; the rows were repaired: verify again"
        self._report.add(self._before[table], replace(self._outcomes[table], reason=reason))


def _pieces(
    source: Source, schema: TableSchema, spec: TableSpec, keys: Sequence[Texts], snapshot: ExportedSnapshot
) -> Iterator[bytes]:
    """COPY text of the rows with these keys, and possibly others, in pieces of whole lines."""
    held: list[bytes] = []
    for split in source.copies.key_splits(schema, spec, keys):
        for piece in source.copies.read_split(split, snapshot.name):
            held.append(piece)
            if sum(map(len, held)) >= _DECODED_BYTES:
                yield b"".join(held)
                held = []
    if held:
        yield b"".join(held)
