"""From a sealed batch and the tables' states to what the tasks have to do: which tables, which structures, which ranges."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from engine.model.batch import LogRange, PlacedMessage, RelationSeen, SealedBatch, TablePart
from engine.model.ddl import DdlMessage
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, RelationId, TableId, TableName
from engine.model.position import ZERO, Lsn
from engine.model.schema import TableSchema, still_computed
from engine.model.source import Resolve
from engine.model.subscription import SchemaPolicy
from engine.model.subscription_state import Reason
from engine.model.table_state import Refused, TableStateKind
from engine.platform.fault_policy import policy
from engine.tables.ddl_messages import CertifiedSchema, DdlMessageTracker, Read, Warn, relabelled
from engine.tables.registry import TableEntry, TableRegistry
from engine.tables.schema_change import (
    InPlace,
    RecopyRequired,
    Unchanged,
    Verdict,
    as_of,
    differences,
    filled_unseen,
    held,
    judge,
    newer,
    seen_in_catalog,
    with_fills,
    written_anew,
)
from engine.tables.state import (
    CatchingUp,
    Chunk,
    ChunkPlanned,
    ChunkVoided,
    Copying,
    Hold,
    Live,
    Parked,
    Paused,
    ReadProgress,
    Registered,
    Reloading,
    TableState,
    awaits_approval,
)

_OF_A_TABLE = frozenset({FaultKind.TABLE_STRUCTURE_CHANGED, FaultKind.TABLE_NO_IDENTITY})
Explain = Callable[[TableEntry, TableSchema, TableSchema], str]
"""What the target would do to get from one structure to another, as statements."""
Resolver = Callable[[Collection[bytes]], Resolve]
"""Makes a `Resolve` for these relation records, which looks at the source once for all of them."""
NameOf = Callable[[bytes], TableName]


def _none_read(payload: bytes) -> DdlMessage:
    raise EngineFault(
        FaultKind.LOG_UNREADABLE, "message", f"no reader for DDL messages is set up ({len(payload)} bytes)"
    )


def _not_warned(detail: str) -> None:
    del detail


def _unexplained(entry: TableEntry, old: TableSchema, new: TableSchema) -> str:
    del entry, old, new
    return ""


@dataclass(frozen=True, slots=True)
class RetainedBatch:
    """A planned batch whose ranges are kept for tables that are not ready yet."""

    number: BatchId
    batch: SealedBatch
    schemas: dict[TableId, TableSchema]
    """Structures in force where the batch begins."""
    resolved: dict[TableId, list[TableSchema]]
    """Structures announced in it, one per relation record of the table, in scan order."""
    records: Mapping[RelationId, int]
    """How many relation records of each table it holds, known to us then or not."""


@dataclass(frozen=True, slots=True)
class CatchUpRanges:
    """What came since their snapshots to chunks and partitions that a batch takes in: kept ranges, and one part for each table."""

    ranges: tuple[LogRange, ...]
    relations: tuple[RelationSeen, ...]
    parts: tuple[TablePart, ...]


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch ready to run."""

    number: BatchId
    batch: SealedBatch
    ranges: tuple[LogRange, ...]
    parts: tuple[TablePart, ...]
    restructured: frozenset[TableId]
    resumed: frozenset[TableId] = frozenset()
    parked: dict[TableId, tuple[str, str]] = field(default_factory=dict)
    """Tables that this batch parks: fault code and detail."""
    announced: Mapping[TableId, tuple[TableSchema, ...]] = field(default_factory=dict)
    """Structures of tables that this batch tells of, by records or messages, one after another; first the one before it."""
    learnt: frozenset[TableId] = frozenset()
    """Tables whose last structure comes from the source's catalog, since the log has not told of it."""
    relations: tuple[RelationSeen, ...] = ()
    """All relation records in `ranges`, in scan order."""
    followed: frozenset[TableId] = frozenset()
    """Tables of whose parts only that counts which concerns rows that their unfinished copies hold."""
    chunks: Mapping[TableId, Chunk] = field(default_factory=dict)
    """What this batch adds to unfinished copies, or puts into the place of live tables' partitions."""
    missed: CatchUpRanges | None = None
    """With `chunks`."""
    generations: Mapping[TableId, int] = field(default_factory=dict)
    """Of all tables when it was planned. What it has of a table whose generation has moved on does not count."""

    @property
    def reloads(self) -> Mapping[TableId, Chunk]:
        """Chunks that replace rows of live tables' partitions."""
        return {table: chunk for table, chunk in self.chunks.items() if chunk.partitions is not None}

    @property
    def handover(self) -> frozenset[TableId]:
        """Tables whose copies are complete with it."""
        return frozenset(table for table, chunk in self.chunks.items() if chunk.is_last)

    @property
    def whole(self) -> frozenset[TableId]:
        """Tables whose whole copies it hands over."""
        return frozenset(table for table, chunk in self.chunks.items() if chunk.is_whole)

    def is_outdated(self, entry: TableEntry) -> bool:
        """Whether what the batch has of the table does not count any more: it parked, or its copy was given up, after the planning."""
        return self.generations.get(entry.table, entry.generation) != entry.generation

    def part(self, table: TableId) -> TablePart | None:
        missed = self.missed.parts if self.missed is not None else ()
        return next((part for part in (*self.parts, *missed) if part.table == table), None)

    @property
    def records(self) -> int:
        return sum(r.stop - r.start for r in self.ranges)


