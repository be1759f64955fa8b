"""Plans batches: from a sealed batch and the states of the tables to the tables, schemas and ranges that the tasks work on."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache

from engine.model.batch import LogRange, PlacedMessage, RelationSeen, SealedBatch, TablePart
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, RelationId, TableId
from engine.model.position import ZERO, Lsn
from engine.model.schema import TableSchema, still_computed
from engine.model.source import Resolve
from engine.model.subscription import SchemaPolicy
from engine.model.subscription_state import Reason
from engine.model.table_state import Refused, TableStateKind
from engine.platform.fault_policy import OF_A_STRUCTURE, policy
from engine.records.unread import Unread, unread_in
from engine.tables.ddl_messages import CertifiedSchema, DdlMessageTracker, relabelled
from engine.tables.registry import TableEntries, TableEntry, TableRegistry
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
    judge_rewrite,
    newer,
    seen_in_catalog,
    with_fills,
)
from engine.tables.schema_reading import SchemaReading
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
    Readable,
    ReadProgress,
    Registered,
    Reloading,
    TableState,
    awaits_approval,
    is_unread,
)
from engine.tables.unread_tables import UnreadTables


@dataclass(frozen=True, slots=True)
class RetainedBatch:
    """A planned batch whose ranges are retained for tables that cannot apply them yet."""

    number: BatchId
    batch: SealedBatch
    schemas: dict[TableId, TableSchema]
    """Schemas in force at the beginning of the batch."""
    resolved: dict[TableId, list[TableSchema]]
    """Schemas announced in the batch, one per relation record of the table, in scan order."""
    records: Mapping[RelationId, int]
    """Number of its relation records per relation, including relations that were unknown when it was planned."""


@dataclass(frozen=True, slots=True)
class CatchUpRanges:
    """Changes that the chunks of a batch missed since their snapshots: ranges of retained batches and of the batch, and a part per
    table."""

    ranges: tuple[LogRange, ...]
    relations: tuple[RelationSeen, ...]
    parts: tuple[TablePart, ...]
    captured: int | None = None
    """Number of changes in `ranges`, as SealedBatch.captured."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A planned batch, ready to be executed."""

    number: BatchId
    batch: SealedBatch
    ranges: tuple[LogRange, ...]
    parts: tuple[TablePart, ...]
    restructured: frozenset[TableId]
    resumed: frozenset[TableId] = frozenset()
    parked: dict[TableId, tuple[str, str]] = field(default_factory=dict)
    """Tables that this batch parks: fault code and detail."""
    announced: Mapping[TableId, tuple[TableSchema, ...]] = field(default_factory=dict)
    """Schemas that this batch announces, by relation records or DDL messages, in order. The first one is the schema before the batch."""
    learnt: frozenset[TableId] = frozenset()
    """Tables whose last schema was read from the source's catalog, because the log has not announced it."""
    relations: tuple[RelationSeen, ...] = ()
    """All relation records in `ranges`, in scan order."""
    captured: int | None = None
    """Number of changes in `ranges`, as SealedBatch.captured."""
    followed: frozenset[TableId] = frozenset()
    """Tables with an unfinished copy that batches apply to. Of their parts, only changes of rows that the copy contains are applied."""
    chunks: Mapping[TableId, Chunk] = field(default_factory=dict)
    """Chunks that this batch includes: it adds them to unfinished copies, or replaces partitions of live tables by them."""
    missed: CatchUpRanges | None = None
    """What `chunks` missed; None if there are none."""
    unread: frozenset[TableId] = frozenset()
    """Tables that could not be read any more at the end of the batch: they are parked after their changes in it."""
    generations: Mapping[TableId, int] = field(default_factory=dict)
    """Generation of every table at planning. The part of a table whose generation has changed since is ignored."""

    @property
    def reloads(self) -> Mapping[TableId, Chunk]:
        """Chunks that replace partitions of live tables."""
        return {table: chunk for table, chunk in self.chunks.items() if chunk.partitions is not None}

    @property
    def handover(self) -> frozenset[TableId]:
        """Tables whose copies this batch completes and hands over."""
        return frozenset(table for table, chunk in self.chunks.items() if chunk.is_last)

    @property
    def whole(self) -> frozenset[TableId]:
        """Tables of `handover` whose copy is a single chunk."""
        return frozenset(table for table, chunk in self.chunks.items() if chunk.is_whole)

    def is_outdated(self, entry: TableEntry) -> bool:
        """Whether the batch's part of the table must be ignored: after the planning, the table was parked or its copy was discarded."""
        return self.generations.get(entry.table, entry.generation) != entry.generation

    def part(self, table: TableId) -> TablePart | None:
        """The table's part of the batch or of `missed`; None if it has none."""
        missed = self.missed.parts if self.missed is not None else ()
        return next((part for part in (*self.parts, *missed) if part.table == table), None)

    @property
    def records(self) -> int:
        """Number of log records in `ranges`."""
        return sum(r.stop - r.start for r in self.ranges)


