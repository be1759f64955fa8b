"""The state of a table: one frozen class for each kind of state, with exactly the data of that state, and one pure transition.

`engine.model.table_state` lists the kinds and the arrows between them; `transition` is the same function with the data. "Retained" changes
stay in the queue until a later batch applies them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

from engine.model.copies import KeyBound
from engine.model.identity import BatchId
from engine.model.partitions import LoadReason, Region
from engine.model.position import ZERO, Lsn
from engine.model.schema import TableSchema
from engine.model.subscription_state import Reason
from engine.model.table_state import Refused, TableStateKind


class ReadProgress(Enum):
    """Progress of a chunk."""

    READING = "reading"
    READ = "read"
    """All of its rows are in the hidden table."""
    PLANNED = "planned"
    """A batch that includes it is planned."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """Partitions whose rows a chunk replaces. `request`: id of the reload."""

    request: str
    regions: tuple[Region, ...]
    reasons: Mapping[str, LoadReason]
    """Reason for each partition's load, by name."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows that are read under one snapshot: those of a table that follow the rows of its copy, up to and including the key `upto` (None:
    all), or those of `partitions`.

    The first batch that reaches `position`, the snapshot's, includes them. `number` is unique in a run. `rows` and `bytes` (of the source's
    storage, estimated) are set when it is read.
    """

    number: int
    schema: TableSchema
    position: Lsn
    upto: KeyBound | None
    first: bool
    """The first chunk of its copy; without it there is no copy."""
    progress: ReadProgress = ReadProgress.READING
    rows: int = 0
    bytes: int = 0
    partitions: Partitions | None = None
    """The partitions of a live table whose rows it replaces; None: it belongs to a copy."""

    @property
    def is_last(self) -> bool:
        """Whether it completes its copy."""
        return self.upto is None and self.partitions is None

    @property
    def is_whole(self) -> bool:
        """Whether it contains all rows of the table, read under one snapshot. Then it follows schema changes since the snapshot."""
        return self.first and self.is_last

    @property
    def hidden_name(self) -> str:
        """Identifies the hidden table of a chunk of partitions among those of other reloads and copies of the run."""
        return f"{self.partitions.request if self.partitions is not None else ''}-{self.number}"


@dataclass(frozen=True, slots=True)
class Copy:
    """An unfinished hidden copy. `schema`: the schema of its rows. `position`: that of the first snapshot under which it was read."""

    schema: TableSchema
    position: Lsn = ZERO
    followed: bool = False
    """It contains the rows up to some key, and every planned batch applies to it."""
    chunk: Chunk | None = None
    """The chunk that is being added to it; None between two chunks."""


@dataclass(frozen=True, slots=True)
class PartitionReload:
    """A reload of some partitions of a live table; changes are retained for it from batch `kept_from` on. `chunk`: None until reading
    begins."""

    request: str
    kept_from: BatchId
    chunk: Chunk | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """A copy is to be started or resumed. `covered`: position up to which a lost copy contained all changes."""

    copy: Copy | None = None
    covered: Lsn = ZERO


@dataclass(frozen=True, slots=True)
class Copying:
    """The first copy is running. `kept_from`: first batch whose changes are retained for it; None between two chunks. `covered`: as in
    Registered."""

    copy: Copy | None = None
    kept_from: BatchId | None = None
    covered: Lsn = ZERO


@dataclass(frozen=True, slots=True)
class CatchingUp:
    """All rows are present as of `applied`; the next batch applies the changes since then.

    `copy`: the hidden copy that the batch hands over; None if a paused table resumes.
    """

    applied: Lsn
    copy: Copy | None = None
    kept_from: BatchId | None = None


@dataclass(frozen=True, slots=True)
class Live:
    """Every batch applies to it. `since`: position at which its rows were complete. `reload`: partitions that are being reloaded."""

    since: Lsn = ZERO
    reload: PartitionReload | None = None


@dataclass(frozen=True, slots=True)
class Paused:
    """Its rows are as of `applied`, and changes are retained from batch `kept_from` on; None: it was paused before its first copy."""

    applied: Lsn = ZERO
    kept_from: BatchId | None = None
    resuming: bool = False
    """The next batch applies the retained changes."""


@dataclass(frozen=True, slots=True)
class Reloading:
    """A new copy is to be made or is running, while the old rows stay readable. `reason`: why, if it is made automatically."""

    kept_from: BatchId | None = None
    copy: Copy | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Recopy:
    """The parked table is copied again automatically, from the next planning on."""


@dataclass(frozen=True, slots=True)
class AwaitApproval:
    """The user has to approve the change on the target. The rows are as of `applied`; `kept_from` is None if no changes are retained."""

    applied: Lsn = ZERO
    kept_from: BatchId | None = None


@dataclass(frozen=True, slots=True)
class AwaitSource:
    """The source cannot be read of the table. The log has no changes of it from batch `since` on, until it can be read again: then it
    continues from its rows."""

    since: BatchId


@dataclass(frozen=True, slots=True)
class Parked:
    """A fault stopped the table. `then`: what happens next; None: the user has to act on `reason`."""

    reason: Reason
    then: Recopy | AwaitApproval | AwaitSource | None = None


@dataclass(frozen=True, slots=True)
class Removed:
    """The table was removed from the subscription."""


TableState = Registered | Copying | CatchingUp | Live | Paused | Reloading | Parked | Removed


@dataclass(frozen=True, slots=True)
class CopyStarted:
    """A copy starts or resumes now; changes are retained for it from batch `kept_from` on."""

    kept_from: BatchId


@dataclass(frozen=True, slots=True)
class KeptReleased:
    """No chunk of the copy is being read: nothing is retained for it."""


@dataclass(frozen=True, slots=True)
class CopyLost:
    """The chunk that is being read is discarded; the part of the copy that batches apply to stays. `kept_from`: first batch that is
    retained from now on, for a table that is reloaded; None: unchanged."""

    kept_from: BatchId | None = None


@dataclass(frozen=True, slots=True)
class CopyVoided:
    """The unfinished copy is discarded completely and starts again."""


@dataclass(frozen=True, slots=True)
class CopyAltered:
    """The schema, after a batch, of a copy that batches apply to."""

    schema: TableSchema


@dataclass(frozen=True, slots=True)
class ChunkBegun:
    """The next rows of a copy, or the partitions of a reload, are being read."""

    chunk: Chunk


@dataclass(frozen=True, slots=True)
class ChunkRead:
    """All rows of this chunk are in the hidden table. `bytes`: of the source's storage, estimated."""

    number: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ChunkPlanned:
    """A batch that includes this chunk is planned; all later batches apply to the copy."""

    number: int


