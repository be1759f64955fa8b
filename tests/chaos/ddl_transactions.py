"""Random transactions over a run's tables: changes of rows and schemas, savepoints, ends, two of them concurrently. Pure.

Some are streamed while they are open: rows of BALLAST exceed the source's memory for decoding, and the transaction continues only after
the source has sent a part of it. Schema changes in such a transaction are usually rolled back to a savepoint, and it stays open during
several reads of the catalog, before and after that.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

from tests.chaos.ddl_changes import COLUMNS
from tests.chaos.ddl_model import Table
from tests.chaos.ddl_rows import ROWS, Change
from tests.chaos.ddl_tables import LEAVES, TABLES, create, exchange, rewrite

_TRIES = 6
_ROLLED_BACK = 0.12
_SAVEPOINT = 0.12
_EXCHANGE = 0.05
_ALONE = 0.06
_BESIDE = 0.2
_STREAMED = 0.25
_UNDONE = 0.85
"""How many of the savepoints of a streamed transaction are rolled back."""
_LOOKS = (0, 0, 2, 4)
BALLAST = "public.ballast"
"""A table that no subscription has."""
_SENT = f"INSERT INTO {BALLAST} SELECT repeat(md5(random()::text), 40) FROM generate_series(1, 200)"
_STREAMED_ONE = "streamed_one"


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL, and the tables whose structure or storage it changes in ways that the log may not tell at once.

    `streamed`: the transaction continues only when the source has sent a part of it. `looks`: it then stays open during this many reads
    of the catalog.
    """

    sql: str
    restructures: tuple[str, ...] = ()
    streamed: bool = False
    looks: int = 0


@dataclass
class Transaction:
    """Statements in order. `after`: its tables after the commit. `alone`: each statement separately, without a transaction."""

    statements: list[Statement] = field(default_factory=list)
    after: dict[str, Table] = field(default_factory=dict)
    commits: bool = True
    alone: bool = False

    @property
    def streamed(self) -> bool:
        """Whether it is made to be sent while it is open."""
        return any(statement.streamed for statement in self.statements)

    @property
    def restructured(self) -> frozenset[str]:
        """Tables whose schema or storage is different afterwards, or was temporarily different in something rolled back."""
        return frozenset(label for statement in self.statements for label in statement.restructures)


def step(rng: random.Random, tables: Mapping[str, Table]) -> list[Transaction]:
    """The next step: one transaction, or two concurrent ones over different tables."""
    labels = sorted(tables)
    rng.shuffle(labels)
    if rng.random() < _BESIDE and len(labels) > 1:
        cut = rng.randint(1, len(labels) - 1)
        parts = [labels[:cut], labels[cut:]]
        return [transaction(rng, {label: tables[label] for label in part}) for part in parts]
    return [transaction(rng, tables)]


def transaction(rng: random.Random, tables: Mapping[str, Table]) -> Transaction:
    """One over some of these tables, which stay as they are; it may hold no statement where none fits."""
    labels = sorted(tables)
    chosen = rng.sample(labels, min(len(labels), rng.choices((1, 2, 3), (70, 22, 8))[0]))
    made = Transaction(after={label: deepcopy(tables[label]) for label in chosen})
    first = made.after[chosen[0]]
    if first.exists and rng.random() < _ALONE:
        made.alone = True
        made.statements = [Statement(sql, (first.label,)) for sql in rewrite(rng, first)]
        return made
    if rng.random() < _STREAMED:
        _streamed(rng, made, chosen)
        made.commits = rng.random() >= 2 * _ROLLED_BACK
        return made
    for _ in range(rng.randint(1, 6)):
        if len(chosen) > 1 and rng.random() < _EXCHANGE:
            _exchange(made, chosen[0], chosen[1])
        elif rng.random() < _SAVEPOINT:
            _savepoint(rng, made, chosen)
        else:
            _statement(rng, made, rng.choice(chosen))
    made.commits = rng.random() >= _ROLLED_BACK
    return made


def _exchange(made: Transaction, one: str, other: str) -> None:
    found = exchange(made.after[one], made.after[other])
    if found is not None:
        statements, made.after[one], made.after[other] = found
        made.statements += [Statement(sql, (one, other)) for sql in statements]


def _savepoint(rng: random.Random, made: Transaction, chosen: Sequence[str]) -> None:
    """Some statements after a savepoint, which are kept or rolled back."""
    name = "inner_one"
    before, first = deepcopy(made.after), len(made.statements)
    kept = rng.random() < 0.35
    made.statements.append(Statement(f"SAVEPOINT {name}"))
    for _ in range(rng.randint(1, 3)):
        _statement(rng, made, rng.choice(chosen))
    if kept:
        made.statements.append(Statement(f"RELEASE {name}"))
        return
    _undo(made, before, first)
    made.statements.append(Statement(f"ROLLBACK TO {name}"))


def _undo(made: Transaction, before: dict[str, Table], first: int) -> None:
    """The statements from the `first` on change nothing: neither the model nor a structure."""
    made.after = before
    made.statements[first:] = [replace(statement, restructures=()) for statement in made.statements[first:]]


def _streamed(rng: random.Random, made: Transaction, chosen: Sequence[str]) -> None:
    """A transaction that is streamed while it is open, with savepoints whose schema changes are sent and then usually rolled back.

    Often no row of a table follows its schema change: neither in what is rolled back nor later.
    """
    for _ in range(rng.randint(0, 2)):
        _statement(rng, made, rng.choice(chosen))
    made.statements.append(Statement(_SENT, streamed=True))
    for _ in range(rng.choice((1, 1, 2))):
        before, first = deepcopy(made.after), len(made.statements)
        made.statements.append(Statement(f"SAVEPOINT {_STREAMED_ONE}"))
        for _ in range(rng.choice((1, 1, 2, 3))):
            label = rng.choice(chosen)
            _statement(rng, made, label, structure=True)
            for _ in range(rng.choice((0, 1, 1, 2))):  # Rows make the source announce the structure, once.
                _statement(rng, made, label, structure=False)
        made.statements.append(Statement(_SENT, streamed=True, looks=rng.choice(_LOOKS)))
        if rng.random() < _UNDONE:
            _undo(made, before, first)
            made.statements.append(Statement(f"ROLLBACK TO {_STREAMED_ONE}", looks=rng.choice(_LOOKS)))
        else:
            made.statements.append(Statement(f"RELEASE {_STREAMED_ONE}", looks=rng.choice(_LOOKS)))
    for _ in range(rng.choice((0, 0, 1, 2))):
        _statement(rng, made, rng.choice(chosen))


def _statement(rng: random.Random, made: Transaction, label: str, *, structure: bool | None = None) -> None:
    """One change of a table, of as many statements as it takes. `structure`: one of its structure, or none; None: either."""
    table = made.after[label]
    if not table.exists:
        if structure is not False:
            made.statements += [Statement(sql, (label,)) for sql in create(rng, table)]
            table.fixed = True
        return
    rows = rng.random() < 0.6 if structure is None else not structure
    changes = ROWS if rows else _structural(rng, table)
    for _ in range(_TRIES):
        (change,) = rng.choices([c for _, c in changes], [weight for weight, _ in changes])
        statements = change(rng, table)
        if statements:
            told = () if rows else (label,)
            made.statements += [Statement(sql, told) for sql in statements]
            return


def _structural(rng: random.Random, table: Table) -> Sequence[tuple[int, Change]]:
    roll = rng.random()
    if roll < 0.12:
        return TABLES
    return LEAVES if table.partitioned and roll < 0.4 else COLUMNS
