"""Changes handed back as they are: in the order of the log, each with the end of its transaction, old key and new values."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.model.batch import LogRange, TableChanges
from engine.model.fault import FaultKind
from engine.model.identity import Ordinal
from engine.model.position import Lsn
from engine.model.schema import KeyMode
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.net.batch_builder import FIRST, column, part, table, task

KEYED = table([column("id", "int4"), column("a"), column("b")], ["id"], oid=1)
PLAIN = table([column("v", "int4")], mode=KeyMode.APPEND, oid=2)


def shown(*found: TableChanges) -> list[dict[str, Any]]:
    """All rows of all tables in order, without hashes."""
    rows = [
        {"table": changes.table, **{k: v for k, v in row.items() if k not in {"h", "g"}}}
        for changes in found
        if changes.in_order is not None
        for row in changes.in_order.to_pylist()
    ]
    return sorted(rows, key=lambda row: row["n"])


def test_changes_of_several_transactions_and_tables() -> None:
    records = [
        pgoutput.begin(50, 7),
        pgoutput.insert(1, ["1", "x", None]),
        pgoutput.insert(2, ["5"]),
        pgoutput.commit(50, 60),
        pgoutput.begin(70, 8),
        pgoutput.update(1, ["1", "y", pgoutput.UNCHANGED]),
        pgoutput.update(1, ["2", "y", "z"], ["1", None, None], "K"),
        pgoutput.delete(1, ["2", None, None], "K"),
        pgoutput.truncate([2]),
        pgoutput.commit(70, 85),
    ]
    ranges = [LogRange(Ordinal(FIRST), Ordinal(FIRST + len(records)), Lsn(85))]
    result = task(records, [part(KEYED), part(PLAIN)], ranges, in_order=True)
    keyed = {"table": "t1", "u2": False, "moved": False}
    assert shown(*result.tables) == [
        {**keyed, "n": 0, "end": 60, "op": 1, "k0": 1, "c0": 1, "c1": "x", "c2": None},
        {"table": "t2", "n": 1, "end": 60, "op": 1, "moved": False, "c0": 5},
        {**keyed, "n": 2, "end": 85, "op": 2, "k0": 1, "c0": 1, "c1": "y", "c2": None, "u2": True},
        {**keyed, "n": 3, "end": 85, "op": 2, "k0": 1, "c0": 2, "c1": "y", "c2": "z", "moved": True},
        {**keyed, "n": 4, "end": 85, "op": 3, "k0": 2, "c0": None, "c1": None, "c2": None},
        {"table": "t2", "n": 5, "end": 85, "op": 4, "moved": False, "c0": None},
    ]
    keyed_rows = next(t for t in result.tables if t.table == "t1").in_order.to_pylist()  # type: ignore[union-attr]
    first, second, moved, gone = keyed_rows
    assert first["h"] == first["g"] == second["h"] == moved["g"] != moved["h"] == gone["h"]
    assert {t.table: dict(t.counts) for t in result.tables} == {
        "t1": {"insert": 1, "update": 2, "delete": 1},
        "t2": {"insert": 1, "truncate": 1},
    }


def test_a_streamed_transaction_ends_where_its_range_says() -> None:
    records = [pgoutput.insert(1, ["1", "x", "y"], xid=9), pgoutput.insert(1, ["2", "x", "y"], xid=10)]
    ranges = [LogRange(Ordinal(FIRST), Ordinal(FIRST + 2), Lsn(99), 9, frozenset({10}))]
    (found,) = task(records, [part(KEYED)], ranges, in_order=True).tables
    assert [(row["k0"], row["end"]) for row in shown(found)] == [(1, 99)]


def test_a_table_without_a_key_takes_inserts_only() -> None:
    records = [pgoutput.insert(2, ["1"]), pgoutput.update(2, ["2"], ["1"], "O")]
    (found,) = task(records, [part(PLAIN)], in_order=True).tables
    assert found.fault is not None
    assert found.fault.code == FaultKind.NET_CHANGE_ANOMALY


def test_where_only_whole_rows_tell_rows_apart_all_columns_are_the_key() -> None:
    bag = table([column("a", "int4"), column("b")], mode=KeyMode.BAG, oid=3)
    records = [
        pgoutput.insert(3, ["1", "x"]),
        pgoutput.update(3, ["2", pgoutput.UNCHANGED], ["1", "x"], "O"),
        pgoutput.delete(3, ["2", "x"], "O"),
    ]
    (found,) = task(records, [part(bag)], in_order=True).tables
    assert [(row["k0"], row["k1"], row["c0"], row["c1"], row["moved"]) for row in shown(found)] == [
        (1, "x", 1, "x", False),
        (1, "x", 2, "x", True),
        (2, "x", None, None, False),
    ]
    inserted, updated, deleted = found.in_order.to_pylist()  # type: ignore[union-attr]
    assert inserted["h"] == updated["g"] != updated["h"] == deleted["h"]


def test_a_value_out_of_domain_is_the_tables_fault() -> None:
    (found,) = task([pgoutput.insert(1, ["99999999999", "x", "y"])], [part(KEYED)], in_order=True).tables
    assert found.fault is not None
    assert (found.fault.code, found.in_order) == (FaultKind.VALUE_OUT_OF_DOMAIN, None)


acts = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 4)), max_size=30)


@given(acts=acts, buckets=st.integers(1, 4))
def test_buckets_together_are_all_changes_once(acts: list[tuple[int, int, int]], buckets: int) -> None:
    records = []
    for op, key, to in acts:
        if op == 0:
            records.append(pgoutput.insert(1, [str(key), "i", None]))
        elif op == 1:
            records.append(pgoutput.update(1, [str(to), "u", "w"], [str(key), None, None], "K"))
        elif op == 2:
            records.append(pgoutput.delete(1, [str(key), None, None], "K"))
        else:
            records.append(pgoutput.insert(2, [str(to)]))
    parts = [part(KEYED), part(PLAIN)]
    found = [t for b in range(buckets) for t in task(records, parts, bucket=b, buckets=buckets, in_order=True).tables]
    expected = []
    for n, (op, key, to) in enumerate(acts):
        expected.append((n, {0: key, 1: key, 2: key, 3: None}[op], {0: key, 1: to, 2: None, 3: to}[op]))
    assert [(row["n"], row.get("k0"), row["c0"]) for row in shown(*found)] == expected
