"""Before streaming: what must hold so that nothing is skipped in silence (gap check), and how a first start is made.

Nothing here skips a gap by itself; where one is found, the subscription fails with `log_gap` and a reload is the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, TableId, TableName
from engine.model.position import Lsn
from engine.model.schema import KeyMode
from engine.model.source import Earlier, ReaderStatus, Severity, Source, SourceIdentity
from engine.model.subscription import SubscriptionSpec, TableSpec
from engine.model.subscription_state import Reason
from engine.model.target import LogStart, TableRecord, Target, TargetProgress
from engine.platform.failpoints import Failpoint, hit
from engine.platform.fault_policy import policy
from engine.tables.registry import TableEntry
from engine.tables.state import AwaitApproval, Copy, Live, Parked, Paused, Registered, Reloading

NOT_FOLLOWED = frozenset({FaultKind.TABLE_NO_IDENTITY, FaultKind.TABLE_NOT_LOGGED})
"""Why a table that is there is not described."""


@dataclass(frozen=True, slots=True)
class StartPoint:
    """Where replication goes on: `progress` is the target's record, claimed for this epoch."""

    identity: SourceIdentity
    progress: TargetProgress
    fresh: bool
    """True where the slot was made just now: nothing of this subscription is on the target yet."""
    resumable: frozenset[TableId] = frozenset()
    """Tables whose unfinished copies go on: they were published all the while."""


def start_point(spec: SubscriptionSpec, source: Source, target: Target) -> StartPoint:
    """Check the source, claim the target, make the slot on a first start, and look for gaps on every other.

    Raises EngineFault: what the preflight found, LOG_GAP, PUBLICATION_CHANGED, TARGET_FOREIGN, EPOCH_LOST, and what source and target
    raise.
    """
    identity = source.identify()
    progress = target.progress(spec.name)
    if progress is not None and progress.reader == spec.reader:
        check_gap(spec, source, identity, progress)
    else:
        refuse_errors(spec, source)
    fresh = progress is None or progress.reader != spec.reader
    resumable = frozenset[TableId]() if progress is None or fresh else _resumable(spec, source, progress)
    if progress is not None and fresh:
        # A subscription of this name was deleted while its target could not be told; its tables may be taken up again.
        target.forget(spec.name)
    if fresh or progress is None:
        start = _make_reader(spec, source)
    else:
        known = [record.schema.relation for _, record in _complete(spec, progress)]
        known += [progress.copies[table].schema.relation for table in resumable]
        source.sent_tables.prepare(
            spec.tables, spec.reader, known, Earlier.OURS if progress.sent_tables else Earlier.UNMARKED
        )
        start = progress.end
    log = LogStart(identity.system_id, identity.timeline, spec.reader, start, _sent_tables(spec, source))
    target.claim(spec.name, spec.epoch, log)
    claimed = target.progress(spec.name)
    if claimed is None:
        raise EngineFault(FaultKind.INTERNAL, str(spec.name), "the target holds no progress record after the claim")
    return StartPoint(identity, claimed, fresh, resumable)


def reset_point(spec: SubscriptionSpec, source: Source, target: Target) -> StartPoint:
    """Begin again from the source's present: a new slot, every table to be copied, old rows readable until each swap."""
    refuse_errors(spec, source)
    identity = source.identify()
    start = _make_reader(spec, source)
    log = LogStart(identity.system_id, identity.timeline, spec.reader, start, _sent_tables(spec, source))
    target.rebase(spec.name, spec.epoch, log)
    progress = target.progress(spec.name)
    if progress is None:
        raise EngineFault(FaultKind.INTERNAL, str(spec.name), "the target holds no progress record after the claim")
    return StartPoint(identity, progress, fresh=True)


def refuse_errors(spec: SubscriptionSpec, source: Source) -> None:
    """Raise the first preflight finding that concerns the source as a whole; a single table's trouble only parks that table."""
    for finding in source.preflight((), spec.reader, spec.origin):
        if finding.severity is Severity.ERROR:
            kind = FaultKind(finding.code) if finding.code in set(FaultKind) else FaultKind.SOURCE_PRIVILEGE
            raise EngineFault(kind, spec.source.name, finding.what)


def why_not_described(source: Source, table: TableSpec) -> EngineFault:
    """Why the source's description leaves a table out: it is missing, or its changes cannot be followed as it is declared."""
    for finding in source.preflight((table,), None):
        if finding.severity is Severity.ERROR and finding.code in NOT_FOLLOWED:
            return EngineFault(FaultKind(finding.code), str(table.source), f"{finding.what}. {finding.remedy}")
    detail = f"{table.source} is not on the source, or the user may not see it"
    return EngineFault(FaultKind.TABLE_MISSING, str(table.source), detail)


def known_marks(tables: Iterable[TableSpec], progress: TargetProgress) -> dict[TableName, str]:
    """What the source showed below these tables when they were last looked at, for those whose rows are complete."""
    records = [(table.source, progress.tables.get(table.table)) for table in tables]
    return {
        name: r.mark for name, r in records if r is not None and r.ready and r.parked is None and r.mark is not None
    }