@dataclass(frozen=True, slots=True)
class ChunkTaken:
    """The batch that includes this chunk was committed; nothing is retained for it any more."""

    number: int


@dataclass(frozen=True, slots=True)
class ChunkVoided:
    """The chunk, or the reload of partitions, is discarded. If it is the copy's first chunk, the copy is discarded too.

    `number`: only this chunk; None = any.
    """

    number: int | None = None


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """A batch completed the table's rows."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Retain changes from batch `kept_from` on; the rows are as of `applied`. `taken_in`: a batch that resumes the table is already
    planned."""

    kept_from: BatchId
    applied: Lsn
    taken_in: bool = False


@dataclass(frozen=True, slots=True)
class AskResume:
    """Apply the retained changes with the next batch. Refused if none are retained, because the table has to be copied then."""


@dataclass(frozen=True, slots=True)
class Resume:
    """A batch has applied the retained changes."""


@dataclass(frozen=True, slots=True)
class Reload:
    """Copy the table again; changes are retained for the copy from batch `kept_from` on."""

    kept_from: BatchId


@dataclass(frozen=True, slots=True)
class PartitionsBegun:
    """Reload some partitions of a live table; changes are retained for them from batch `kept_from` on."""

    request: str
    kept_from: BatchId


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault stops the table. `recopy`: it is copied again automatically."""

    reason: Reason
    recopy: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """Retain changes from batch `kept_from` on until the user approves a schema change; `applied` and `taken_in` as in Pause.

    `kept`: the target's schema. A table that already waits for approval keeps its retained changes, and waits for this change as well.
    """

    reason: Reason
    kept: TableSchema
    kept_from: BatchId
    applied: Lsn
    taken_in: bool = False


@dataclass(frozen=True, slots=True)
class Approve:
    """Apply the retained changes of a table that waits for approval, with its schema changes. Refused if none are retained, because the
    table has to be copied then."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The source cannot be read of the table: batches from `since` on have no changes of it. Earlier ones, which are planned, are applied.
    Refused unless batches apply to it, or it waits for its source already."""

    reason: Reason
    since: BatchId


@dataclass(frozen=True, slots=True)
class Readable:
    """The source can be read again of a table that waits for that. Its rows are as of `applied`, and batch `kept_from` has every change
    since. Refused if it is parked for another reason."""

    kept_from: BatchId
    applied: Lsn


@dataclass(frozen=True, slots=True)
class Remove:
    """The table is removed from the subscription."""


RetainingEvent = CopyStarted | CopyLost | Reload | PartitionsBegun
"""Each has the first batch whose changes are retained from then on."""
CopyEvent = (
    CopyStarted
    | KeptReleased
    | CopyLost
    | CopyVoided
    | CopyAltered
    | ChunkBegun
    | ChunkRead
    | ChunkPlanned
    | ChunkTaken
    | ChunkVoided
)
TableEvent = (
    CopyEvent
    | PartitionsBegun
    | CaughtUp
    | Pause
    | AskResume
    | Resume
    | Reload
    | Fault
    | Hold
    | Approve
    | Unreadable
    | Readable
    | Remove
)


def kind_of(state: TableState) -> TableStateKind:
    """The kind of a state, as REST, CLI and the web show it."""
    match state:
        case Registered():
            return TableStateKind.REGISTERED
        case Copying():
            return TableStateKind.COPYING
        case CatchingUp():
            return TableStateKind.CATCHING_UP
        case Live():
            return TableStateKind.LIVE
        case Paused():
            return TableStateKind.PAUSED
        case Reloading():
            return TableStateKind.RELOADING
        case Parked():
            return TableStateKind.PARKED
        case Removed():
            return TableStateKind.REMOVED
        case _:
            assert_never(state)


def copy_of(state: TableState) -> Copy | None:
    """The table's unfinished copy; None if there is none."""
    return state.copy if isinstance(state, Registered | Copying | CatchingUp | Reloading) else None


