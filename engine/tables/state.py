"""The state of a table: one frozen class for each kind of state, with exactly the data of that state, and one pure transition.

`engine.model.table_state` lists the kinds and the arrows between them; `transition` is the same function with the data.
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
    """How far the rows of a chunk, or of partitions that are reloaded, have come."""

    READING = "reading"
    READ = "read"
    """All of them are in the hidden table."""
    PLANNED = "planned"
    """A batch that takes them in is planned."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """Partitions whose rows a chunk replaces."""

    request: str
    regions: tuple[Region, ...]
    reasons: Mapping[str, LoadReason]
    """By the partition's name."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The rows of a table after those that its copy holds, up to and with the key `upto` (None = all), or those of some partitions.

    They are read under one snapshot.

    They count from the first batch that reaches `position`, the snapshot's. `number` identifies it among those of the run.
    """

    number: int
    schema: TableSchema
    position: Lsn
    upto: KeyBound | None
    first: bool
    """It is the copy's first: without it there is no copy."""
    progress: ReadProgress = ReadProgress.READING
    rows: int = 0
    bytes: int = 0
    partitions: Partitions | None = None
    """Those of a live table whose rows it replaces; None: its rows are added to a copy."""

    @property
    def is_last(self) -> bool:
        """Whether its copy is complete with it."""
        return self.upto is None and self.partitions is None

    @property
    def is_whole(self) -> bool:
        """Whether it has all rows of the table, which were read under one snapshot: then it follows changes of the schema since."""
        return self.first and self.is_last

    @property
    def hidden_name(self) -> str:
        """Identifies the hidden table of a chunk of partitions among those of other reloads and copies of the run."""
        return f"{self.partitions.request if self.partitions is not None else ''}-{self.number}"


@dataclass(frozen=True, slots=True)
class Copy:
    """A hidden copy that is being made. `schema`: its structure; `position`: of the (first) snapshot that it was read under."""

    schema: TableSchema
    position: Lsn = ZERO
    followed: bool = False
    """It holds the rows up to some key, and every batch that is planned applies to it."""
    chunk: Chunk | None = None
    """What is being added to it."""


@dataclass(frozen=True, slots=True)
class PartitionReload:
    """A chunk of a live table's partitions is to be read; changes are kept for it from batch `kept_from` on."""

    request: str
    kept_from: BatchId
    chunk: Chunk | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """A copy is to be made, or to go on. `covered`: a copy that was lost held all changes up to here."""

    copy: Copy | None = None
    covered: Lsn = ZERO


@dataclass(frozen=True, slots=True)
class Copying:
    """The first copy is being made. `kept_from`: first batch whose changes are kept for it; None between two chunks."""

    copy: Copy | None = None
    kept_from: BatchId | None = None
    covered: Lsn = ZERO


@dataclass(frozen=True, slots=True)
class CatchingUp:
    """All rows are there as of `applied`; a batch that applies what came since is next.

    `copy`: the hidden copy that the batch hands over; None where a paused table resumes.
    """

    applied: Lsn
    copy: Copy | None = None
    kept_from: BatchId | None = None


@dataclass(frozen=True, slots=True)
class Live:
    """Every batch applies to it. `since`: it was complete as of this position. `reload`: partitions that are being read again."""

    since: Lsn = ZERO
    reload: PartitionReload | None = None


@dataclass(frozen=True, slots=True)
class Paused:
    """Its rows are as of `applied`, and changes are kept from batch `kept_from` on; None: it was paused before its first copy."""

    applied: Lsn = ZERO
    kept_from: BatchId | None = None
    resuming: bool = False
    """The next batch applies what was kept."""


@dataclass(frozen=True, slots=True)
class Reloading:
    """Another copy is to be made, or being made, while the old rows stay readable. `reason`: what it is made for, where not asked for."""

    kept_from: BatchId | None = None
    copy: Copy | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Recopy:
    """A parked table is copied again by itself, from the next planning on."""


@dataclass(frozen=True, slots=True)
class AwaitApproval:
    """The user has to approve what the target would do. Its rows are as of `applied`; `kept_from` is None where nothing is kept."""

    applied: Lsn = ZERO
    kept_from: BatchId | None = None


@dataclass(frozen=True, slots=True)
class Parked:
    """A fault took it out. `then`: what is next; None = the user has to do something about `reason`."""

    reason: Reason
    then: Recopy | AwaitApproval | None = None


@dataclass(frozen=True, slots=True)
class Removed:
    """It left the subscription."""


TableState = Registered | Copying | CatchingUp | Live | Paused | Reloading | Parked | Removed


@dataclass(frozen=True, slots=True)
class CopyStarted:
    """A copy is to begin or go on now: changes are kept for it from this batch on."""

    kept_from: BatchId


@dataclass(frozen=True, slots=True)
class KeptReleased:
    """No chunk of the copy is being read: nothing is kept for it."""


@dataclass(frozen=True, slots=True)
class CopyLost:
    """What is being read does not count. What batches apply to already stays. `kept_from`: changes are kept from here on instead."""

    kept_from: BatchId | None = None


@dataclass(frozen=True, slots=True)
class CopyVoided:
    """Nothing of an unfinished copy counts: it begins again from nothing."""


@dataclass(frozen=True, slots=True)
class CopyAltered:
    """The structure of a copy that batches apply to, after a batch."""

    schema: TableSchema


@dataclass(frozen=True, slots=True)
class ChunkBegun:
    """The next rows of a copy are being read."""

    chunk: Chunk


@dataclass(frozen=True, slots=True)
class ChunkRead:
    """All rows of this chunk are in the hidden table."""

    number: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ChunkPlanned:
    """A batch that takes this chunk in is planned; all later ones apply to the copy."""

    number: int