def check_gap(spec: SubscriptionSpec, source: Source, identity: SourceIdentity, progress: TargetProgress) -> None:
    """What must hold of the source before streaming resumes; that the slot is not ahead of us is checked with the queue."""
    reason = _identity_gap(identity, progress) or _reader_gap(source.reader.status(spec.reader))
    if reason is None:
        changed = _sending_gap(spec, source, progress)
        if changed is not None:
            raise EngineFault(FaultKind.PUBLICATION_CHANGED, spec.reader, changed)
    if reason is None and source.log.current() < progress.end:
        reason = f"the source's log ends before {progress.end}, up to where the target already is: it was set back"
    if reason is not None:
        raise EngineFault(FaultKind.LOG_GAP, spec.reader, reason)


def _identity_gap(identity: SourceIdentity, progress: TargetProgress) -> str | None:
    if identity.system_id != progress.system_id:
        return "this is another database cluster than the one that was copied (system identifier differs)"
    if identity.timeline != progress.timeline:
        return f"the source is on timeline {identity.timeline}, the copy is of timeline {progress.timeline}: failover or restore"
    return None


def _reader_gap(status: ReaderStatus) -> str | None:
    return status.lost if status.exists else "the replication slot is gone"


def _sending_gap(spec: SubscriptionSpec, source: Source, progress: TargetProgress) -> str | None:
    """Whether every complete table is still published as it was, by the same publications: what changed while it was not is nowhere to
    be had. What was changed and put back, `prepare` finds."""
    if progress.sent_tables and source.sent_tables.recorded(spec.reader) != progress.sent_tables:
        return "the publications were dropped, and maybe created again under their names"
    described = source.describe(spec.tables)
    followed = []
    for table, record in _complete(spec, progress):
        now = described.get(table.source)
        if now is not None and now.relation == record.schema.relation:
            followed.append(replace(table, insert_only=record.schema.mode is KeyMode.APPEND))
    missing = source.sent_tables.unpublished(
        followed, spec.reader, {name: now.relation for name, now in described.items()}
    )
    return "; ".join(missing) or None


def _complete(spec: SubscriptionSpec, progress: TargetProgress) -> list[tuple[TableSpec, TableRecord]]:
    """Tables that go on where the target has them: each change of them since must have been published."""
    records = [(table, progress.tables.get(table.table)) for table in spec.tables]
    return [(table, r) for table, r in records if r is not None and r.ready and r.parked is None]


def _resumable(spec: SubscriptionSpec, source: Source, progress: TargetProgress) -> frozenset[TableId]:
    """Tables with a copy to go on with whose publications still are as they should be. Before those are brought up to date."""
    tables = [table for table in spec.tables if table.table in progress.copies and not table.key]
    described = source.describe(tables) if tables else {}
    relations = {name: now.relation for name, now in described.items()}
    found = set()
    for table in tables:
        now, copy = described.get(table.source), progress.copies[table.table]
        same = now is not None and now.relation == copy.schema.relation
        if same and not source.sent_tables.unpublished([table], spec.reader, relations):
            found.add(table.table)
    return frozenset(found)


def _sent_tables(spec: SubscriptionSpec, source: Source) -> str:
    """As the target records them. Read after `prepare`: where others were made since, those bear no mark of ours, and any look finds it."""
    found = source.sent_tables.recorded(spec.reader)
    if found is None:
        raise EngineFault(FaultKind.PUBLICATION_CHANGED, spec.reader, "the publications were dropped")
    return found


def _make_reader(spec: SubscriptionSpec, source: Source) -> Lsn:
    """A new slot and its publications; what an interrupted first start left under this name holds nothing and is replaced.

    Raises EngineFault(SLOT_IN_USE) where somebody reads the slot there is; neither it nor its publications are touched then.
    """
    left = source.reader.remove(spec.reader) if source.reader.status(spec.reader).exists else []
    if left:
        raise EngineFault(FaultKind.SLOT_IN_USE, spec.reader, "; ".join(left))
    source.sent_tables.prepare(spec.tables, spec.reader, earlier=Earlier.ANY)
    with source.reader.create(spec.reader) as snapshot:
        position = snapshot.position
    hit(Failpoint.SLOT_CREATED)
    return position


def entry_at_start(spec: TableSpec, point: StartPoint) -> TableEntry:
    """A table as the target's record at the start of a run has it."""
    progress = point.progress
    record = progress.tables.get(spec.table)
    standing = progress.copies.get(spec.table)
    if standing is not None and spec.table in point.resumable and (record is None or record.parked is None):
        schema = standing.schema.logged
        copy = Copy(schema, followed=True)
        return TableEntry(spec, Registered(copy) if record is None else Reloading(copy=copy), schema)
    if record is None:
        return TableEntry(spec, Paused() if spec.paused else Registered())
    schema, first = record.schema.logged, BatchId(progress.batch + 1)
    if record.parked is not None:
        kind = FaultKind(record.parked)
        reason = Reason(record.parked, "parked before the last start", policy(kind).remedy, known=False)
        # What was kept while it waited was lost with the process that kept it.
        then = AwaitApproval(record.applied) if kind is FaultKind.SCHEMA_CHANGE_WAITING else None
        return TableEntry(spec, Parked(reason, then), schema)
    if not record.ready:
        # Changes kept for it were lost with the process that kept them: only a new copy makes it whole.
        return TableEntry(spec, Paused() if spec.paused else Reloading())
    return TableEntry(spec, Paused(progress.end, first) if spec.paused else Live(progress.end), schema)
