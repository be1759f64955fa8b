"""Relations of the merged log: each table has one number and one structure, whatever numbers it and its types have on the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Protocol

import numpy as np

from engine.model.identity import RelationId, TableName
from engine.platform.compiled import Array
from engine.records.relation import parse_relation, relation_record


class Numbers(Protocol):
    """Numbers in the merged log, by those that nodes use. May query the nodes."""

    def relation(self, node: int, name: TableName, oid: RelationId) -> RelationId:
        """The number of a table that is `oid` on this node."""
        ...

    def type(self, node: int, oid: int) -> int:
        """The number of a type that is `oid` on this node."""
        ...


class View:
    """What a node has announced up to some place in its log. Immutable; rows keep the view that holds for them."""

    def __init__(self, records: Mapping[int, tuple[int, bytes]]) -> None:
        """`records`: by the node's own number of a table, its number in the merged log and its record there."""
        self._records = records

    @property
    def by_oid(self) -> Mapping[int, tuple[int, bytes]]:
        """As given to the constructor."""
        return self._records

    def with_table(self, oid: int, number: int, record: bytes) -> View:
        return View({**self._records, oid: (number, record)})

    @cached_property
    def records(self) -> tuple[tuple[int, bytes], ...]:
        """Number in the merged log and record of each table."""
        return tuple(self._records.values())

    @cached_property
    def numbers(self) -> tuple[Array, Array]:
        """The node's own numbers in ascending order, and those in the merged log; both int64."""
        pairs = sorted((oid, number) for oid, (number, _) in self._records.items())
        return np.array([pair[0] for pair in pairs], np.int64), np.array([pair[1] for pair in pairs], np.int64)


class Relations:
    """The relation records of the merged log. Used by one thread."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._known: dict[tuple[int, bytes], tuple[int, int, bytes]] = {}
        self._last: dict[int, bytes] = {}
        """The last record of each table in the merged log, by its number there."""

    def announced(self, node: int, payload: bytes, view: View) -> View:
        """The view of a node after this relation record."""
        found = self._known.get((node, payload))
        if found is None:
            found = self._known[node, payload] = self._translated(node, payload)
        return view.with_table(*found)

    def due(self, number: int, record: bytes) -> bool:
        """Whether the merged log needs this record before rows of the table that have this structure. It counts as written then."""
        if self._last.get(number) == record:
            return False
        self._last[number] = record
        return True

    def _translated(self, node: int, payload: bytes) -> tuple[int, int, bytes]:
        announced = parse_relation(payload)
        number = self._numbers.relation(node, announced.name, announced.relation)
        columns = tuple(replace(c, type_oid=self._numbers.type(node, c.type_oid)) for c in announced.columns)
        return announced.relation, number, relation_record(replace(announced, relation=number, columns=columns))