@dataclass(frozen=True, slots=True)
class CatalogSchema:
    """A schema that the source's catalog shows. `before`: the schema known at that time; compared by identity, not by equality.

    `seen_by`: a position read after the catalog, so everything that the catalog showed was committed before it. `captured_since`: since
    this position the DDL capture has been in force, and the catalog showed `before` at it; so a change without a DDL message concerns
    storage only.
    """

    table: TableId
    before: TableSchema
    schema: TableSchema
    seen_by: Lsn
    captured_since: Lsn | None = None


def _captured(span: Iterable[RetainedBatch]) -> int | None:
    counts = [kept.batch.captured for kept in span]
    return None if None in counts else sum(count for count in counts if count is not None)


class Planner:
    """Plans batches in log order. Used by one thread; "between two plannings" means that `plan` must not be running."""

    def __init__(
        self,
        book: TableRegistry,
        reading: SchemaReading,
        first: BatchId,
        schema_policy: SchemaPolicy = SchemaPolicy.APPLY,
    ) -> None:
        self._messages = DdlMessageTracker(reading.read_message, reading.unreadable)
        self._explain = reading.explain
        self._policy = schema_policy
        self._learnt: list[CatalogSchema] = []
        self._book = book
        self._resolver = reading.resolver
        self._name_of = reading.name_of
        self._next = first
        self._after = ZERO
        """End of the batch before the one that is being planned."""
        self._history: deque[RetainedBatch] = deque()
        self._unread = UnreadTables(book)
        self._joined: set[TableId] = set()
        """Tables that a planned batch hands over or resumes and that is not committed yet; in later batches they count as live."""
        self.oldest_kept: int | None = None
        """Lowest ordinal of the queue that is retained for a table; None if nothing is. May be read from any thread."""

    @property
    def next_number(self) -> BatchId:
        """Number of the next batch. If a table is deferred now, its changes are retained from that batch on."""
        return self._next

    def takes_in(self, table: TableId) -> bool:
        """Whether a planned batch applies the changes that were retained for the table. Between two plannings only."""
        return table in self._joined

    def leave(self, table: TableId) -> bool:
        """From the next batch on retain the table's changes instead of applying them. Returns whether a planned batch hands it over or
        resumes it."""
        joined = table in self._joined
        self._joined.discard(table)
        return joined

    def anchor(self, anchors: Iterable[CertifiedSchema]) -> None:
        """Record schemas that the source's catalog confirms while its DDL capture is in force. Between two plannings only."""
        self._messages.anchor(anchors)

    def learn(self, learnt: CatalogSchema) -> None:
        """Record a schema of the source's catalog that the log has not announced. Between two plannings only."""
        self._learnt.append(learnt)

    def plan(self, batch: SealedBatch) -> PlannedBatch:
        """Plan the next batch. Relation records of replicated tables become schema versions; tables that cannot follow a change are
        parked."""
        number = self._next
        entries = self._book.all()
        schemas = {e.table: e.schema for e in entries if e.schema is not None}
        generations = {e.table: e.generation for e in entries}
        parked: dict[TableId, tuple[str, str]] = {}
        self._after = batch.after
        resolved, chains = self._resolve_all(batch, parked)
        by_message = {t: chain[-1] for t, chain in chains.items() if chain[-1].told_at is not None and t not in parked}
        learnt = self._take_learnt(batch.end, chains, parked)
        # A table that another thread parked during the planning is not resolved completely, and gets no part.
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
        parts = [self._part(e, span, batch.after, learnt.get(e.table, by_message.get(e.table))) for e in live]
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
            captured=_captured(span),
            parts=tuple(part for part in parts if part is not None),
            restructured=frozenset(restructured),
            resumed=resumed,
            parked=parked,
            announced=_announced(schemas, chains, learnt, parked),
            learnt=frozenset(learnt),
            followed=followed,
            chunks=chunks,
            missed=missed,
            unread=self._park_unread({part.table for part in parts if part is not None} - followed - parked.keys()),
            generations=generations,
        )
        self._joined |= (planned.handover | planned.resumed) - planned.unread
        return planned

    def _take_chunks(
        self,
        current: RetainedBatch,
        tables: Collection[TableId],
        parked: dict[TableId, tuple[str, str]],
    ) -> tuple[dict[TableId, Chunk], CatchUpRanges | None]:
        """Select the chunks that were read and whose position this batch reaches, and the changes that they missed.

        A whole copy follows schema changes since its snapshot, or its table is parked. Any other chunk is discarded if the table's schema
        has changed since.
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
        return taken, CatchUpRanges(ranges, relations, tuple(parts), _captured(span))

    def _resolve_all(
        self, batch: SealedBatch, parked: dict[TableId, tuple[str, str]]
    ) -> tuple[dict[TableId, list[TableSchema]], dict[TableId, list[TableSchema]]]:
        """Returns by table: the schema of each relation record in scan order; and the schemas of records and DDL messages together, in log
        order.

        Every streamed transaction repeats the relation records of the tables that it changes, so a batch may contain the same record
        thousands of times. A record is not resolved again if its table's entry has not changed since.
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
            if (why := unread_in(seen.payload)) is not None:
                self._take_unread(seen, why, batch.end, resolved, parked)
                continue
            before = known.get((seen.payload, seen.void))
            if before is None or self._book.get(before[0].table) is not before[0]:
                entry = self._entry_of(seen)
                if entry is None:
                    continue
                before = known[seen.payload, seen.void] = (entry, self._announced(seen, entry, look, batch.end, parked))
            self._unread.read(before[0].table)
            if before[1] is not None and before[1].relation == seen.relation:
                resolved.setdefault(before[0].table, []).append(before[1])
                if not before[1].void:
                    chains.setdefault(before[0].table, []).append(before[1])
        for message in messages:
            self._take_message(message, chains, parked)
        return resolved, chains

    def _take_unread(
        self,
        seen: RelationSeen,
        why: Unread,
        end: Lsn,
        resolved: dict[TableId, list[TableSchema]],
        parked: dict[TableId, tuple[str, str]],
    ) -> None:
        """A record in place of a table's structure: the source could not be read of it. Its schema stays; a copy that reaches up to there
        lacks changes."""
        entry = self._entry_of(seen)
        if entry is None:
            return
        if not self._unread.take(entry, why) and not _is_dropped(entry.state, end):
            parked.setdefault(entry.table, (why.kind.value, why.detail))
        if entry.schema is not None and entry.schema.relation == seen.relation:
            resolved.setdefault(entry.table, []).append(entry.schema)

    def _park_unread(self, applied: Set[TableId]) -> frozenset[TableId]:
        """Park the tables among these that could not be read at the end of the batch. It applies to them, and later ones do not."""
        found = self._unread.park(applied, BatchId(self._next))
        self._joined -= found
        return found

    def _is_structured(self, entry: TableEntry) -> bool:
        """Whether the target has rows of the table, or will have them after this batch, and their schema is known."""
        match entry.state:
            case Live() | Parked():
                return True
            case Paused(kept_from=number) if number is not None:
                return True  # Otherwise it was paused before its first copy.
            case _:
                return (entry.copy is not None and entry.copy.followed) or entry.table in self._joined

    def _is_followed_on(self, entry: TableEntry) -> bool:
        """Whether schema changes in the log change the table's schema."""
        return self._is_structured(entry) and not _is_given_up(entry.state)

    def _take_message(
        self,
        placed: PlacedMessage,
        chains: dict[TableId, list[TableSchema]],
        parked: dict[TableId, tuple[str, str]],
    ) -> None:
        """Apply a DDL message: its schema is in force from its place in the log on. Only for tables whose schema is known."""
        taken = self._messages.read_message(placed)
        if taken is None:
            return
        message, values = taken
        one = self._book.all().by_relation(message.table.relation) if message.table is not None else None
        for entry in self._book.all() if message.types else [one] if one is not None else []:
            before = entry.schema
            if before is None or not self._is_followed_on(entry):
                continue
            try:
                schema = relabelled(before, message) if message.table is None else message.table.schema(entry.spec)
                schema = replace(schema, computed=still_computed(before.computed, schema.columns))
            except EngineFault as fault:
                parked.setdefault(entry.table, (fault.kind.value, fault.detail))
                continue
            verdict = judge_rewrite(before, schema, values=values)
            after = self._judged(entry, replace(with_fills(before, schema), told_at=placed.end), parked, verdict)
            if after is not None and message.table is not None and entry.table not in parked:
                self._messages.anchor([CertifiedSchema(after, message.table.mark, placed.end)])
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
        """The schema for one relation record. A scan counts every record, so a table that ignores its rows also gets a schema, whichever it
        is."""
        again = is_unread(entry.state) and not seen.void
        if _is_given_up(entry.state) and not again:
            return entry.schema
        if seen.void:
            return self._void(seen, entry, look)
        judged = self._is_structured(entry)
        try:
            known = entry.schema if judged else None
            capture = self._messages.certified_by(seen, known)
            schema = look()(seen.payload, entry.spec, known, capture)
            if known is not None and capture is not None:
                schema = with_fills(known, schema)
        except EngineFault as fault:
            if fault.kind not in OF_A_STRUCTURE:
                raise
            if not judged and _is_dropped(entry.state, end):
                return entry.schema
            parked.setdefault(entry.table, (fault.kind.value, fault.detail))
            return entry.schema
        after = self._judged(entry, schema, parked) if judged else self._amended(entry, schema)
        if again and entry.table not in parked:
            self._book.apply(entry.table, Readable(self._next, self._after))
        return after

    def _void(self, seen: RelationSeen, entry: TableEntry, look: Callable[[], Resolve]) -> TableSchema | None:
        """The schema for a record whose subtransaction was rolled back. It never changes the table's schema.

        If the record announces the known schema, rows that are applied may follow it, because the source sends each record once. If it
        announces another schema, that schema change was rolled back too. Rows that are applied then have a record of their own, or the
        schema was announced for the rest of the transaction; the placeholder (`void`) prevents such a row from being read by a wrong
        schema, and the table is copied.
        """
        known = entry.schema
        try:
            schema = look()(seen.payload, entry.spec, known, self._messages.certified_by(seen, known))
        except EngineFault as fault:
            if fault.kind not in OF_A_STRUCTURE:
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
        """The schema in force from here on: `schema` if the table can follow; else the old one, and the table is parked. `verdict`:
        replaces the comparison of both schemas if more is known about the change."""
        verdict = verdict or _verdict(entry.schema, schema)
        if isinstance(verdict, RecopyRequired):
            parked.setdefault(entry.table, (FaultKind.TABLE_STRUCTURE_CHANGED.value, verdict.reason))
            return entry.schema
        if entry.copy is not None and entry.copy.followed and entry.table not in self._joined:
            return self._amended(entry, schema)  # Its copy is not readable yet.
        base = entry.kept or entry.schema
        # Schema changes before the copy becomes readable need no approval.
        seen = not isinstance(entry.state, CatchingUp)
        if base is not None and self._policy is SchemaPolicy.ASK and isinstance(verdict, InPlace) and seen:
            self._hold(entry, base, schema, parked)
        if base is not None and self._policy is SchemaPolicy.IGNORE and (isinstance(verdict, InPlace) or entry.kept):
            self._book.amend(entry.table, kept=held(base, schema))
        return self._amended(entry, schema)

    def _hold(
        self, entry: TableEntry, base: TableSchema, schema: TableSchema, parked: dict[TableId, tuple[str, str]]
    ) -> None:
        """Retain the table's changes from this batch on, until the user has approved the change on the target."""
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
        """Apply schemas from the catalog, at the end of the first batch after their check. A schema that the log announces takes
        precedence, even if it is older. Returns those applied, by table."""
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
        """Judge a schema from the catalog. If the DDL capture was in force since `before` was confirmed, no column changed without a
        message."""
        since, relation = learnt.captured_since, learnt.before.relation
        if since is not None and not self._messages.uncertain_since(relation, since):
            return judge_rewrite(learnt.before, learnt.schema, values=False)
        return seen_in_catalog(learnt.before, learnt.schema)

    def _entry_of(self, seen: RelationSeen) -> TableEntry | None:
        entry = self._book.all().by_relation(seen.relation) or self._book.all().by_name(self._name_of(seen.payload))
        if entry is None or entry.kind is TableStateKind.REMOVED:
            return None
        return entry

    def _span(self, applied: list[Lsn]) -> list[RetainedBatch]:
        """The retained batches with changes for waiting tables whose rows are as of these positions."""
        if not applied:
            return []
        oldest = min(applied)
        return [kept for kept in self._history if kept.batch.end > oldest]

    def _part(
        self, entry: TableEntry, span: list[RetainedBatch], after: Lsn, learnt: TableSchema | None = None
    ) -> TablePart | None:
        """One table's part of a task over the batches of `span`; None if no schema is known. `learnt`: its schema after them, which
        possibly no relation record announces."""
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

    def _prune(self, entries: TableEntries) -> None:
        oldest = min((number for e in entries if (number := e.keeps_from) is not None), default=None)
        pruned = False
        while self._history and (oldest is None or self._history[0].number < oldest):
            self._history.popleft()
            pruned = True
        if pruned:
            self.oldest_kept = _lowest(self._history, None)


