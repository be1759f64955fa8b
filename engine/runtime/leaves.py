"""Partitions that the log names below their roots: one that came and went between two looks at the catalog shows in neither."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from engine.capture.postgres_log.relation import named_below
from engine.model.batch import SealedBatch
from engine.model.identity import RelationId, TableName
from engine.model.position import Lsn

LEAVES_KEPT = 100_000
"""How many partitions are known between two looks; each is named once per session, and once more per streamed transaction."""


@dataclass(frozen=True, slots=True)
class ToldLeaf:
    """A partition that has changes in the log. `end`: of the last batch that names it, behind the commit of those changes."""

    name: TableName
    end: Lsn


LeavesTold = Mapping[RelationId, Mapping[RelationId, ToldLeaf]]
"""By root, and by partition."""


class ToldLeaves:
    """What sealed batches name since somebody took it. One thread notes, another may take.

    It ends with the process: where that dies between the batch that has such a partition's rows and the next two looks, nobody knows any
    more that there was one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: dict[RelationId, dict[RelationId, ToldLeaf]] = {}
        self._kept = 0

    def note(self, batch: SealedBatch) -> None:
        """Take in the partitions that the batch names. Also those whose changes were rolled back to a savepoint: later ones may count."""
        for root, leaf in pairwise(batch.relations):
            if root.relation == leaf.relation:
                continue
            name = named_below(leaf.payload, leaf.ordinal - root.ordinal)
            if name is not None:
                self._add(root.relation, leaf.relation, ToldLeaf(name, batch.end))

    def take(self) -> LeavesTold:
        """What was noted since the last call."""
        with self._lock:
            told, self._told, self._kept = self._told, {}, 0
        return told

    def _add(self, root: RelationId, leaf: RelationId, told: ToldLeaf) -> None:
        with self._lock:
            below = self._told.setdefault(root, {})
            if leaf in below or self._kept < LEAVES_KEPT:
                self._kept += leaf not in below
                below[leaf] = told
