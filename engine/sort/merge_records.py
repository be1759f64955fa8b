"""What the merge of several logs takes and gives: records of global transactions, and what is released."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Order(StrEnum):
    """Which order unrelated transactions of different nodes get."""

    STRICT = "strict"
    """That of their stamps. A node that cannot be reached holds up the others."""
    CAUSAL = "causal"
    """That in which they are read. Only global transactions wait for other nodes."""


class EntryKind(Enum):
    """Records that decide on global transactions."""

    PREPARE = "prepare"
    OWN_COMMIT = "own commit"
    """The coordinator's commit, with its own part."""
    COMMIT_PREPARED = "commit prepared"
    ROLLBACK_PREPARED = "rollback prepared"


NO_ROWS = -1
"""The place of a part without rows."""
COMMITS = frozenset({EntryKind.OWN_COMMIT, EntryKind.COMMIT_PREPARED})
"""Those that decide that it is committed."""


class Entry(NamedTuple):
    """A record of one node's log that belongs to the global transaction `gtid`. `end`: its end in that log; `time_us`: its time there."""

    kind: EntryKind
    gtid: str
    end: int
    time_us: int
    place: int = 0
    """Of PREPARE and OWN_COMMIT: where the caller keeps the part's rows."""
    begin: int = 0
    """Of PREPARE: where the record begins; a reader that starts at or before gets the rows again."""
    participants: frozenset[int] | None = None
    """The nodes that have a part, if the record names them."""


@dataclass(frozen=True, slots=True)
class LocalRun:
    """Local transactions in their order: `nodes` (uint8), `ends` in the node's log, `times_us` and `places` as the caller gave them."""

    nodes: npt.NDArray[np.uint8]
    ends: Ints
    times_us: Ints
    places: Ints


@dataclass(frozen=True, slots=True)
class Global:
    """A global transaction, whole. `node`, `end`, `time_us`: the record at which it is released. `parts`: node and place, by node."""

    gtid: str
    node: int
    end: int
    time_us: int
    parts: tuple[tuple[int, int], ...]
    open: tuple[int, ...]
    """The nodes on which its part is prepared still, as far as their logs are merged."""
    rolled_back: tuple[int, ...] = ()
    """The nodes that rolled their part back: what is right only its owner knows."""
    has_own: bool = False
    """The coordinator has a part."""
    rollbacks: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    """By node of `open`, where the rollback of an earlier part under this id ends, if a later run could take it for one of this part: what
    ended before is released."""

    @property
    def kind(self) -> int | None:
        """1: it has parts on several nodes. 2: on one node, which is not the coordinator. None: on the coordinator only, so it is local."""
        several = len({self.node, *self.open, *(node for node, _ in self.parts)}) > 1
        return 1 if several else None if self.has_own else 2


class Closed(NamedTuple):
    """A node has committed its part of a global transaction that was released before."""

    gtid: str
    node: int
    end: int
    time_us: int


class Passed(NamedTuple):
    """A record that releases nothing: a PREPARE, or a rollback."""

    kind: EntryKind
    gtid: str
    node: int
    end: int


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A node rolled back its part of a global transaction that was released as committed: what is right only its owner knows."""

    gtid: str
    node: int
    end: int


Merged = LocalRun | Global | Closed | Passed | InDoubt
