"""The part of a batch that concerns an unfinished copy, compared with a model of the copy as a set of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.copy.key_range_filter import KeyRange, KeyUnordered, RowUnknown, key_row, restrict_to_range
from engine.model.batch import TableChanges
from engine.model.copies import KeyBound
from engine.model.identity import RelationId, TableId, TableName
from engine.model.schema import Column, KeyMode, ReplicaIdentity, SourceType, TableSchema
from engine.net import decode_copy_text

TABLE = TableId("t1")
Key = tuple[int, str]
Rows = dict[Key, str]
KEYS = st.tuples(st.integers(-3, 3), st.sampled_from(["", "A", "a", "b\t", "\\é"]))
TEXT = st.sampled_from(["x", "y"])


def schema(*types: str, map_as: str | None = None) -> TableSchema:
    columns = tuple(Column(f"k{i}", SourceType(name), i + 1, map_as=map_as) for i, name in enumerate(types))
    rest = (Column("v", SourceType("text"), 9, map_as=map_as),)
    names = tuple(column.name for column in columns)
    return TableSchema(
        TableName("s", "t"), RelationId(1), columns + rest, names, KeyMode.KEYED, ReplicaIdentity.DEFAULT
    )


PLAIN, MAPPED = schema("int8", "text"), schema("int8", "text", map_as="source")


def columns(prefix: str, values: list[Any], *, mapped: bool) -> dict[str, Any]:
    first = [str(v[0]) for v in values] if mapped else [v[0] for v in values]
    return {
        f"{prefix}0": pa.array(first, pa.string() if mapped else pa.int64()),
        f"{prefix}1": pa.array([v[1] for v in values], pa.string()),
    }


@st.composite
def net_changes(draw: st.DrawFn) -> tuple[Rows, list[tuple[Key | None, Key | None, str | None]]]:
    """Rows before, and net changes: the key before, the key after, the new value (None: the log left it out)."""
    before = draw(st.dictionaries(KEYS, TEXT, max_size=12))
    touched = draw(st.lists(st.sampled_from(sorted(before)), unique=True)) if before else []
    stay = set(before) - set(touched)
    net: list[tuple[Key | None, Key | None, str | None]] = []
    taken = set(stay)
    for old in touched:
        new = draw(st.one_of(st.just(old), st.none(), KEYS))
        if new in taken:
            new = None
        if new is not None:
            taken.add(new)
        net.append((old, new, None if new is None else draw(st.one_of(TEXT, st.none()))))
    for new in draw(st.lists(KEYS, unique=True, max_size=4)):
        if new not in taken:
            net.append((None, new, draw(TEXT)))
            taken.add(new)
    return before, net


def encoded(net: list[tuple[Key | None, Key | None, str | None]], *, mapped: bool) -> TableChanges:
    paired = [n for n in net if n[0] is not None and n[0] == n[1] and n[2] is not None]
    gone = [n for n in net if n[0] is not None and n not in paired]
    new = [n for n in net if n[1] is not None and n[2] is not None and n not in paired]
    part = [n for n in net if n[1] is not None and n[2] is None]
    deletes = pa.table(columns("k", [n[0] for n in [*paired, *gone]], mapped=mapped))
    inserts = pa.table(
        columns("c", [n[1] for n in [*paired, *new]], mapped=mapped) | {"c2": [n[2] for n in [*paired, *new]]}
    )
    partials = columns("k", [n[0] for n in part], mapped=mapped) | columns("c", [n[1] for n in part], mapped=mapped)
    partials |= {"c2": pa.array([None] * len(part), pa.string()), "u2": pa.array([True] * len(part))}
    tables = [t if t.num_rows else None for t in (deletes, inserts, pa.table(partials))]
    return TableChanges(TABLE, False, *tables, paired=len(paired))


def apply(rows: Rows, changes: TableChanges) -> Rows:
    """The rows after a target has applied the changes. Every row to delete or to complete must exist."""

    def keys(table: Any, prefix: str) -> list[Key]:
        return [(int(a), b) for a, b in zip(*(table[f"{prefix}{i}"].to_pylist() for i in (0, 1)), strict=True)]

    after = dict(rows)
    completed: Rows = {}
    if changes.partials is not None:
        pairs = zip(keys(changes.partials, "k"), keys(changes.partials, "c"), strict=True)
        completed = {new: rows[old] for old, new in pairs}
    if changes.paired:
        assert keys(changes.deletes.slice(0, changes.paired), "k") == keys(
            changes.inserts.slice(0, changes.paired), "c"
        )  # type: ignore[union-attr]
    for key in keys(changes.deletes, "k") if changes.deletes is not None else []:
        del after[key]
    if changes.inserts is not None:
        after |= dict(zip(keys(changes.inserts, "c"), changes.inserts["c2"].to_pylist(), strict=True))
    return after | completed


def in_range(key: Key, lower: Key | None, upper: Key | None) -> bool:
    ordered = (key[0], key[1].encode())
    above = lower is None or ordered > (lower[0], lower[1].encode())
    return above and (upper is None or ordered <= (upper[0], upper[1].encode()))


def bound(key: Key | None) -> KeyBound | None:
    return None if key is None else KeyBound((str(key[0]), key[1]))


@given(net_changes(), st.none() | KEYS, st.none() | KEYS, st.booleans())
def test_a_copy_of_a_range_of_keys_stays_that_range_of_the_table(
    given_: tuple[Rows, list[Any]], lower: Key | None, upper: Key | None, mapped: bool
) -> None:
    before, net = given_
    changes = encoded(net, mapped=mapped)
    keys = KeyRange(MAPPED if mapped else PLAIN, bound(lower), bound(upper), decode_copy_text)
    held = {key: row for key, row in before.items() if in_range(key, lower, upper)}
    unknown = any(
        value is None and in_range(new, lower, upper) and not in_range(old, lower, upper)
        for old, new, value in net
        if old is not None and new is not None
    )
    if unknown:
        with pytest.raises(RowUnknown):
            restrict_to_range(changes, keys)
        return
    wanted = {key: row for key, row in apply(before, changes).items() if in_range(key, lower, upper)}
    assert apply(held, restrict_to_range(changes, keys)) == wanted


ORDERED = {
    "int4": ["-5", "0", "12"],
    "oid": ["7", "4000000000"],
    "date": ["1999-12-31", "2000-01-01", "2024-02-29"],
    "timestamp": ["1999-12-31 23:59:59.999999", "2000-01-01 00:00:00"],
    "timestamptz": ["1999-12-31 23:59:59+00", "2000-01-01 00:00:00.5+00"],
    "uuid": [
        "00000000-0000-0000-0000-0000000000ff",
        "7f000000-0000-0000-0000-000000000000",
        "ff000000-0000-0000-0000-000000000000",
    ],
    "text": ["", "B", "a", "é"],
}


@pytest.mark.parametrize("map_as", [None, "source"])
@pytest.mark.parametrize("kind", ORDERED)
def test_keys_compare_as_they_do_on_the_source(kind: str, map_as: str | None) -> None:
    values, structure = ORDERED[kind], schema(kind, map_as=map_as)
    rows = [key_row(KeyBound((value,)), structure, decode_copy_text) for value in values]
    column = pa.concat_tables(rows)["k0"]
    for at, value in enumerate(values):
        upto = KeyRange(structure, None, KeyBound((value,)), decode_copy_text).holds([column])
        behind = KeyRange(structure, KeyBound((value,)), None, decode_copy_text).holds([column])
        assert upto.to_pylist() == [i <= at for i in range(len(values))]
        assert behind.to_pylist() == [i > at for i in range(len(values))]


def test_a_key_without_a_place_in_the_order_is_told() -> None:
    structure = schema("date", map_as="source")
    numeric = replace(structure.columns[0], type=SourceType("numeric", modifier=(5 << 16 | 2) + 4))
    structure = replace(structure, columns=(numeric, *structure.columns[1:]))
    keys = KeyRange(structure, None, KeyBound(("1.50",)), decode_copy_text)
    assert keys.holds([pa.chunked_array([["-2.00", "1.51"]])]).to_pylist() == [True, False]
    with pytest.raises(KeyUnordered):
        keys.holds([pa.chunked_array([["NaN"]])])


def test_a_key_column_that_the_log_left_out_is_the_old_one() -> None:
    rows = pa.table({"k0": [1], "k1": ["a"], "c0": [2], "c1": pa.array([None], pa.string()), "c2": ["v"], "u1": [True]})
    changes = TableChanges(TABLE, False, None, None, rows)
    kept = restrict_to_range(changes, KeyRange(PLAIN, None, KeyBound(("2", "a")), decode_copy_text))
    assert kept.partials.num_rows == 1  # type: ignore[union-attr]
    assert replace(kept, partials=None).net_rows == 1


def test_keys_to_which_rows_came_are_those_of_the_range() -> None:
    given: list[Key] = [(-1, "a"), (0, "a"), (2, "b")]
    change = replace(encoded([], mapped=False), replaced=pa.table(columns("k", given, mapped=False)))
    found = restrict_to_range(change, KeyRange(PLAIN, None, KeyBound(("0", "a")), decode_copy_text))
    assert found.replaced is not None
    assert found.replaced["k0"].to_pylist() == [-1, 0]
    assert found.staged["replace"] == found.net_rows == 2
