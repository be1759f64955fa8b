"""The transaction sorter: turns the control records of one log into committed transactions in commit order.

The log interleaves whole plain transactions (BEGIN … COMMIT) with chunks of streamed, still open ones (STREAM_START … STREAM_STOP),
which a later STREAM_COMMIT or STREAM_ABORT ends. The sorter emits committed transactions only.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt

from engine.model.batch import LogsSeen, MessageSeen, RelationSeen, TicketSeen
from engine.model.control import ControlKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import Ordinal, RelationId
from engine.model.position import Lsn
from engine.records.messages import message_at, unstreamed
from engine.sort.committed import (
    Announcement,
    CommittedTransactions,
    Controls,
    Ids,
    Ints,
    StreamedTransaction,
    TransactionRun,
)

_MESSAGE = b"M"
# Classes of control records: those between two ends of transactions are processed in one step; others change which one is open.
_PLAIN = 1
_TURN = 2


def _classes() -> npt.NDArray[np.uint8]:
    """By kind number: 1 for kinds processed in bulk, 2 for kinds that end a run of such records, 0 for unknown kinds."""
    table = np.zeros(256, np.uint8)
    for kind in (
        ControlKind.BEGIN,
        ControlKind.COMMIT,
        ControlKind.RELATION,
        ControlKind.TRUNCATE,
        ControlKind.MESSAGE,
    ):
        table[kind] = _PLAIN
    for kind in (
        ControlKind.STREAM_START,
        ControlKind.STREAM_STOP,
        ControlKind.STREAM_COMMIT,
        ControlKind.STREAM_ABORT,
        ControlKind.SESSION,
    ):
        table[kind] = _TURN
    return table


_CLASS = _classes()


@dataclass(slots=True)
class _OpenStream:
    """An open streamed transaction. `borders`: start and stop ordinal of each chunk, alternating."""

    first: int
    own: bool = False
    """The top-level transaction wrote rows itself, not only its subtransactions."""
    borders: array[int] = field(default_factory=lambda: array("q"))
    aborted: set[int] = field(default_factory=set)
    announcements: list[tuple[int, Announcement]] = field(default_factory=list)
    """Each with the (sub)transaction that its record names."""


class TransactionSorter:
    """Sorts the control records of one log. Used by one thread.

    `after`: transactions that end at or before this position are already known, and dropped.
    """

    def __init__(self, after: Lsn) -> None:
        self._last_end = after.value
        self._session_end = 0
        self._last_ordinal = -1
        self._closed: list[CommittedTransactions] = []
        self._streams: dict[int, _OpenStream] = {}
        """Open streamed transactions by xid, in the order of their first chunks."""
        self._payloads: dict[bytes, bytes] = {}
        """Relation records of streamed transactions, interned: thousands of open transactions announce the same tables."""
        self._in_stream: tuple[int, int] | None = None
        """xid and STREAM_START ordinal of the open chunk."""
        self._open_start: int | None = None
        """First ordinal of the open plain transaction."""
        self._open_xid = 0
        self._loose: list[int] = []
        self._announcements: list[Announcement] = []
        """Announcements of the open plain transaction, or of the next one."""

    @property
    def last_closed_end(self) -> Lsn:
        """End of the last committed transaction emitted, or `after`. Transactions that end at or before it are dropped."""
        return Lsn(self._last_end)

    def begin_session(self, after: Lsn | None = None) -> None:
        """A new connection begins: open transactions of the previous one are void, and the source sends them again.

        `after`: the session continues after this position; transactions that end at or before it are already known.
        """
        if after is not None:
            self._last_end = max(self._last_end, after.value)
        self._streams.clear()
        self._payloads.clear()
        self._in_stream = None
        self._open_start = None
        self._loose = []
        self._announcements = []
        self._session_end = 0

    def drain(self) -> list[CommittedTransactions]:
        """Transactions committed since the last call, in commit order."""
        closed, self._closed = self._closed, []
        return closed

    def oldest_open_ordinal(self) -> Ordinal | None:
        """The lowest ordinal that an open transaction needs; None if none is open.

        Drained transactions are not included.
        """
        firsts = [stream.first for stream in islice(self._streams.values(), 1)]
        if self._open_start is not None:
            firsts.append(self._open_start)
        firsts.extend(self._loose[:1])
        firsts.extend(self._first_closed())
        return Ordinal(min(firsts)) if firsts else None

    def open_chunks(self, xid: int) -> tuple[Sequence[int], frozenset[int], Sequence[RelationSeen]] | None:
        """State of an open streamed transaction: start and stop ordinal of each complete chunk, alternating; the aborted subtransactions;
        the relation records. None if it is not open."""
        stream = self._streams.get(xid)
        if stream is None:
            return None
        relations = [seen for _, seen in stream.announcements if isinstance(seen, RelationSeen)]
        return stream.borders, frozenset(stream.aborted), relations

    def _first_closed(self) -> list[int]:
        return [first for closed in self._closed if (first := closed.first_ordinal) is not None]

    def feed(self, controls: Controls, relations: Mapping[int, bytes]) -> None:
        """Process the next control records of the log, in arrival order, each at most once.

        `controls`: CONTROL_FIELDS with ordinals of the queue. `relations`: by ordinal, the whole record of each relation and each
        message of the engine's own; other messages are ignored. A transaction may begin in one call and end in another.
        Raises EngineFault(LOG_UNREADABLE) if the order of the records is invalid.
        """
        if len(controls) == 0:
            return
        classes = _CLASS[controls["kind"]]
        self._check(controls, classes)
        at = 0
        for index in np.flatnonzero(classes == _TURN).tolist():
            self._run(controls[at:index], relations)
            self._turn(controls, index)
            at = index + 1
        self._run(controls[at:], relations)

    def _check(self, controls: Controls, classes: npt.NDArray[np.uint8]) -> None:
        ordinals: Ints = controls["ordinal"][controls["kind"] != ControlKind.SESSION]
        if not classes.all():
            raise _unreadable("a control record of unknown kind")
        if len(ordinals) == 0:
            return
        if int(ordinals[0]) < self._last_ordinal or bool((ordinals[1:] < ordinals[:-1]).any()):
            raise _unreadable("control records out of order")
        self._last_ordinal = int(ordinals[-1])

    def _run(self, part: Controls, relations: Mapping[int, bytes]) -> None:
        if len(part) == 0:
            return
        if self._in_stream is None:
            self._plain(part, relations)
        else:
            self._chunk(part, relations, self._in_stream[0])

    def _chunk(self, part: Controls, relations: Mapping[int, bytes], xid: int) -> None:
        kinds = part["kind"]
        if bool(((kinds == ControlKind.BEGIN) | (kinds == ControlKind.COMMIT)).any()):
            raise _unreadable("a plain transaction inside a streamed chunk")
        for ordinal in part["ordinal"][_tells(part, relations)].tolist():
            seen = _announcement_at(ordinal, relations, streamed=True)
            if isinstance(seen, RelationSeen):
                payload = self._payloads.setdefault(seen.payload, seen.payload)
                seen = RelationSeen(seen.ordinal, seen.relation, payload)
            self._streams[xid].announcements.append((_writer(relations[ordinal]), seen))

    def _plain(self, part: Controls, relations: Mapping[int, bytes]) -> None:
        """Records outside streamed chunks: pair BEGIN with COMMIT, emit the complete transactions, keep the open one."""
        kinds = part["kind"]
        ordinals: Ints = part["ordinal"]
        begins = kinds == ControlKind.BEGIN
        starts: Ints = ordinals[begins]
        xids: Ids = part["xid"][begins]
        if self._open_start is not None:
            starts = np.concatenate((np.array([self._open_start], np.int64), starts))
            xids = np.concatenate((np.array([self._open_xid], np.uint32), xids))
        commits = np.flatnonzero(kinds == ControlKind.COMMIT)
        stops: Ints = ordinals[commits] + 1
        _check_pairs(starts, stops)
        seen: Ints = ordinals[kinds == ControlKind.RELATION]
        if len(seen):
            starts = self._adopt_loose(starts, stops, seen)
        told = ordinals[_tells(part, relations)].tolist()
        self._announcements.extend(_announcement_at(at, relations, streamed=False) for at in told)
        count = len(stops)
        self._open_start = int(starts[count]) if len(starts) > count else None
        self._open_xid = int(xids[count]) if len(starts) > count else 0
        if count:
            self._close_run((starts[:count].copy(), xids[:count].copy()), stops, part, commits)

    def _adopt_loose(self, starts: Ints, stops: Ints, seen: Ints) -> Ints:
        """Assign relation records between transactions to the next transaction, or keep them until it comes."""
        owner = np.searchsorted(stops, seen, side="right")
        inside = (owner < len(starts)) & (starts[np.minimum(owner, len(starts) - 1)] < seen) if len(starts) else None
        loose = np.ones(len(seen), bool) if inside is None else ~inside
        starts = starts.copy()
        for at, of in zip(seen[loose].tolist(), owner[loose].tolist(), strict=True):
            if of == 0 or of >= len(starts):
                self._loose.append(at)
            else:
                starts[of] = min(int(starts[of]), at)
        return starts

    def _close_run(self, begun: tuple[Ints, Ids], stops: Ints, part: Controls, commits: Ints) -> None:
        """`begun`: starts and transaction ids. `commits`: places of the commit records in `part`. Only copies of fields are kept."""
        starts, xids = begun
        ends: npt.NDArray[np.uint64] = part["end_lsn"][commits]
        self._in_order(int(ends[0]))
        if bool((ends[1:] <= ends[:-1]).any()):
            raise _unreadable("commits out of order")
        self._session_end = int(ends[-1])
        border = int(stops[-1])
        loose = tuple(at for at in self._loose if at < border)
        found = [seen for seen in self._announcements if seen.ordinal < border]
        self._loose = self._loose[len(loose) :]
        self._announcements = self._announcements[len(found) :]
        known = int(np.searchsorted(ends, np.uint64(self._last_end), side="right"))
        if known == len(ends):
            return
        if known:
            loose = ()
            found = [seen for seen in found if seen.ordinal >= starts[known]]
        run = TransactionRun(
            starts[known:],
            stops[known:],
            ends[known:],
            part["time_us"][commits[known:]],
            part["commit_lsn"][commits[known:]],
            xids[known:],
            loose,
            tuple(found),
        )
        self._close(run)

    def _turn(self, controls: Controls, index: int) -> None:
        """Process a record that ends a run of bulk records."""
        record = controls[index]
        kind, xid, ordinal = int(record["kind"]), int(record["xid"]), int(record["ordinal"])
        if kind == ControlKind.SESSION:
            self.begin_session()
            return
        if self._open_start is not None:
            raise _unreadable("a streamed transaction inside a plain one")
        if (kind == ControlKind.STREAM_STOP) != (self._in_stream is not None):
            raise _unreadable("streamed chunks that do not nest")
        if kind == ControlKind.STREAM_START:
            self._streams.setdefault(xid, _OpenStream(ordinal))
            self._in_stream = (xid, ordinal)
        elif self._in_stream is not None:
            self._end_chunk(*self._in_stream, ordinal, own=bool(record["subxid"]))
        elif kind == ControlKind.STREAM_ABORT:
            self._abort(xid, int(record["subxid"]))
        else:
            self._commit_stream(xid, int(record["end_lsn"]), int(record["time_us"]))

    def _end_chunk(self, xid: int, start: int, stop: int, *, own: bool) -> None:
        self._in_stream = None
        self._streams[xid].own |= own
        if stop > start + 1:
            self._streams[xid].borders.extend((start + 1, stop))

    def _abort(self, xid: int, subxid: int) -> None:
        if subxid == xid:
            self._streams.pop(xid, None)
        elif xid in self._streams:
            self._streams[xid].aborted.add(subxid)

    def _commit_stream(self, xid: int, end: int, time_us: int) -> None:
        self._in_order(end)
        self._session_end = end
        stream = self._streams.pop(xid, None)
        if end <= self._last_end:
            return
        if stream is None:
            raise _unreadable("the commit of a streamed transaction without any record")
        borders = stream.borders
        chunks = tuple(zip(borders[::2], borders[1::2], strict=True))
        aborted = frozenset(stream.aborted)
        found = tuple(_settled(writer, seen, aborted) for writer, seen in stream.announcements)
        self._close(StreamedTransaction(xid, end, time_us, chunks, aborted, found, stream.own))

    def _in_order(self, end: int) -> None:
        """Check that the commits of one session have ascending end LSNs."""
        if end <= self._session_end:
            raise _unreadable("commits out of order")

    def _close(self, closed: CommittedTransactions) -> None:
        self._last_end = closed.last_end
        self._closed.append(closed)


def _check_pairs(starts: Ints, stops: Ints) -> None:
    """Check that BEGIN and COMMIT alternate; the last transaction may be open."""
    count = len(stops)
    if not count <= len(starts) <= count + 1:
        raise _unreadable("BEGIN and COMMIT do not match")
    if bool((stops <= starts[:count]).any()) or bool((starts[1:] < stops[: len(starts) - 1]).any()):
        raise _unreadable("BEGIN and COMMIT do not alternate")


def _tells(part: Controls, relations: Mapping[int, bytes]) -> npt.NDArray[np.bool_]:
    """Mask of the control records that are announcements: relation records, and messages whose content is in `relations`."""
    tells: npt.NDArray[np.bool_] = part["kind"] == ControlKind.RELATION
    for at in np.flatnonzero(part["kind"] == ControlKind.MESSAGE).tolist() if relations else ():
        tells[at] = int(part["ordinal"][at]) in relations
    return tells


def _announcement_at(ordinal: int, relations: Mapping[int, bytes], *, streamed: bool) -> Announcement:
    """The announcement at `ordinal`. The xid that follows the type byte in a streamed transaction is removed."""
    payload = relations.get(ordinal)
    if payload is None or len(payload) < (9 if streamed else 5):
        raise _unreadable("a relation record without its content")
    if streamed:
        payload = unstreamed(payload)
    if payload[:1] == _MESSAGE:
        return message_at(ordinal, payload)
    (oid,) = struct.unpack_from(">I", payload, 1)
    return RelationSeen(Ordinal(ordinal), RelationId(oid), payload)


def _writer(payload: bytes) -> int:
    (xid,) = struct.unpack_from(">I", payload, 1)
    return int(xid)


def _settled(writer: int, seen: Announcement, aborted: frozenset[int]) -> Announcement:
    """An announcement of a streamed transaction at its commit, with the effect of rolled back subtransactions."""
    if not aborted or isinstance(seen, TicketSeen | LogsSeen):
        return seen
    if isinstance(seen, MessageSeen):
        return MessageSeen(seen.ordinal, seen.payload, aborted)
    return RelationSeen(seen.ordinal, seen.relation, seen.payload, void=writer in aborted)


def _unreadable(detail: str) -> EngineFault:
    return EngineFault(FaultKind.LOG_UNREADABLE, "log", detail)