@dataclass(frozen=True, slots=True)
class CatalogSchema:
    """A structure that the source's catalog shows. `before`: the one that was known then, itself, not an equal one.

    `seen_by`: read behind the catalog, so that what it shows was committed before this position. `captured_since`: from there on the
    DDL capture was in force, and the catalog showed `before` there, so that what no message tells was done to storage only.
    """

    table: TableId
    before: TableSchema
    schema: TableSchema
    seen_by: Lsn
    captured_since: Lsn | None = None


@dataclass(frozen=True, slots=True)
class SchemaReading:
    """How the planner reads what the log says of schemas. `unreadable` is called with the detail of a message that cannot be read."""

    resolver: Resolver
    name_of: NameOf
    explain: Explain = _unexplained
    read_message: Read = _none_read
    unreadable: Warn = _not_warned


class Planner:
    """Plans batches one after another. Used by one thread."""

    def __init__(
        self,
        book: TableRegistry,
        reading: SchemaReading,
        first: BatchId,
        schema_policy: SchemaPolicy = SchemaPolicy.APPLY,
    ) -> None:
        self._told = DdlMessageTracker(reading.read_message, reading.unreadable)
        self._explain = reading.explain
        self._policy = schema_policy
        self._learnt: list[CatalogSchema] = []
        self._book = book
        self._resolver = reading.resolver
        self._name_of = reading.name_of
        self._next = first
        self._after = ZERO
        """Where the batch that is being planned begins."""
        self._history: deque[RetainedBatch] = deque()
        self._joined: set[TableId] = set()
        """Tables that a planned batch takes in which is not committed yet: in later batches they count as live."""
        self.oldest_kept: int | None = None
        """Lowest ordinal that a deferred table still needs, None where nothing is kept. May be read from any thread."""

    @property
    def next_number(self) -> BatchId:
        """Number that the next planned batch gets; changes of a table deferred now are kept from that batch on."""
        return self._next

    def takes_in(self, table: TableId) -> bool:
        """Whether a planned batch applies what was kept for the table. Between two plannings only."""
        return table in self._joined

    def leave(self, table: TableId) -> bool:
        """From the next batch on the table's changes are kept instead of applied. True where a batch that takes it in is planned."""
        joined = table in self._joined
        self._joined.discard(table)
        return joined

    def anchor(self, anchors: Iterable[CertifiedSchema]) -> None:
        """The source's catalog shows these structures while its DDL capture is in force. Between two plannings only."""
        self._told.anchor(anchors)

    def learn(self, learnt: CatalogSchema) -> None:
        """The source's catalog showed another structure than the log had told of by then. Between two plannings only."""
        self._learnt.append(learnt)

    def plan(self, batch: SealedBatch) -> PlannedBatch:
        """Plan the next batch. Relation records of our tables become structure versions; what cannot be followed parks."""
        number = self._next
        entries = self._book.all()
        schemas = {e.table: e.schema for e in entries if e.schema is not None}
        generations = {e.table: e.generation for e in entries}
        parked: dict[TableId, tuple[str, str]] = {}
        self._after = batch.after
        resolved, chains = self._resolve_all(batch, parked)
        told = {t: chain[-1] for t, chain in chains.items() if chain[-1].told_at is not None and t not in parked}
        learnt = self._take_learnt(batch.end, chains, parked)
        # A table that somebody parked in the meantime was not looked at to the end, and has no part.
        entries = self._book.all()
        self._prune(entries)
        self._joined &= {e.table for e in entries if isinstance(e.state, CatchingUp | Paused)}
        current = RetainedBatch(number, batch, schemas, resolved, Counter(seen.relation for seen in batch.relations))
        rest = [e for e in entries if e.table not in parked and e.table not in self._joined]
        resuming = [
            (e, e.state) for e in rest if isinstance(e.state, Paused) and e.state.resuming and e.schema is not None
        ]
        span = [*self._span([state.applied for _, state in resuming]), current]
        live = [e for e in entries if e.table not in parked and (isinstance(e.state, Live) or e.table in self._joined)]
        followed = frozenset(e.table for e in rest if e.copy is not None and e.copy.followed)
        live += [e for e in rest if e.table in followed]
        restructured = {t for t in chains if _is_followed(schemas.get(t), chains[t])} | learnt.keys()
        for table in restructured & (followed | {e.table for e in entries if e.reload is not None}):
            self._book.apply(table, ChunkVoided())
        parts = [self._part(e, span, batch.after, learnt.get(e.table, told.get(e.table))) for e in live]
        parts += [self._part(e, span, state.applied, (self._book.get(e.table) or e).schema) for e, state in resuming]
        resumed = frozenset(e.table for e, _ in resuming)
        chunks, missed = self._take_chunks(current, {e.table for e in rest}, parked)
        self._next = BatchId(number + 1)
        if any(e.keeps_from is not None for e in self._book.all()) and (batch.ranges or batch.relations):
            last = self._history[-1] if self._history else None
            if last is not None and last.schemas == schemas:
                current = replace(current, schemas=last.schemas)
            self._history.append(current)
            self.oldest_kept = _lowest([current], self.oldest_kept)
        planned = PlannedBatch(
            number=number,
            batch=batch,
            ranges=tuple(r for kept in span for r in kept.batch.ranges),
            relations=tuple(seen for kept in span for seen in kept.batch.relations),
            parts=tuple(part for part in parts if part is not None),
            restructured=frozenset(restructured),
            resumed=resumed,
            parked=parked,
            announced=_announced(schemas, chains, learnt, parked),
            learnt=frozenset(learnt),
            followed=followed,
            chunks=chunks,
            missed=missed,
            generations=generations,
        )
        self._joined |= planned.handover | planned.resumed
        return planned

    def _take_chunks(
        self,
        current: RetainedBatch,
        tables: Collection[TableId],
        parked: dict[TableId, tuple[str, str]],
    ) -> tuple[dict[TableId, Chunk], CatchUpRanges | None]:
        """Chunks that were read and that this batch reaches, and what they have missed.

        A whole copy follows changes of the schema since its snapshot, or its table parks. Any other chunk whose table has another
        schema by now is void.
        """
        taken: dict[TableId, Chunk] = {}
        arriving = [
            (entry, chunk)
            for entry in self._book.all()
            if (chunk := entry.chunk) is not None and entry.table in tables
            if chunk.progress is ReadProgress.READ and chunk.position <= current.batch.end
        ]
        if not arriving:
            return taken, None
        oldest = min(chunk.position for _, chunk in arriving)
        span = [*(kept for kept in self._history if kept.batch.end > oldest), current]
        parts = []
        for entry, chunk in arriving:
            part = (
                _changed_part(entry.table, chunk, span)
                if chunk.is_whole
                else _missed_part(entry.table, chunk.schema, chunk.position, span)
            )
            if isinstance(part, RecopyRequired):
                parked[entry.table] = (FaultKind.TABLE_STRUCTURE_CHANGED.value, part.reason)
                continue
            if part is None or isinstance(self._book.apply(entry.table, ChunkPlanned(chunk.number)), Refused):
                self._book.apply(entry.table, ChunkVoided(chunk.number))
                continue
            if chunk.first:
                self._book.amend(entry.table, schema=part.versions[-1])
            parts.append(part if chunk.partitions is not None else _lifted(entry, part.versions, part.after))
            taken[entry.table] = chunk
        ranges = tuple(r for kept in span for r in kept.batch.ranges)
        relations = tuple(seen for kept in span for seen in kept.batch.relations)
        return taken, CatchUpRanges(ranges, relations, tuple(parts))

    def _resolve_all(
        self, batch: SealedBatch, parked: dict[TableId, tuple[str, str]]
    ) -> tuple[dict[TableId, list[TableSchema]], dict[TableId, list[TableSchema]]]:
        """The structure that each relation record of our tables announces; and these with those that messages tell, in order.

        Every streamed transaction announces all that it touches anew, so a batch may hold the same record thousands of times: one
        that meets its table as the one before left it means the same again.
        """
        resolved: dict[TableId, list[TableSchema]] = {}
        chains: dict[TableId, list[TableSchema]] = {}
        messages = deque(batch.messages)
        look = cache(lambda: self._resolver({seen.payload for seen in batch.relations}))
        known: dict[tuple[bytes, bool], tuple[TableEntry, TableSchema | None]] = {}
        for place, seen in enumerate(batch.relations):
            while messages and messages[0].behind <= place:
                self._take_message(messages.popleft(), chains, parked)
                known.clear()
            before = known.get((seen.payload, seen.void))
            if before is None or self._book.get(before[0].table) is not before[0]:
                entry = self._entry_of(seen)
                if entry is None:
                    continue
                before = known[seen.payload, seen.void] = (entry, self._announced(seen, entry, look, batch.end, parked))
            if before[1] is not None and before[1].relation == seen.relation:
                resolved.setdefault(before[0].table, []).append(before[1])
                if not before[1].void:
                    chains.setdefault(before[0].table, []).append(before[1])
        for message in messages:
            self._take_message(message, chains, parked)
        return resolved, chains

    def _is_structured(self, entry: TableEntry) -> bool:
        """Whether the target has rows of it, or will have when this batch is written, and their structure is known."""
        match entry.state:
            case Live() | Parked():
                return True
            case Paused(kept_from=number) if number is not None:
                return True  # Else it was paused before its first copy.
            case _:
                return (entry.copy is not None and entry.copy.followed) or entry.table in self._joined

    def _is_followed_on(self, entry: TableEntry) -> bool:
        """Whether its structure moves on with the log."""
        return self._is_structured(entry) and not _is_given_up(entry.state)

    def _take_message(
        self,
        placed: PlacedMessage,
        chains: dict[TableId, list[TableSchema]],
        parked: dict[TableId, tuple[str, str]],
    ) -> None:
        """What the source itself tells of its DDL holds from that place on, for tables whose structure is known."""
        taken = self._told.take(placed)
        if taken is None:
            return
        told, values = taken
        one = self._book.by_relation(told.table.relation) if told.table is not None else None
        for entry in self._book.all() if told.types else [one] if one is not None else []:
            before = entry.schema
            if before is None or not self._is_followed_on(entry):
                continue
            try:
                schema = relabelled(before, told) if told.table is None else told.table.schema(entry.spec)
                schema = replace(schema, computed=still_computed(before.computed, schema.columns))
            except EngineFault as fault:
                parked.setdefault(entry.table, (fault.kind.value, fault.detail))
                continue
            verdict = written_anew(before, schema, values=values)
            after = self._judged(entry, replace(with_fills(before, schema), told_at=placed.end), parked, verdict)
            if after is not None and told.table is not None and entry.table not in parked:
                self._told.anchor([CertifiedSchema(after, told.table.mark, placed.end)])
            if after is not None and after is not before and entry.table not in parked:
                chains.setdefault(entry.table, []).append(after)

    def _announced(
        self,
        seen: RelationSeen,
        entry: TableEntry,
        look: Callable[[], Resolve],
        end: Lsn,
        parked: dict[TableId, tuple[str, str]],
    ) -> TableSchema | None:
        """The structure to count for one record; where nobody will use it, any: a scan over the batch meets the record all the same."""
        if _is_given_up(entry.state):
            return entry.schema
        if seen.void:
            return self._void(seen, entry, look)
        judged = self._is_structured(entry)
        try:
            known = entry.schema if judged else None
            capture = self._told.vouches(seen, known)
            schema = look()(seen.payload, entry.spec, known, capture)
            if known is not None and capture is not None:
                schema = with_fills(known, schema)
        except EngineFault as fault:
            if fault.kind not in _OF_A_TABLE:
                raise
            if not judged and _is_dropped(entry.state, end):
                return entry.schema
            parked.setdefault(entry.table, (fault.kind.value, fault.detail))
            return entry.schema
        return self._judged(entry, schema, parked) if judged else self._amended(entry, schema)

    def _void(self, seen: RelationSeen, entry: TableEntry, look: Callable[[], Resolve]) -> TableSchema | None:
        """The structure to count for a record whose subtransaction was rolled back: never another one than before.

        Rows that count may follow the record where it announces the structure that is known: the source sends it once. Where it announces
        another one, a change of structure was rolled back with it, and rows that count have a record of their own, or it was announced
        for the rest of its transaction as well; then no row is read by a structure that may be wrong, and the table is copied.
        """
        known = entry.schema
        try:
            schema = look()(seen.payload, entry.spec, known, self._told.vouches(seen, known))
        except EngineFault as fault:
            if fault.kind not in _OF_A_TABLE:
                raise
            return None if known is None else replace(known, void=True)
        if known is None:
            return replace(schema, void=True)
        return known if isinstance(judge(known, schema), Unchanged) else replace(known, void=True)

    def _judged(
        self,
        entry: TableEntry,
        schema: TableSchema,
        parked: dict[TableId, tuple[str, str]],
        verdict: Verdict | None = None,
    ) -> TableSchema | None:
        """The structure that counts from here on, where the table may follow to `schema`. `verdict`: where more is known than both."""
        verdict = verdict or _verdict(entry.schema, schema)
        if isinstance(verdict, RecopyRequired):
            parked.setdefault(entry.table, (FaultKind.TABLE_STRUCTURE_CHANGED.value, verdict.reason))
            return entry.schema
        if entry.copy is not None and entry.copy.followed and entry.table not in self._joined:
            return self._amended(entry, schema)  # No query can read its copy yet.
        base = entry.kept or entry.schema
        # Nobody is asked for what comes before the copy's rows can be read.
        seen = not isinstance(entry.state, CatchingUp)
        if base is not None and self._policy is SchemaPolicy.ASK and isinstance(verdict, InPlace) and seen:
            self._hold(entry, base, schema, parked)
        if base is not None and self._policy is SchemaPolicy.IGNORE and (isinstance(verdict, InPlace) or entry.kept):
            self._book.keep_structure(entry.table, held(base, schema))
        return self._amended(entry, schema)

    def _hold(
        self, entry: TableEntry, base: TableSchema, schema: TableSchema, parked: dict[TableId, tuple[str, str]]
    ) -> None:
        """Keep the table's changes from this batch on, until somebody has seen what the target is to do."""
        detail = (
            f"{'; '.join(differences(base, schema))}. On the target: {self._explain(entry, base.whole, schema.whole)}"
        )
        code = FaultKind.SCHEMA_CHANGE_WAITING
        reason = Reason(code.value, detail, policy(code).remedy)
        hold = Hold(reason, base, self._next, self._after, taken_in=self.leave(entry.table))
        self._book.apply(entry.table, hold, self._after)
        parked.setdefault(entry.table, (code.value, detail))

    def _amended(self, entry: TableEntry, schema: TableSchema) -> TableSchema | None:
        if schema == entry.schema:
            return entry.schema
        self._book.amend(entry.table, schema=schema)
        return schema

    def _take_learnt(
        self, end: Lsn, announced: Container[TableId], parked: dict[TableId, tuple[str, str]]
    ) -> dict[TableId, TableSchema]:
        """What the catalog told holds at the end of the first batch behind that look. The log's own word, later or not, is better."""
        taken: dict[TableId, TableSchema] = {}
        due = [learnt for learnt in self._learnt if learnt.seen_by <= end]
        self._learnt = [learnt for learnt in self._learnt if learnt.seen_by > end]
        for learnt in due:
            entry = self._book.get(learnt.table)
            if entry is None or entry.schema is not learnt.before:
                continue
            if not isinstance(entry.state, Live) and (entry.copy is None or not entry.copy.followed):
                continue
            if learnt.table not in announced and learnt.table not in parked:
                new = learnt.schema if learnt.captured_since is None else with_fills(learnt.before, learnt.schema)
                schema = self._judged(entry, new, parked, self._seen_in_catalog(learnt))
                if schema is not None and learnt.table not in parked:
                    taken[learnt.table] = schema
        return taken

    def _seen_in_catalog(self, learnt: CatalogSchema) -> Verdict:
        """Where the DDL capture was in force all the time, no column was touched without a word of it."""
        since, relation = learnt.captured_since, learnt.before.relation
        if since is not None and not self._told.doubted_since(relation, since):
            return written_anew(learnt.before, learnt.schema, values=False)
        return seen_in_catalog(learnt.before, learnt.schema)

    def _entry_of(self, seen: RelationSeen) -> TableEntry | None:
        entry = self._book.by_relation(seen.relation) or self._book.by_name(self._name_of(seen.payload))
        if entry is None or entry.kind is TableStateKind.REMOVED:
            return None
        return entry

    def _span(self, applied: list[Lsn]) -> list[RetainedBatch]:
        """The kept batches that hold changes of waiting tables, which hold those up to these positions."""
        if not applied:
            return []
        oldest = min(applied)
        return [kept for kept in self._history if kept.batch.end > oldest]

    def _part(
        self, entry: TableEntry, span: list[RetainedBatch], after: Lsn, learnt: TableSchema | None = None
    ) -> TablePart | None:
        """One table's part of a task over the batches of `span`. `learnt`: its structure behind them, of which no record may tell."""
        table = entry.table
        now = self._book.get(table) or entry
        late = [kept for kept in span if kept.batch.end > after]
        start = next((kept.schemas[table] for kept in late if table in kept.schemas), None)
        if start is None:
            announced = (schema for kept in late for schema in kept.resolved.get(table, ()))
            start = next(announced, entry.schema)
        if start is None:
            return None
        versions = _in_force([start, *_chain(table, span, after, start)])[1:]
        for last in (learnt, now.kept):
            if last is not None and last != (versions[-1] if versions else start):
                versions.append(last)
        return _lifted(entry, (start, *versions), after)

    def _prune(self, entries: list[TableEntry]) -> None:
        oldest = min((number for e in entries if (number := e.keeps_from) is not None), default=None)
        pruned = False
        while self._history and (oldest is None or self._history[0].number < oldest):
            self._history.popleft()
            pruned = True
        if pruned:
            self.oldest_kept = _lowest(self._history, None)


