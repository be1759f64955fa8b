"""Relations of the merged log: each table has one number and one structure, whatever numbers it and its types have on the nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from engine.model.fault import FaultKind
from engine.model.identity import RelationId, TableName
from engine.model.schema import ReplicaIdentity
from engine.platform.compiled import Array
from engine.records.relation import Announced, AnnouncedColumn, parse_relation, relation_record

_REASON = "\x01penstock: "
"""What the name of the only column begins with in a record that announces that the table has to be copied again."""


class Why(NamedTuple):
    """Why a table has to be copied again."""

    kind: FaultKind
    reason: str


_EARLIER = Why(
    FaultKind.TABLE_STRUCTURE_CHANGED,
    "its structure was changed on one node, and rows of another one with the earlier structure follow",
)
_KINDS = frozenset({FaultKind.TABLE_STRUCTURE_CHANGED, FaultKind.GLOBAL_IN_DOUBT})


class Numbers(Protocol):
    """Numbers in the merged log, by those that nodes use. May query the nodes."""

    def relation(self, name: TableName) -> RelationId:
        """The number of a table."""
        ...

    def type(self, node: int, oid: int, table: TableName) -> int:
        """The number of a type that is `oid` on this node, for columns of this table."""
        ...

    def nodes_of(self, table: TableName) -> int:
        """How many nodes have the table."""
        ...

    def keys_of(self, tables: Collection[TableName]) -> Mapping[TableName, Collection[str]]:
        """The columns of these tables by which the target identifies a row; none if it does not."""
        ...


class ScatteredTables:
    """The tables that several nodes have, with the columns of their keys. The replica identity may be more than the key."""

    def __init__(self, keys: Mapping[int, Collection[str]] | None = None) -> None:
        """`keys`: names of columns by the table's number in the merged log."""
        self.keys: Mapping[int, Collection[str]] = keys or {}
        self.edition = 0
        """It grows with each change of `keys`."""
        self._names: dict[int, TableName] = {}

    def add(self, number: int, name: TableName, numbers: Numbers) -> None:
        """Several nodes have this table."""
        if number not in self._names:
            self._names[number] = name
            self._set({**self.keys, **self._read({number: name}, numbers)})

    def read(self, numbers: Numbers) -> None:
        """Read the keys as they are now: neither a key that the user declares nor that of a whole row is in the log."""
        self._set(self._read(self._names, numbers))

    @staticmethod
    def _read(names: Mapping[int, TableName], numbers: Numbers) -> dict[int, Collection[str]]:
        found = numbers.keys_of(names.values()) if names else {}
        return {number: frozenset(found.get(name, ())) for number, name in names.items()}

    def _set(self, keys: Mapping[int, Collection[str]]) -> None:
        if keys != self.keys:
            self.keys, self.edition = keys, self.edition + 1


class View:
    """What a node has announced up to some place in its log. Immutable; rows keep the view that holds for them."""

    def __init__(self, node: int, records: Mapping[int, tuple[int, bytes]], scattered: ScatteredTables) -> None:
        """`records`: by the node's own number of a table, its number in the merged log and its record there. `scattered`: it may get
        more."""
        self.node = node
        self._records = records
        self._scattered = scattered
        self._keys: tuple[int, Array] | None = None

    @property
    def by_oid(self) -> Mapping[int, tuple[int, bytes]]:
        """As given to the constructor."""
        return self._records

    def with_table(self, oid: int, number: int, record: bytes) -> View:
        return View(self.node, {**self._records, oid: (number, record)}, self._scattered)

    @cached_property
    def records(self) -> tuple[tuple[int, bytes], ...]:
        """Number in the merged log and record of each table."""
        return tuple(self._records.values())

    @cached_property
    def numbers(self) -> tuple[Array, Array]:
        """The node's own numbers in ascending order, and those in the merged log; both int64."""
        pairs = sorted((oid, number) for oid, (number, _) in self._records.items())
        return np.array([pair[0] for pair in pairs], np.int64), np.array([pair[1] for pair in pairs], np.int64)

    @property
    def has_scattered(self) -> bool:
        """Whether several nodes have one of these tables."""
        return bool(self.keys.any())

    @property
    def keys(self) -> Array:
        """Which columns are the key of a table that several nodes have: bool, by table in the order of `numbers`, and by column."""
        edition = self._scattered.edition
        if self._keys is None or self._keys[0] != edition:
            self._keys = edition, self._find_keys()
        return self._keys[1]

    def _find_keys(self) -> Array:
        keys = self._scattered.keys
        columns = [
            [column.name in keys[number] for column in parse_relation(record).columns] if number in keys else []
            for number, record in (self._records[oid] for oid in self.numbers[0].tolist())
        ]
        found = np.zeros((len(columns), max(map(len, columns), default=0)), np.bool_)
        for row, is_key in enumerate(columns):
            found[row, : len(is_key)] = is_key
        return found


