"""What the log shows of changes that the catalog shows too: truncates, and partitions that were created or that rows name.

The source monitor compares both, and so tells what the log explains from what was done past it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.model.batch import BlockRef, MessageSeen, SealedBatch
from engine.model.control import ControlKind
from engine.model.ddl import DdlMessage
from engine.model.fault import EngineFault
from engine.model.identity import Ordinal, RelationId
from engine.model.position import ZERO
from engine.model.source import Landed
from engine.queue.block import read_block
from engine.records.messages import OwnMessage, parse_truncate
from engine.safety.observed_partitions import (
    PARTITIONS_OBSERVED,
    ObservedPartition,
    ObservedPartitionsReading,
    named_partitions,
)

PARTITIONS_KEPT = 10_000
"""Number of last created partitions that are known: as TRUNCATIONS_KEPT, it must cover those between two checks of the source."""
TRUNCATIONS_KEPT = 10_000
"""Number of last truncating transactions that are known. It must cover the transactions between two checks of the source."""


class LogEvidence:
    """Truncates and partitions of the log of one run. One thread notes; any thread may ask.

    A truncate within a savepoint is known under the savepoint's own transaction only if its top-level transaction was streamed;
    otherwise the log does not show savepoints. In memory only: after a restart, unchecked partitions are found in the persisted
    fingerprints (`PartitionFingerprints`).
    """

    def __init__(
        self,
        parse_ddl: Callable[[bytes], DdlMessage],
        read: Callable[[BlockRef], tuple[Any, Any]] = read_block,
    ) -> None:
        """`parse_ddl`: as DdlReports.parse. `read`: the records of a block and their borders."""
        self._parse_ddl = parse_ddl
        self._read = read
        self._plain_xid = 0
        """The plain transaction being read; it may end in a later chunk."""
        self._relations: dict[int, frozenset[int]] = {}
        self._together: dict[int, frozenset[int]] = {}
        self._made: dict[int, frozenset[RelationId]] = {}
        self._lock = threading.Lock()
        """Guards the partitions observed since the last `take_partitions`."""
        self._observed: dict[RelationId, dict[RelationId, ObservedPartition]] = {}
        self._count = 0
        self._as_of = ZERO

    def truncated_by(self, xid: int) -> frozenset[int]:
        """OIDs of the tables that this (sub)transaction truncated, also if it rolled back."""
        return self._relations.get(xid, frozenset())

    def truncated_together(self, ordinal: Ordinal) -> frozenset[int]:
        """OIDs of the tables that the TRUNCATE record at this ordinal names if there are several, else an empty set."""
        return self._together.get(ordinal, frozenset())

    def made_below(self, partition: int) -> frozenset[RelationId]:
        """The roots under which this table was created as a partition, according to the DDL messages."""
        return self._made.get(partition, frozenset())

    def take_partitions(self) -> ObservedPartitionsReading:
        """Return and clear the partitions that sealed batches name since the last call."""
        with self._lock:
            observed, self._observed, self._count = self._observed, {}, 0
            return ObservedPartitionsReading(self._as_of, observed)

    def begin_session(self) -> None:
        """A new connection: a plain transaction that was being read is sent again."""
        self._plain_xid = 0

    def sealed(self, batch: SealedBatch) -> None:
        """Note the partitions that the batch names."""
        with self._lock:
            self._as_of = batch.end
            for root, leaf, name in named_partitions(batch, self.truncated_together):
                below = self._observed.setdefault(root, {})
                if leaf in below or self._count < PARTITIONS_OBSERVED:
                    self._count += leaf not in below
                    below[leaf] = ObservedPartition(name, batch.end)

    def landed(self, landed: Landed, messages: Sequence[OwnMessage]) -> None:
        """Note the truncates of a landing, and the partitions that its `messages` report. Raises EngineFault if a TRUNCATE record cannot
        be read."""
        if len(landed.controls) == 0:
            return
        self._note_partitions(messages)
        kinds = landed.controls["kind"]
        truncates = kinds == ControlKind.TRUNCATE
        # A transaction's truncates follow its BEGIN, perhaps in a later chunk.
        begins = (kinds == ControlKind.BEGIN) | (kinds == ControlKind.SESSION)
        if landed.block is None or not truncates.any():
            places = np.flatnonzero(begins)
            self._plain_xid = int(landed.controls["xid"][places[-1]]) if len(places) else self._plain_xid
            return
        wanted = landed.controls[truncates | begins]
        data, offsets = self._read(landed.block)
        for kind, ordinal, top in zip(*(wanted[name].tolist() for name in ("kind", "ordinal", "xid")), strict=True):
            if kind != ControlKind.TRUNCATE:
                self._plain_xid = top
                continue
            place = ordinal - landed.block.first
            record = bytes(data[offsets[place] : offsets[place + 1]])
            xid, relations = parse_truncate(record, streamed=top != 0)
            self._add(xid or self._plain_xid, relations)
            if len(relations) > 1:
                self._together[ordinal] = frozenset(relations)
                if len(self._together) > TRUNCATIONS_KEPT:
                    del self._together[next(iter(self._together))]

    def _note_partitions(self, messages: Sequence[OwnMessage]) -> None:
        for seen in messages:
            if not isinstance(seen, MessageSeen):
                continue
            try:
                message = self._parse_ddl(seen.payload)
            except EngineFault:
                continue  # The planner warns of it.
            if message.partition is not None:
                self._made[message.partition] = message.below
                if len(self._made) > PARTITIONS_KEPT:
                    del self._made[next(iter(self._made))]

    def _add(self, xid: int, relations: tuple[int, ...]) -> None:
        self._relations[xid] = self._relations.get(xid, frozenset()) | frozenset(relations)
        if len(self._relations) > TRUNCATIONS_KEPT:
            del self._relations[next(iter(self._relations))]