def _is_given_up(state: TableState) -> bool:
    """Whether it is parked, and nothing that comes for it is kept."""
    return isinstance(state, Parked) and not awaits_approval(state)


def _is_dropped(state: TableState, end: Lsn) -> bool:
    """Whether what comes of the table up to there is dropped: a copy is to be made, or was read after it."""
    if not isinstance(state, Registered | Copying | Reloading):
        return False
    return state.copy is None or end <= state.copy.position


def _lifted(entry: TableEntry, versions: tuple[TableSchema, ...], after: Lsn) -> TablePart:
    """The part of a table whose rows become those of the last version, with columns that no log carries."""
    whole = versions[-1].whole
    computed = whole is not versions[-1]
    return TablePart(
        entry.table, (*versions, whole) if computed else versions, after, whole=bool(entry.spec.key) or computed
    )


def _chain(table: TableId, span: Sequence[RetainedBatch], after: Lsn, start: TableSchema) -> list[TableSchema]:
    """The structures of the records that a scan over `span` meets of the table, in order. No row up to `after` counts: for those it is
    `start`, whatever the table was before, and records of another one that had its place are not met at all."""
    found: list[TableSchema] = []
    for kept in span:
        if kept.batch.end > after:
            found += (schema for schema in kept.resolved.get(table, ()) if schema.relation == start.relation)
        else:
            # Not all of them were resolved: the table may not have been ours then, or nothing may have been known of it.
            found += [start] * kept.records.get(start.relation, 0)
    return found


