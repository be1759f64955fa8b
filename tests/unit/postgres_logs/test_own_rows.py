"""Coordinators' own parts that rows name: the merged log is the one that it is if messages name them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.schema import Column, SourceType
from engine.sort.merge_records import Order
from engine.sources.postgres_logs.node_tables import NodeTable
from engine.sources.postgres_logs.own_rows import OwnRows
from engine.sources.postgres_logs.own_table import unfit
from tests.pg.postgres_logs.nodes import OWN
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.postgres_logs.fed_nodes import Log, Mark, Merged, chunk_of
from tests.unit.postgres_logs.test_kept_transactions import (
    MANY,
    History,
    assert_is_history,
    deliveries,
    histories,
    limits,
    logs_of,
    read_all,
    rows_of,
    spread,
    value_of,
)

TABLE = TableName("public", "gtids")
OWN_ROWS = TABLE, "gtid"
LAYOUTS = [("id", "gtid", "note"), ("gtid", "note"), ("id", "added", "note", "gtid")]
NOTE = "of the coordinator"
"""In each row of the table, so that it is found in the merged log."""
Value = str | None


def oid_of(log: Log) -> int:
    return 900 + log.node


def announced(log: Log, columns: Sequence[str]) -> bytes:
    return pgoutput.relation(oid_of(log), columns).replace(b"public\0t\0", b"public\0gtids\0")


def row_of(log: Log, columns: Sequence[str], gtid: Value) -> bytes:
    values = {"id": "7", "added": None, "note": NOTE, "gtid": gtid}
    return pgoutput.insert(oid_of(log), [values[name] for name in columns])


def by_rows(log: Log, chance: Random) -> Log:
    """The same log with rows in place of the messages, and with rows that name nothing."""
    records: list[bytes] = []
    places = [0]
    columns: Sequence[str] = ()
    head = pgoutput.message(OWN, b"")[:-4]
    for record in log.records:
        if record.startswith(head):
            gtid = record[len(head) + 4 :].decode()
            for name in chance.choice([[gtid], [gtid, None], [None, gtid], ["another", gtid]]):
                if not columns or chance.random() < 0.3:
                    columns = chance.choice(LAYOUTS)
                    records.append(announced(log, columns))
                records.append(row_of(log, columns, name))
        else:
            if columns and record[:1] == b"C" and chance.random() < 0.3:
                records.append(row_of(log, columns, None))
            elif columns and record[:1] == b"P" and chance.random() < 0.3:
                records.append(row_of(log, columns, "of a prepared part"))
            records.append(record)
        places.append(len(records))
    return replace(log, records=records, ends=[(places[count], end) for count, end in log.ends])


def without_own_rows(found: Sequence[Merged]) -> list[Merged]:
    noted = NOTE.encode()
    return [replace(each, rows=tuple(row for row in each.rows if noted not in row)) for each in found]


def values(found: Sequence[Merged]) -> list[tuple[Mark, tuple[bytes, ...]]]:
    """The numbers of tables depend on which was announced first."""
    return [(each.mark, tuple(map(value_of, each.rows))) for each in found]


@st.composite
def own_parts(draw: st.DrawFn) -> History:
    """Own parts of two nodes among local transactions, so that most are in runs, after their table was announced."""
    logs = logs_of(2)
    history = History(logs)
    for number, (node, is_own) in enumerate(draw(st.lists(st.tuples(st.integers(0, 1), st.booleans()), max_size=12))):
        if is_own:
            for _ in spread(history, f"g{number}", [logs[node], logs[1 - node]], "commit", has_own=True):
                continue
        else:
            rows = rows_of(logs[node], f"l{number}", 2)
            history.expected[node, logs[node].local(rows)] = (tuple(rows),)
    return history


@settings(max_examples=300, deadline=None)
@given(histories() | own_parts(), deliveries(), limits, st.sampled_from(Order), st.randoms(use_true_random=False))
def test_rows_name_transactions_as_messages_do(
    history: History,
    delivery: tuple[list[list[int]], list[list[bool]]],
    given_limits: tuple[int, int],
    order: Order,
    chance: Random,
) -> None:
    logs = [by_rows(log, chance) for log in history.logs]
    found = without_own_rows(read_all(logs, delivery, order, given_limits, own_rows=OWN_ROWS).with_marks)
    assert_is_history(found, history)
    named = read_all(history.logs, delivery, order, (MANY, MANY)).with_marks
    if order is Order.STRICT:
        assert values(found) == values(named)
    else:
        # By which node's commit a global transaction is released depends on what was read first.
        assert Counter(rows for _, rows in values(found)) == Counter(rows for _, rows in values(named))


@pytest.mark.parametrize("named", [[], [0], [2, 3], [0, 1, 2, 3, 4, 5]])
def test_only_transactions_that_rows_name_are_taken_out_of_a_run(named: Sequence[int]) -> None:
    """Whichever they are, each is there once and in order, in chunks of any size."""
    for size in (1, 2, 5, 100):
        (log,) = logs_of(1)
        first = log.local([announced(log, LAYOUTS[0]), row_of(log, LAYOUTS[0], None)])
        ends = [first]
        for number in range(6):
            own = [row_of(log, LAYOUTS[0], f"g{number}")] if number in named else []
            ends.append(log.local([*rows_of(log, f"t{number}", 2), *own]))
        follower = read_all([log], ([[size] * 99], [[]]), Order.STRICT, (MANY, MANY), own_rows=OWN_ROWS)
        assert [each.mark for each in follower.with_marks] == [(0, end) for end in ends]
        assert [len(each.rows) for each in without_own_rows(follower.with_marks)] == [0, *[2] * 6]


def looked_at(*records: bytes, own: OwnRows | None = None) -> bytes | None:
    own = own or OwnRows(*OWN_ROWS)
    chunk = chunk_of(records, 1)
    found, at = None, 0
    for number, record in enumerate(records):
        if record[:1] == b"R":
            found = own.id_in(chunk, at, number) or found
            own.announced(record)
            at = number + 1
    return own.id_in(chunk, at, len(records)) or found


def test_the_last_row_that_has_an_id_names_the_transaction() -> None:
    (log,) = logs_of(1)
    first, _, last = LAYOUTS
    assert looked_at(row_of(log, first, "g")) is None
    assert looked_at(announced(log, first), row_of(log, first, None)) is None
    assert looked_at(announced(log, first), row_of(log, first, "g"), row_of(log, first, None)) == b"g"
    assert looked_at(announced(log, first), row_of(log, first, "g"), row_of(log, first, "h")) == b"h"
    assert looked_at(announced(log, last), row_of(log, last, "g"), announced(log, first)) == b"g"
    assert looked_at(announced(log, first), log.insert("1", "other")) is None
    changes = [pgoutput.update(oid_of(log), ["7", "g", NOTE]), pgoutput.delete(oid_of(log), ["7", "g", NOTE])]
    assert looked_at(announced(log, first), *changes) is None


def test_a_table_that_lost_its_column_or_its_name_ends_the_session() -> None:
    """Its transactions would come in parts otherwise."""
    (log,) = logs_of(1)
    renamed = pgoutput.relation(oid_of(log), LAYOUTS[0])
    for record, why in (
        (announced(log, ["id", "note"]), "it has no column gtid any more"),
        (renamed, "it was renamed to public.t"),
    ):
        own = OwnRows(*OWN_ROWS)
        own.announced(announced(log, LAYOUTS[0]))
        with pytest.raises(EngineFault) as caught:
            own.announced(record)
        assert (caught.value.kind, caught.value.subject, caught.value.detail) == (
            FaultKind.OWN_TABLE_UNFIT,
            "public.gtids",
            why,
        )


def table_with(problem: str | None, *types: str) -> NodeTable:
    """A table on nodes whose column has these types, by node; "" = it has no such column."""

    def part(kind: str) -> Any:
        column = Column("gtid", SourceType(kind), 1)
        return SimpleNamespace(columns=[SimpleNamespace(column=column)] if kind else [])

    parts: Mapping[int, Any] = {number: part(kind) for number, kind in enumerate(types)}
    return NodeTable(parts, problem, cast("Any", None))


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({TABLE: table_with(None, "text", "varchar")}, None),
        ({TABLE: table_with(None, "uuid")}, None),
        ({}, "is on no node"),
        ({TABLE: table_with(None, "text", "")}, "has no column gtid on node n2"),
        (
            {TABLE: table_with(None, "bpchar")},
            "has a column gtid of the type bpchar on node n1; it has to be text, varchar or uuid",
        ),
        (
            {TABLE: table_with(None, "int8")},
            "has a column gtid of the type int8 on node n1; it has to be text, varchar or uuid",
        ),
        ({TABLE: table_with("its keys differ", "text")}, "cannot be replicated: its keys differ"),
    ],
)
def test_a_table_whose_rows_can_name_nothing_is_unfit(found: Mapping[TableName, NodeTable], why: str | None) -> None:
    assert unfit(TABLE, "gtid", found, ("n1", "n2")) == why