@dataclass(frozen=True, slots=True)
class ChunkTaken:
    """A batch took this chunk in: nothing is kept for it any more."""

    number: int


@dataclass(frozen=True, slots=True)
class ChunkVoided:
    """The chunk, or the reload of partitions, does not count. Without its first chunk nothing is left of a copy.

    `number`: only this chunk; None = any.
    """

    number: int | None = None


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """A batch has made its rows complete."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Keep changes from batch `kept_from` on; the table holds those up to `applied`. `taken_in`: a resume of it is already planned."""

    kept_from: BatchId
    applied: Lsn
    taken_in: bool = False


@dataclass(frozen=True, slots=True)
class AskResume:
    """Apply what was kept with the next batch. Refused where nothing was: the table has to be copied."""


@dataclass(frozen=True, slots=True)
class Resume:
    """A batch has applied what was kept."""


@dataclass(frozen=True, slots=True)
class Reload:
    """Copy it again; changes are kept for that from this batch on."""

    kept_from: BatchId


@dataclass(frozen=True, slots=True)
class PartitionsBegun:
    """Some partitions of a live table are to be read again; changes are kept for them from batch `kept_from` on."""

    request: str
    kept_from: BatchId


@dataclass(frozen=True, slots=True)
class Fault:
    """Something took it out. `recopy`: it is copied again without being asked for."""

    reason: Reason
    recopy: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep changes from batch `kept_from` on until the user approves of a structure; `applied` and `taken_in` as in Pause.

    `kept`: the structure that the target has. One that waits already waits for this as well.
    """

    reason: Reason
    kept: TableSchema
    kept_from: BatchId
    applied: Lsn
    taken_in: bool = False


@dataclass(frozen=True, slots=True)
class Approve:
    """Apply what was kept for a table that waited, its structure with it. Refused where nothing was: it has to be copied."""


@dataclass(frozen=True, slots=True)
class Remove:
    """It leaves the subscription."""


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
    CopyEvent | PartitionsBegun | CaughtUp | Pause | AskResume | Resume | Reload | Fault | Hold | Approve | Remove
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
    """The unfinished copy of the table."""
    return state.copy if isinstance(state, Registered | Copying | CatchingUp | Reloading) else None


def kept_from(state: TableState) -> BatchId | None:
    """First batch whose changes have to be kept for the whole table."""
    match state:
        case Copying() | CatchingUp() | Paused() | Reloading():
            return state.kept_from
        case Parked(then=AwaitApproval(kept_from=number)):
            return number
        case _:
            return None


def holds_up_to(state: TableState) -> Lsn | None:
    """Changes up to here are in its rows, or in those of the copy that is to take their place. None where changes are kept, or unknown."""
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
    """Whether it is parked until the user approves of a change that its target can follow; what comes meanwhile is kept."""
    return isinstance(state, Parked) and isinstance(state.then, AwaitApproval)


def awaits_recopy(state: TableState) -> bool:
    """Whether it is parked only until a copy of it is begun, which it is without being asked for."""
    return isinstance(state, Parked) and isinstance(state.then, Recopy)


class ReadStatus(Enum):
    """Whether queries that ask for fresh rows may read a table."""

    MAY_READ = "may_read"
    """As far as the target's own record says that its rows are complete."""
    OUT = "out"
    """It does not follow until the user does something."""


def read_status(state: TableState) -> ReadStatus:
    """A table that is copied again by itself is not out: it will follow again."""
    out = isinstance(state, Paused) or (isinstance(state, Parked) and not awaits_recopy(state))
    return ReadStatus.OUT if out else ReadStatus.MAY_READ


def outdates_plans(before: TableState, event: TableEvent, after: TableState) -> bool:
    """Whether parts of the table in batches that are planned do not count any more.

    Pausing and holding do not: what is planned is applied, and only what comes later is kept. Nor does the loss of a chunk: the copy
    goes on without it, and a chunk has a number of its own. A hand-over does not: batches after it are planned as if it were made.
    """
    if isinstance(event, Fault | Reload | Remove):
        return True
    return copy_of(before) is not None and copy_of(after) is None and not isinstance(event, CaughtUp)


def transition(state: TableState, event: TableEvent) -> TableState | Refused:
    """The state after `event`, or why it is refused."""
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
        case AskResume() if isinstance(state, Paused) and state.kept_from is not None:
            return replace(state, resuming=True)
        case Resume() if isinstance(state, Paused):
            return CatchingUp(state.applied, kept_from=state.kept_from)
        case Reload() if isinstance(state, Live | Paused | Parked):
            unasked = state.reason if isinstance(state, Parked) and awaits_recopy(state) else None
            return Reloading(event.kept_from, reason=unasked)
        case PartitionsBegun() if isinstance(state, Live):
            return replace(state, reload=PartitionReload(event.request, event.kept_from))
        case PartitionsBegun() | CaughtUp() | Approve() | AskResume() | Resume() | Reload():
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
    """What comes to a live table by a chunk of its partitions."""
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
    """What comes to a table by its copy."""
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
    """What is left of a copy when what is being read of it is lost."""
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
    """Where it was the last one, and read, the table goes back to where its copy is to go on."""
    chunk = copy.chunk
    left = None if chunk is None or chunk.first else replace(copy, chunk=None)
    if isinstance(state, CatchingUp) and chunk is not None and chunk.is_last:
        return Registered(left, state.applied)
    if isinstance(state, Copying) and left is None:
        return Copying(covered=copy.position)
    return _kept_no_more(replace(state, copy=left))


def _kept_no_more(state: _Unfinished) -> TableState:
    return state if isinstance(state, Registered) else replace(state, kept_from=None)