def _in_force(versions: Sequence[TableSchema]) -> list[TableSchema]:
    """The same, each that stands for a rolled-back one in the form of the one before it; the last is the one that holds behind them."""
    found: list[TableSchema] = []
    real: TableSchema | None = None
    for version in versions:
        if not version.void:
            real = version
        found.append(version if real is None or not version.void else replace(real, void=True))
    if found and found[-1].void and real is not None:
        found.append(replace(real, void=False))
    return found


def _changed_part(table: TableId, copied: Chunk, span: Sequence[RetainedBatch]) -> TablePart | RecopyRequired:
    """What came to a table since its whole copy, changes of the schema included.

    Schemas announced before the copy's position count as the copy's own: none of their changes is applied.
    """
    versions = [copied.schema]
    for schema in _chain(table, span, copied.position, copied.schema):
        versions.append(as_of(versions[-1], schema) if schema.inferred else schema)
    versions = _in_force(versions)
    if newer(copied.schema, versions[-1]):
        versions.append(copied.schema)
    unseen = filled_unseen(copied.schema, versions[-1])
    if unseen is not None:
        return RecopyRequired(f"column {unseen} was added with values that the log does not carry")
    verdict = judge(copied.schema, versions[-1])
    return verdict if isinstance(verdict, RecopyRequired) else TablePart(table, tuple(versions), copied.position)


