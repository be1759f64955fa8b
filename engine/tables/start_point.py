"""The start of a run: checks that no change is skipped silently (gap check), and prepares source and target on a first start.

A gap is never skipped automatically: the subscription fails with `log_gap`, and the remedy is a reload.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, TableId, TableName
from engine.model.position import Lsn
from engine.model.schema import KeyMode
from engine.model.source import Earlier, ReaderStatus, Severity, Source, SourceIdentity, SourceTerms
from engine.model.subscription import SubscriptionSpec, TableSpec
from engine.model.subscription_state import Reason
from engine.model.target import LogStart, TableRecord, Target, TargetProgress
from engine.platform.failpoints import Failpoint, hit
from engine.platform.fault_policy import policy
from engine.tables.registry import TableEntry
from engine.tables.schema_change import RecopyRequired, seen_in_catalog
from engine.tables.state import AwaitApproval, AwaitSource, Copy, Live, Parked, Paused, Registered, Reloading

NOT_FOLLOWED = frozenset(
    {
        FaultKind.TABLE_NO_IDENTITY,
        FaultKind.TABLE_NOT_LOGGED,
        FaultKind.TABLE_COLUMNS_UNFIT,
        FaultKind.TABLE_NOT_SENT,
        FaultKind.TABLE_NODES_DIFFER,
        FaultKind.CHANGE_TRIGGERS_MISSING,
        FaultKind.CHANGE_TRIGGERS_IN_USE,
        FaultKind.CASCADE_UNCAPTURED,
    }
)
"""Faults because of which `Source.describe` leaves out an existing table."""


@dataclass(frozen=True, slots=True)
class StartPoint:
    """Where replication starts or continues. `progress`: the target's progress record, claimed for this epoch."""

    identity: SourceIdentity
    progress: TargetProgress
    fresh: bool
    """True if the reader was just created: the target contains nothing of this subscription yet, or only tables to be copied again."""
    resumable: frozenset[TableId] = frozenset()
    """Tables whose unfinished copies can be resumed: their changes have been sent all the time."""


def start_point(spec: SubscriptionSpec, source: Source, target: Target) -> StartPoint:
    """Check the source and claim the target. On a first start create the reader; on every other check for a gap.

    Raises EngineFault: the preflight's finding, LOG_GAP, PUBLICATION_CHANGED, TARGET_FOREIGN, EPOCH_LOST, and the faults of source and
    target.
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
        # The record is that of a deleted subscription of this name whose target could not be reached. Its tables may be replicated again.
        target.forget(spec.name)
    if fresh or progress is None:
        start = _make_reader(spec, source)
        identity = source.identify()  # A source may have got one with its reader.
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
    """Start again at the current end of the log: with a new reader, and a copy of every table. Old rows stay readable until their copy is
    handed over. Raises EngineFault as `start_point`, except for a gap."""
    refuse_errors(spec, source)
    start = _make_reader(spec, source)
    identity = source.identify()
    log = LogStart(identity.system_id, identity.timeline, spec.reader, start, _sent_tables(spec, source))
    target.rebase(spec.name, spec.epoch, log)
    progress = target.progress(spec.name)
    if progress is None:
        raise EngineFault(FaultKind.INTERNAL, str(spec.name), "the target holds no progress record after the claim")
    return StartPoint(identity, progress, fresh=True)


def refuse_errors(spec: SubscriptionSpec, source: Source) -> None:
    """Raise the first error of the preflight that concerns the whole source. Errors of a single table only park that table."""
    for finding in source.preflight((), spec.reader, spec.origin):
        if finding.severity is Severity.ERROR:
            kind = FaultKind(finding.code) if finding.code in set(FaultKind) else FaultKind.SOURCE_PRIVILEGE
            raise EngineFault(kind, spec.source.name, finding.what)


def why_not_described(source: Source, table: TableSpec) -> EngineFault:
    """The fault because of which the source's description leaves a table out: it is missing, or its changes cannot be replicated as
    declared."""
    for finding in source.preflight((table,), None):
        if finding.severity is Severity.ERROR and finding.code in NOT_FOLLOWED:
            return EngineFault(FaultKind(finding.code), str(table.source), f"{finding.what}. {finding.remedy}")
    detail = f"{table.source} is not on the source, or the user may not see it"
    return EngineFault(FaultKind.TABLE_MISSING, str(table.source), detail)


def known_marks(tables: Iterable[TableSpec], progress: TargetProgress) -> dict[TableName, str]:
    """Fingerprints of the tables' partitions at the last check, by source name. Only of tables that are complete and not parked."""
    records = [(table.source, progress.tables.get(table.table)) for table in tables]
    return {
        name: r.mark for name, r in records if r is not None and r.ready and r.parked is None and r.mark is not None
    }


def check_gap(spec: SubscriptionSpec, source: Source, identity: SourceIdentity, progress: TargetProgress) -> None:
    """Check that streaming can resume without a gap; raises LOG_GAP or PUBLICATION_CHANGED. That the reader is not ahead of the queue is
    checked when the queue is opened."""
    terms = source.terms
    reason = _identity_gap(terms, identity, progress) or _reader_gap(terms, source.reader.status(spec.reader))
    if reason is None:
        changed = _sending_gap(spec, source, progress)
        if changed is not None:
            raise EngineFault(FaultKind.PUBLICATION_CHANGED, spec.reader, changed)
    if reason is None and source.log.current() < progress.end:
        end = terms.text(progress.end)
        reason = f"the source's log ends before {end}, up to where the target already is: it was set back"
    if reason is not None:
        raise EngineFault(FaultKind.LOG_GAP, spec.reader, reason)


