"""The expected state of a run's tables, as far as needed to generate valid statements. Pure."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum

from tests.chaos.ddl_types import ColumnType

WIDTH = 1000
"""Keys in the range of one partition."""
FAR = 1_000_000
"""Added to a key, it is one that nothing else uses."""


class Identity(StrEnum):
    """REPLICA IDENTITY of a table."""

    DEFAULT = "DEFAULT"
    FULL = "FULL"
    INDEX = "USING INDEX"
    NOTHING = "NOTHING"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass
class Column:
    """`base`: of a generated column, the one that it is made of. `counts`: its values are the table's own numbers, each used once."""

    name: str
    type: ColumnType
    not_null: bool = False
    default: str | None = None
    base: str | None = None
    counts: bool = False

    @property
    def sql(self) -> str:
        return quoted(self.name)


@dataclass
class Leaf:
    """A partition for keys from `low` on; None = the one for all others. `used`: numbers given out in it."""

    name: str
    low: int | None
    used: int = 0


@dataclass
class Table:
    """A table, or the object with its name; `exists` False: there is none.

    `home`: the schema in which it was created, with its enum and partitions. `labels`: usable values of its enum. `structure` counts
    changes that a detached partition does not receive. `index`: a unique one over `index_columns`.
    """

    label: str
    home: str
    schema: str
    name: str
    columns: list[Column] = field(default_factory=list)
    key: list[str] = field(default_factory=list)
    key_name: str = ""
    index: str | None = None
    index_columns: list[str] = field(default_factory=list)
    identity: Identity = Identity.DEFAULT
    partitioned: bool = False
    leaves: list[Leaf] = field(default_factory=list)
    detached: list[tuple[Leaf, int]] = field(default_factory=list)
    structure: int = 0
    enum: str = ""
    labels: tuple[str, ...] = ()
    new_labels: tuple[str, ...] = ()
    """Usable when the transaction that added them has committed."""
    exists: bool = True
    moved: bool = False
    """It got another name since the subscription was last seen to know all names."""
    fixed: bool = False
    """It must keep its name until then: the object with the name is not known yet, so a rename could not be followed."""
    numbers: int = 0
    names: int = 0
    ranges: int = 0
    """Ranges given to partitions so far."""

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def followed(self) -> bool:
        """Whether its updates and deletes can be followed."""
        if self.identity in (Identity.FULL, Identity.INDEX):
            return True
        return self.identity is Identity.DEFAULT and bool(self.key)

    @property
    def stored(self) -> list[Column]:
        """Columns that are written: all but generated ones."""
        return [c for c in self.columns if c.base is None]

    @property
    def counted(self) -> Column | None:
        return next((c for c in self.columns if c.counts), None)

    @property
    def free(self) -> list[Column]:
        """Columns that nothing rests on."""
        used = {*self.key, *self.index_columns, *(c.base for c in self.columns)}
        return [c for c in self.stored if not c.counts and c.name not in used]

    @property
    def catch_all(self) -> Leaf | None:
        return next((leaf for leaf in self.leaves if leaf.low is None), None)

    def leaf_sql(self, leaf: Leaf) -> str:
        return f"{quoted(self.home)}.{quoted(leaf.name)}"

    def column(self, name: str) -> Column:
        return next(c for c in self.columns if c.name == name)

    def fresh(self, prefix: str) -> str:
        """A name that this table has not given yet."""
        self.names += 1
        return f"{prefix}{self.names}"

    def number(self, leaf: Leaf | None = None) -> int:
        """The next own number: in the range of a partition, or in no range where it is for the one without."""
        if leaf is not None and leaf.low is not None:
            leaf.used += 1
            return leaf.low + leaf.used
        self.numbers += 1
        return self.numbers + (5 * FAR if leaf is not None else 0)

    def new_leaf(self) -> Leaf:
        """A partition for a range that none had before."""
        self.ranges += 1
        return Leaf(self.fresh(f"{self.label}_p"), (self.ranges - 1) * WIDTH)

    def rename_column(self, old: str, new: str) -> None:
        for column in self.columns:
            column.base = new if column.base == old else column.base
        self.column(old).name = new
        self.key = [new if name == old else name for name in self.key]
        self.index_columns = [new if name == old else name for name in self.index_columns]
        self.structure += 1

    def drop_column(self, name: str) -> None:
        """With all that rests on it."""
        self.columns = [c for c in self.columns if name not in (c.name, c.base)]
        if name in self.key:
            self.key = []
        if name in self.index_columns:
            self.drop_index()
        self.structure += 1

    def drop_index(self) -> None:
        """Where it was the replica identity, the table has none then."""
        self.index, self.index_columns = None, []
        if self.identity is Identity.INDEX:
            self.identity = Identity.NOTHING

    def committed(self) -> Table:
        """The state after the commit of its changes."""
        after = deepcopy(self)
        after.labels, after.new_labels = after.labels + after.new_labels, ()
        return after


def exchanged(one: Table, other: Table) -> tuple[Table, Table]:
    """Both tables when their names have been exchanged: each name then stands for what the other stood for."""
    first, second = deepcopy(other), deepcopy(one)
    first.label, first.schema, first.name = one.label, one.schema, one.name
    second.label, second.schema, second.name = other.label, other.schema, other.name
    first.fixed = second.fixed = True
    return first, second