def _missed_part(table: TableId, schema: TableSchema, after: Lsn, span: Sequence[RetainedBatch]) -> TablePart | None:
    """What came to a table of this structure behind `after`; None where it has another one by now."""
    versions = _in_force([schema, *_chain(table, span, after, schema)])
    if not all(isinstance(judge(schema, version), Unchanged) for version in versions):
        return None
    return TablePart(table, tuple(versions), after)


def _announced(
    schemas: Mapping[TableId, TableSchema],
    chains: Mapping[TableId, Sequence[TableSchema]],
    learnt: Mapping[TableId, TableSchema],
    parked: Container[TableId],
) -> dict[TableId, tuple[TableSchema, ...]]:
    found = {}
    for table in [*chains, *(t for t in learnt if t not in chains)]:
        chain = [schemas[table]] if table in schemas else []
        for schema in [*chains.get(table, ()), *([learnt[table]] if table in learnt else [])]:
            if not chain or chain[-1] is not schema:
                chain.append(schema)
        if len(chain) > 1 and table not in parked:
            found[table] = tuple(chain)
    return found


def _is_followed(known: TableSchema | None, announced: Sequence[TableSchema]) -> bool:
    different = {id(schema): schema for schema in announced}
    return any(isinstance(_verdict(known, schema), InPlace) for schema in different.values())


def _verdict(known: TableSchema | None, new: TableSchema) -> Verdict | None:
    return None if known is None else judge(known, new)


def _lowest(kept: Iterable[RetainedBatch], floor: int | None) -> int | None:
    starts = [int(r.start) for each in kept for r in each.batch.ranges]
    return min(starts if floor is None else [*starts, floor], default=None)