def _is_given_up(state: TableState) -> bool:
    """Whether it is parked and its changes are not retained."""
    return isinstance(state, Parked) and not awaits_approval(state)


def _is_dropped(state: TableState, end: Lsn) -> bool:
    """Whether the table's changes up to `end` are dropped, because a copy is to be made or was read at a later position."""
    if not isinstance(state, Registered | Copying | Reloading):
        return False
    return state.copy is None or end <= state.copy.position


def _lifted(entry: TableEntry, versions: tuple[TableSchema, ...], after: Lsn) -> TablePart:
    """The table's part of a task; rows are converted to the last version and its columns that the log does not contain."""
    whole = versions[-1].whole
    computed = whole is not versions[-1]
    return TablePart(
        entry.table, (*versions, whole) if computed else versions, after, whole=bool(entry.spec.key) or computed
    )


def _chain(table: TableId, span: Sequence[RetainedBatch], after: Lsn, start: TableSchema) -> list[TableSchema]:
    """The schemas of the relation records of the table that a scan over `span` meets, in order. Rows up to `after` are ignored, so records
    up to there count as `start`, whatever they announced. A scan does not meet records of another relation that had the table's name."""
    found: list[TableSchema] = []
    for kept in span:
        if kept.batch.end > after:
            found += (schema for schema in kept.resolved.get(table, ()) if schema.relation == start.relation)
        else:
            # Not all of these were resolved: the table may not have been replicated then, or its schema may have been unknown.
            found += [start] * kept.records.get(start.relation, 0)
    return found


def _in_force(versions: Sequence[TableSchema]) -> list[TableSchema]:
    """The same versions, with the form of the version before for each placeholder of a rolled-back record. The last one is in force at the
    end."""
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
    """The changes that a whole copy missed since its snapshot, schema changes included.

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
    """The changes that a chunk with this schema missed since `after`; None if the table's schema has changed."""
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