def _identity_gap(terms: SourceTerms, identity: SourceIdentity, progress: TargetProgress) -> str | None:
    if identity.system_id != progress.system_id:
        return f"this is another {terms.database} than the one that was copied (system identifier differs)"
    if identity.timeline != progress.timeline and identity.timelines:
        return _timelines_gap(terms, identity)
    if identity.timeline != progress.timeline:
        now, then = f"{terms.history} {identity.timeline}", f"{terms.history} {progress.timeline}"
        return f"the source is on {now}, the copy is of {then}: failover or restore"
    return None


def _timelines_gap(terms: SourceTerms, identity: SourceIdentity) -> str:
    """That one of several logs is on another timeline than before."""
    now, then = identity.timelines, identity.read_timelines
    changed = [
        f"node {name} is on {terms.history} {now[name]}, the copy is of {terms.history} {then[name]}"
        for name in now
        if name in then and then[name] != now[name]
    ]
    if not changed:
        listed = ", ".join(f"{timeline} ({name})" for name, timeline in now.items())
        changed = [f"the nodes are on {terms.history} {listed}, and the copy is of others"]
    return f"{'; '.join(changed)}: failover or restore"


def _reader_gap(terms: SourceTerms, status: ReaderStatus) -> str | None:
    return status.lost if status.exists else f"the {terms.reader} is gone"


def _sending_gap(spec: SubscriptionSpec, source: Source, progress: TargetProgress) -> str | None:
    """Why changes of a complete table may be missing in the log: it is not sent any more, or what sends it was created again. None if none
    are. A change that was reverted is found by `prepare`."""
    if progress.sent_tables and source.sent_tables.recorded(spec.reader) != progress.sent_tables:
        return f"the {source.terms.sent_tables} were dropped or replaced, and maybe created again under their names"
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
    """Tables that continue with their rows on the target. None of their changes since may be missing in the log."""
    records = [(table, progress.tables.get(table.table)) for table in spec.tables]
    return [(table, r) for table, r in records if r is not None and r.ready and r.parked is None]


def _resumable(spec: SubscriptionSpec, source: Source, progress: TargetProgress) -> frozenset[TableId]:
    """Tables with an unfinished copy that the declared columns do not void, and whose changes are still sent completely.
    To be called before `prepare`, which changes what is sent."""
    if not source.sent_tables.traced:
        return frozenset()
    tables = [table for table in spec.tables if table.table in progress.copies and not table.key]
    described = source.describe(tables) if tables else {}
    relations = {name: now.relation for name, now in described.items()}
    found = set()
    for table in tables:
        now, copy = described.get(table.source), progress.copies[table.table]
        same = now is not None and not isinstance(seen_in_catalog(copy.schema.logged, now), RecopyRequired)
        if same and not source.sent_tables.unpublished([table], spec.reader, relations):
            found.add(table.table)
    return frozenset(found)


def _sent_tables(spec: SubscriptionSpec, source: Source) -> str:
    """Identity of the sent tables, for the target's record. Read after `prepare`: if others were created since, they lack the
    subscription's mark, and the next check reports that. Raises EngineFault(PUBLICATION_CHANGED) if they are missing."""
    found = source.sent_tables.recorded(spec.reader)
    if found is None:
        raise EngineFault(FaultKind.PUBLICATION_CHANGED, spec.reader, f"the {source.terms.sent_tables} were dropped")
    return found


def _make_reader(spec: SubscriptionSpec, source: Source) -> Lsn:
    """Create the reader and the sent tables; returns the reader's position. What an interrupted first start left under this name is
    replaced.

    Raises EngineFault(SLOT_IN_USE) if the existing reader is in use; nothing is changed then.
    """
    left = source.reader.remove(spec.reader) if source.reader.status(spec.reader).exists else []
    if left and source.reader.status(spec.reader).exists:
        raise EngineFault(FaultKind.SLOT_IN_USE, spec.reader, "; ".join(left))
    source.sent_tables.prepare(spec.tables, spec.reader, earlier=Earlier.ANY)
    with source.reader.create(spec.reader) as snapshot:
        position = snapshot.position
    hit(Failpoint.SLOT_CREATED)
    return position


def entry_at_start(spec: TableSpec, point: StartPoint) -> TableEntry:
    """A table's entry at the start of a run, from the target's record."""
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
        # Changes that were retained during the wait were lost with the process that retained them.
        then: AwaitApproval | AwaitSource | None = None
        if kind is FaultKind.SCHEMA_CHANGE_WAITING:
            then = AwaitApproval(record.applied)
        elif kind is FaultKind.TABLE_NOT_READ and record.ready:
            then = AwaitSource(first)
        return TableEntry(spec, Parked(reason, then), schema)
    if not record.ready:
        # Changes retained for it were lost with the process that retained them: only a new copy completes its rows.
        return TableEntry(spec, Paused() if spec.paused else Reloading())
    return TableEntry(spec, Paused(progress.end, first) if spec.paused else Live(progress.end), schema)