@dataclass(slots=True)
class Structure:
    """The structure of a table in the merged log. `late`: nodes that have not been changed to it, as far as their rows show."""

    record: bytes
    late: set[int] = field(default_factory=set)


class Relations:
    """The relation records of the merged log. Used by one thread.

    A table's structure in the merged log is the one to which a node was changed last. Changes reach the nodes one after another, so rows of
    the earlier structure may follow, of nodes that are changed later. If they were announced by that structure, it would look as if
    the change had been taken back, and values would be lost: the table is announced as one to be copied again instead.
    """

    def __init__(self, numbers: Numbers, nodes: int, present: Mapping[int, Structure] | None = None) -> None:
        """`nodes`: their number. `present`: `present` at the end of the last session."""
        self._numbers = numbers
        self._nodes = range(nodes)
        self._known: dict[tuple[int, bytes], tuple[int, int, bytes]] = {}
        self._announced: dict[int, set[int]] = {}
        """By the table's number, the nodes that have announced it."""
        self._scattered = ScatteredTables()
        self._last: dict[int, bytes] = {}
        """The last record of each table in this session's merged log, by its number there."""
        self.present = dict(present or {})
        """By the table's number."""
        self.is_changed = False
        """Whether `present` has been changed. The user sets it back."""

    def nothing_of(self, node: int) -> View:
        """The view of a node that has announced nothing."""
        return View(node, {}, self._scattered)

    def announced(self, node: int, payload: bytes, view: View) -> View:
        """The view of a node after this relation record."""
        found = self._known.get((node, payload))
        if found is None:
            found = self._known[node, payload] = self._translated(node, payload)
        return view.with_table(*found)

    def forget(self) -> None:
        """Translate later records by the catalogs as they are then, and take the keys of tables from there."""
        self._known.clear()
        self._scattered.read(self._numbers)

    def is_last(self, number: int, record: bytes) -> bool:
        """Whether rows of this structure may follow without a record, whatever node they are of."""
        present = self.present.get(number)
        return self._last.get(number) == record and present is not None and not present.late

    def due(self, node: int, number: int, record: bytes) -> bytes | None:
        """The record that the merged log needs before rows of a node that have this structure, if it needs one. It counts as written."""
        present = self.present.get(number)
        if present is None:
            self.present[number], self.is_changed = Structure(record), True
        elif present.record == record:
            self.is_changed |= node in present.late
            present.late.discard(node)
        elif node in present.late:
            record = reason_record(record, _EARLIER)
        else:
            self.present[number], self.is_changed = Structure(record, set(self._nodes) - {node}), True
        return self._note(number, record)

    def reload(self, number: int, record: bytes, why: Why) -> bytes | None:
        """As `due`, for a table that has to be copied again."""
        return self._note(number, reason_record(record, why))

    def is_single(self, record: bytes) -> bool:
        """Whether one node has all rows of a table."""
        return self._numbers.nodes_of(parse_relation(record).name) == 1

    def _note(self, number: int, record: bytes) -> bytes | None:
        if self._last.get(number) == record:
            return None
        self._last[number] = record
        return record

    def _translated(self, node: int, payload: bytes) -> tuple[int, int, bytes]:
        announced = parse_relation(payload)
        number = self._numbers.relation(announced.name)
        nodes = self._announced.setdefault(number, set())
        nodes.add(node)
        if len(nodes) > 1 or self._numbers.nodes_of(announced.name) > 1:
            self._scattered.add(number, announced.name, self._numbers)
        columns = tuple(
            replace(c, type_oid=self._numbers.type(node, c.type_oid, announced.name)) for c in announced.columns
        )
        return announced.relation, number, relation_record(replace(announced, relation=number, columns=columns))


def reason_record(record: bytes, why: Why) -> bytes:
    """A record of the same table that announces, in place of a structure, why the table has to be copied again."""
    column = AnnouncedColumn(_REASON + f"{why.kind}:{why.reason}", identity=False, type_oid=25, modifier=-1)
    return relation_record(replace(parse_relation(record), identity=ReplicaIdentity.NOTHING, columns=(column,)))


def reason_of(announced: Announced) -> Why | None:
    """Why a table has to be copied again, if the record announces that."""
    only = announced.columns[0].name if len(announced.columns) == 1 else ""
    kind, _, reason = only.removeprefix(_REASON).partition(":")
    return Why(FaultKind(kind), reason) if only.startswith(_REASON) and kind in _KINDS else None