def kept_from(state: TableState) -> BatchId | None:
    """First batch whose changes are retained for the whole table; None if nothing is retained for it."""
    match state:
        case Copying() | CatchingUp() | Paused() | Reloading():
            return state.kept_from
        case Parked(then=AwaitApproval(kept_from=number)):
            return number
        case _:
            return None


def holds_up_to(state: TableState) -> Lsn | None:
    """Position up to which changes are in the table's rows, or in the copy that is to replace them. None if unknown, or if changes are
    retained."""
    match state:
        case Registered() | Copying():
            return state.covered if state.copy is None else state.copy.position
        case Reloading():
            return None if state.copy is None else state.copy.position
        case CatchingUp():
            return state.applied
        case Live():
            return state.since
        case Paused() | Parked() | Removed():
            return None
        case _:
            assert_never(state)


def awaits_approval(state: TableState) -> bool:
    """Whether it is parked until the user approves a change that its target can follow."""
    return isinstance(state, Parked) and isinstance(state.then, AwaitApproval)


def is_unread(state: TableState) -> bool:
    """Whether it is parked only because the source cannot be read of it: its rows lack nothing that the log has."""
    return isinstance(state, Parked) and isinstance(state.then, AwaitSource)


def awaits_recopy(state: TableState) -> bool:
    """Whether it is parked only until a new copy begins, which happens automatically."""
    return isinstance(state, Parked) and isinstance(state.then, Recopy)


class ReadStatus(Enum):
    """Whether queries that ask for fresh rows may read a table."""

    MAY_READ = "may_read"
    """Provided that the target's own record says that its rows are complete."""
    OUT = "out"
    """Not before the user acts: batches do not apply to it until then."""


def read_status(state: TableState) -> ReadStatus:
    """The read status of a state. A table that is copied again automatically may be read: it will be complete again."""
    out = isinstance(state, Paused) or (isinstance(state, Parked) and not awaits_recopy(state))
    return ReadStatus.OUT if out else ReadStatus.MAY_READ


def outdates_plans(before: TableState, event: TableEvent, after: TableState) -> bool:
    """Whether an event invalidates the parts of the table in batches that are already planned.

    Pause and Hold do not: planned parts are applied, and only later changes are retained. The loss of a chunk does not: the copy continues
    without it, and planned chunks are identified by number. A hand-over does not: the batches after it were planned as if it had been made.
    """
    if isinstance(event, Fault | Reload | Remove):
        return True
    return copy_of(before) is not None and copy_of(after) is None and not isinstance(event, CaughtUp)


