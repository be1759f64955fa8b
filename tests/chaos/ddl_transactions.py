"""Random transactions over a run's tables: changes of rows and structure, savepoints, ends, and two of them beside each other. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from tests.chaos.ddl_changes import COLUMNS
from tests.chaos.ddl_model import Table
from tests.chaos.ddl_rows import ROWS, SINGLE, Change
from tests.chaos.ddl_tables import LEAVES, TABLES, create, exchange, rewrite

_TRIES = 6
_ROLLED_BACK = 0.12
_SAVEPOINT = 0.12
_EXCHANGE = 0.05
_ALONE = 0.06
_BESIDE = 0.2


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL, and the table whose structure or storage it changes in ways that the log may not tell at once."""

    sql: str
    restructures: tuple[str, ...] = ()


@dataclass
class Transaction:
    """Statements in order. `after`: its tables behind the commit. `alone`: each statement for itself, in no transaction."""

    statements: list[Statement] = field(default_factory=list)
    after: dict[str, Table] = field(default_factory=dict)
    commits: bool = True
    alone: bool = False

    @property
    def restructured(self) -> frozenset[str]:
        """Tables whose structure is another one afterwards, or was for a moment."""
        return frozenset(label for statement in self.statements for label in statement.restructures)


def step(rng: random.Random, tables: Mapping[str, Table], *, streamed: bool) -> list[Transaction]:
    """What comes next: one transaction, or two over different tables to be played beside each other.

    `streamed`: the source sends changes before it knows what becomes of them. PostgreSQL's own decoder fails then ("could not map
    filenumber") or crashes where a savepoint with changes of structure is rolled back, so there are none of those.
    """
    labels = sorted(tables)
    rng.shuffle(labels)
    if rng.random() < _BESIDE and len(labels) > 1:
        cut = rng.randint(1, len(labels) - 1)
        parts = [labels[:cut], labels[cut:]]
        return [transaction(rng, {label: tables[label] for label in part}, streamed=streamed) for part in parts]
    return [transaction(rng, tables, streamed=streamed)]


def transaction(rng: random.Random, tables: Mapping[str, Table], *, streamed: bool) -> Transaction:
    """One over some of these tables, which stay as they are; it may hold no statement where none fits."""
    labels = sorted(tables)
    chosen = rng.sample(labels, min(len(labels), rng.choices((1, 2, 3), (70, 22, 8))[0]))
    made = Transaction(after={label: deepcopy(tables[label]) for label in chosen})
    first = made.after[chosen[0]]
    if first.exists and rng.random() < _ALONE:
        made.alone = True
        made.statements = [Statement(sql, (first.label,)) for sql in rewrite(rng, first)]
        return made
    for _ in range(rng.randint(1, 6)):
        if len(chosen) > 1 and rng.random() < _EXCHANGE:
            _exchange(made, chosen[0], chosen[1])
        elif rng.random() < _SAVEPOINT:
            _savepoint(rng, made, chosen, streamed=streamed)
        else:
            _statement(rng, made, rng.choice(chosen))
    made.commits = rng.random() >= _ROLLED_BACK
    return made


def _exchange(made: Transaction, one: str, other: str) -> None:
    found = exchange(made.after[one], made.after[other])
    if found is not None:
        statements, made.after[one], made.after[other] = found
        made.statements += [Statement(sql, (one, other)) for sql in statements]


def _savepoint(rng: random.Random, made: Transaction, chosen: Sequence[str], *, streamed: bool) -> None:
    """Some statements behind a savepoint, which are kept or undone."""
    before = deepcopy(made.after)
    kept = rng.random() < 0.35
    made.statements.append(Statement("SAVEPOINT inner_one"))
    for _ in range(rng.randint(1, 3)):
        _statement(rng, made, rng.choice(chosen), plain=streamed and not kept)
    if kept:
        made.statements.append(Statement("RELEASE inner_one"))
        return
    made.statements.append(Statement("ROLLBACK TO inner_one"))
    made.after = before


def _statement(rng: random.Random, made: Transaction, label: str, *, plain: bool = False) -> None:
    """One change of a table, of as many statements as it takes. `plain`: of single rows only."""
    table = made.after[label]
    if not table.exists:
        if plain:
            return
        made.statements += [Statement(sql, (label,)) for sql in create(rng, table)]
        table.fixed = True
        return
    rows = plain or rng.random() < 0.6
    changes = SINGLE if plain else ROWS if rows else _structural(rng, table)
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
