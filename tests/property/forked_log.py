"""Logs that fork: transactions at positions, two histories with a common beginning, and what a source sends of one in a session."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.model.position import Lsn
from engine.model.source import RecordChunk
from engine.records.scan import find_controls
from tests.unit.net import pgoutput_encoder as pgoutput

_TABLE = 5


@dataclass(frozen=True, slots=True)
class Written:
    """A row, or a message, and the (sub)transaction that wrote it."""

    writer: int
    row: bool


@dataclass(frozen=True, slots=True)
class Transaction:
    """Its commit record lies at `[start, end)`. One without changes has no `parts`; a mere position has no xid either."""

    xid: int
    start: int
    end: int
    time_us: int
    parts: tuple[Written, ...] = ()
    aborted: frozenset[int] = frozenset()

    @property
    def left(self) -> list[Written]:
        return [part for part in self.parts if part.writer not in self.aborted]

    @property
    def certain(self) -> bool:
        """Whether any way to send it shows that it has changes: a message does not say which subtransaction wrote it."""
        return any(part.row for part in self.left) or (bool(self.left) and not self.aborted)


def history(rng: random.Random, before: Sequence[Transaction], count: int, clock_us: int) -> list[Transaction]:
    """`before`, followed by `count` more transactions and positions, from this time on."""
    found = list(before)
    at = found[-1].end if found else 100
    for _ in range(count):
        start = at + rng.choice((0, 0, 3, 40))
        at = start + rng.randint(1, 9)
        clock_us += rng.randint(1, 5)
        xid = 3 + 10 * len(found)
        if rng.random() < 0.3:
            found.append(Transaction(0, start, at, 0))
            continue
        writers = [xid, xid + 1, xid + 2]
        parts = tuple(Written(rng.choice(writers), rng.random() < 0.8) for _ in range(rng.choice((0, 1, 1, 2, 5))))
        aborted = frozenset(sub for sub in writers[1:] if rng.random() < 0.3)
        found.append(Transaction(xid, start, at, clock_us, parts, aborted))
    return found


@dataclass(frozen=True, slots=True)
class Sent:
    """A record, or a keepalive without one, and up to where the log is read then."""

    record: bytes | None
    position: int


class Walsender:
    """Sends one history. `old`: as versions do that send transactions without changes."""

    def __init__(self, rng: random.Random, log: Sequence[Transaction], *, old: bool) -> None:
        self._rng, self._log, self._old = rng, log, old

    def session(self, begin: int) -> list[Sent]:
        """Everything whose commit record does not lie before `begin`."""
        out: list[Sent] = []
        border = 0
        for one in self._log:
            if one.xid and one.start >= begin:
                if self._rng.random() < 0.5:
                    # Its chunks may have come before what committed since.
                    at = self._rng.choice((border, len(out)))
                    out[at:at] = [Sent(record, 0) for record in self._chunks(one)]
                    out.append(Sent(pgoutput.stream_commit(one.xid, one.start, one.end, one.time_us), one.end))
                elif one.left or self._old:
                    out += self._plain(one)
                border = self._rng.choice((border, len(out)))
            if self._rng.random() < 0.5 and one.end >= begin:
                out.append(Sent(None, one.end))
        return out

    def _plain(self, one: Transaction) -> Iterator[Sent]:
        yield Sent(pgoutput.begin(one.start, one.xid, one.time_us), 0)
        yield from (Sent(_record(part, 0), 0) for part in one.left)
        yield Sent(pgoutput.commit(one.start, one.end, one.time_us), one.end)

    def _chunks(self, one: Transaction) -> list[bytes]:
        """As one chunk or two, and what was rolled back."""
        cut = self._rng.randint(0, len(one.parts))
        found: list[bytes] = []
        for parts in (one.parts[:cut], one.parts[cut:]):
            # A message carries the top transaction, whichever subtransaction wrote it.
            records = [_record(part, part.writer if part.row else one.xid) for part in parts]
            found += [pgoutput.stream_start(one.xid), *records, pgoutput.stream_stop()]
        return found + [pgoutput.stream_abort(one.xid, sub) for sub in sorted(one.aborted)]


def _record(part: Written, xid: int) -> bytes:
    return pgoutput.insert(_TABLE, ["1"], xid) if part.row else pgoutput.message("any", b"", xid)


def chunks(
    rng: random.Random, sent: Sequence[Sent], start: Lsn, *, two_phase: bool = False
) -> Iterator[tuple[RecordChunk, Lsn]]:
    """What is sent as it is read, in pieces cut anywhere, each with the highest position in it. `start` as the session's."""
    at, stream, read = 0, 0, start
    while at < len(sent):
        stop = min(len(sent), at + rng.randint(1, 12))
        piece = sent[at:stop]
        data, offsets = pgoutput.pack([one.record for one in piece if one.record is not None])
        controls, stream = find_controls(data, offsets, stream, two_phase=two_phase)
        highest = Lsn(max(one.position for one in piece))
        read = max(read, highest)
        yield RecordChunk(data, offsets, controls, {}, read), highest
        at = stop


def placed(chunk: RecordChunk, first: int) -> Any:
    """The chunk's control records with ordinals of the queue."""
    controls = np.array(chunk.controls)
    controls["ordinal"] += first
    return controls