def transition(state: TableState, event: TableEvent) -> TableState | Refused:
    """The state after `event`, or the refusal if the event is not valid in `state`."""
    if isinstance(state, Removed):
        return Refused("the table was removed from the subscription; add it again")
    match event:
        case Remove():
            return Removed()
        case Fault():
            return Parked(event.reason, Recopy() if event.recopy else None)
        case Hold():
            return _held(state, event)
        case CaughtUp() if isinstance(state, CatchingUp):
            return Live(state.applied)
        case Pause():
            return _paused(state, event)
        case Approve() if isinstance(state, Parked):
            return _approved(state)
        case Unreadable() if isinstance(state, Live) or (isinstance(state, Paused) and state.resuming):
            return Parked(event.reason, AwaitSource(event.since))
        case Unreadable() if isinstance(state, Parked) and is_unread(state):
            return replace(state, reason=event.reason)
        case Readable() if is_unread(state):
            return Paused(event.applied, event.kept_from, resuming=True)
        case AskResume() if isinstance(state, Paused) and state.kept_from is not None:
            return replace(state, resuming=True)
        case Resume() if isinstance(state, Paused):
            return CatchingUp(state.applied, kept_from=state.kept_from)
        case Reload() if isinstance(state, Live | Paused | Parked):
            unasked = state.reason if isinstance(state, Parked) and awaits_recopy(state) else None
            return Reloading(event.kept_from, reason=unasked)
        case PartitionsBegun() if isinstance(state, Live):
            return replace(state, reload=PartitionReload(event.request, event.kept_from))
        case PartitionsBegun() | CaughtUp() | Approve() | Unreadable() | Readable() | AskResume() | Resume() | Reload():
            return _refused(state, event)
        case _:
            return _copied(state, event)


def _refused(state: TableState, event: TableEvent) -> Refused:
    return Refused(f"a table that is {kind_of(state).value} does not take '{type(event).__name__}'")


def _held(state: TableState, event: Hold) -> Parked:
    if isinstance(state, Parked) and isinstance(state.then, AwaitApproval):
        return replace(state, reason=event.reason)
    if isinstance(state, Paused) and state.kept_from is not None and not event.taken_in:
        return Parked(event.reason, AwaitApproval(state.applied, state.kept_from))
    return Parked(event.reason, AwaitApproval(event.applied, event.kept_from))


def _approved(state: Parked) -> TableState | Refused:
    held = state.then
    if not isinstance(held, AwaitApproval) or held.kept_from is None:
        return Refused("nothing was kept for the table; reload it")
    return Paused(held.applied, held.kept_from, resuming=True)


def _paused(state: TableState, event: Pause) -> TableState | Refused:
    match state:
        case Live():
            return Paused(event.applied, event.kept_from)
        case Registered(copy=None):
            return Paused(state.covered)
        case Paused(resuming=True) if event.taken_in:
            return Paused(event.applied, event.kept_from)
        case Paused(resuming=True):
            return replace(state, resuming=False)
        case _:
            return _refused(state, event)


def _reloaded(state: Live, event: CopyEvent) -> TableState | Refused:
    """The state of a live table after an event of its partition reload."""
    reload = state.reload
    number = event.number if isinstance(event, ChunkRead | ChunkPlanned | ChunkTaken | ChunkVoided) else None
    if reload is None or (number is not None and (reload.chunk is None or reload.chunk.number != number)):
        return Refused("this reload of partitions does not count any more")
    match event:
        case ChunkBegun() if reload.chunk is None and event.chunk.partitions is not None:
            return replace(state, reload=replace(reload, chunk=event.chunk))
        case ChunkRead() | ChunkPlanned() if reload.chunk is not None:
            return replace(state, reload=replace(reload, chunk=_further(reload.chunk, event)))
        case ChunkTaken() | ChunkVoided():
            return replace(state, reload=None)
        case _:
            return _refused(state, event)


def _further(chunk: Chunk, event: ChunkRead | ChunkPlanned) -> Chunk:
    if isinstance(event, ChunkPlanned):
        return replace(chunk, progress=ReadProgress.PLANNED)
    return replace(chunk, rows=event.rows, bytes=event.bytes, progress=ReadProgress.READ)


_Unfinished = Registered | Copying | CatchingUp | Reloading


def _copied(state: TableState, event: CopyEvent) -> TableState | Refused:
    """The state of a table after an event of its copy."""
    if isinstance(state, Live):
        return _reloaded(state, event)
    if not isinstance(state, Registered | Copying | CatchingUp | Reloading):
        return _refused(state, event)
    match event:
        case CopyStarted():
            return _started(state, event)
        case KeptReleased() if isinstance(state, Copying | Reloading):
            return replace(state, kept_from=None)
        case CopyLost() if not isinstance(state, Registered):
            return _lost(state, event.kept_from)
        case CopyVoided():
            return _voided(state)
        case CopyAltered() if state.copy is not None and state.copy.followed:
            return replace(state, copy=replace(state.copy, schema=event.schema))
        case KeptReleased() | CopyLost() | CopyAltered():
            return _refused(state, event)
        case _:
            return _with_chunk(state, event)


def _started(state: _Unfinished, event: CopyStarted) -> TableState | Refused:
    match state:
        case Registered():
            return Copying(state.copy, event.kept_from, state.covered)
        case Copying(kept_from=None):
            return replace(state, kept_from=event.kept_from)
        case Reloading():
            return replace(state, kept_from=event.kept_from, copy=_left_of(state.copy))
        case _:
            return _refused(state, event)


def _left_of(copy: Copy | None) -> Copy | None:
    """What remains of a copy when the chunk that is being read is lost; None if nothing does."""
    followed = copy is not None and copy.followed and not (copy.chunk is not None and copy.chunk.first)
    return replace(copy, chunk=None) if copy is not None and followed else None


def _lost(state: Copying | CatchingUp | Reloading, number: BatchId | None) -> TableState:
    left = _left_of(state.copy)
    if isinstance(state, Reloading):
        return replace(state, copy=left, kept_from=number if number is not None else state.kept_from)
    return Registered(left, holds_up_to(state) or ZERO)


def _voided(state: _Unfinished) -> TableState | Refused:
    copy = state.copy
    if copy is None or (copy.chunk is None and not copy.followed):
        return _refused(state, CopyVoided())
    if not copy.followed:
        return _without_chunk(state, copy)
    unfinished = replace(state, copy=replace(copy, followed=False))
    return replace(state, copy=None) if isinstance(unfinished, Registered) else _lost(unfinished, None)


_ChunkEvent = ChunkBegun | ChunkRead | ChunkPlanned | ChunkTaken | ChunkVoided


def _with_chunk(state: _Unfinished, event: _ChunkEvent) -> TableState | Refused:
    if isinstance(event, ChunkBegun):
        if not isinstance(state, Copying | Reloading):
            return _refused(state, event)
        copy = state.copy if state.copy is not None and not event.chunk.first else None
        return replace(state, copy=replace(copy or Copy(event.chunk.schema, event.chunk.position), chunk=event.chunk))
    chunk = state.copy.chunk if state.copy is not None else None
    if state.copy is None or chunk is None or event.number not in {None, chunk.number}:
        return Refused("this chunk does not count any more")
    match event:
        case ChunkRead():
            copy = replace(state.copy, chunk=_further(chunk, event))
            if chunk.is_last and isinstance(state, Copying | Reloading):
                return CatchingUp(copy.position, copy, state.kept_from)
            return replace(state, copy=copy)
        case ChunkPlanned():
            return replace(state, copy=replace(state.copy, chunk=_further(chunk, event), followed=True))
        case ChunkTaken():
            return _kept_no_more(replace(state, copy=replace(state.copy, chunk=None)))
        case ChunkVoided():
            return _without_chunk(state, state.copy)
        case _:
            assert_never(event)


def _without_chunk(state: _Unfinished, copy: Copy) -> TableState:
    """The state without the copy's chunk. If that was the last chunk and was read, the table waits again for its copy to be resumed."""
    chunk = copy.chunk
    left = None if chunk is None or chunk.first else replace(copy, chunk=None)
    if isinstance(state, CatchingUp) and chunk is not None and chunk.is_last:
        return Registered(left, state.applied)
    if isinstance(state, Copying) and left is None:
        return Copying(covered=copy.position)
    return _kept_no_more(replace(state, copy=left))


def _kept_no_more(state: _Unfinished) -> TableState:
    return state if isinstance(state, Registered) else replace(state, kept_from=None)
