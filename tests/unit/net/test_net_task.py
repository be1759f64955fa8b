"""A whole task: several tables and versions in, their net changes out; faults stay with their table; results on disk."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from engine.model.batch import BlockRef, LogRange, TableChanges, TaskDescriptor
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import BatchId, Epoch, Ordinal, SubscriptionName
from engine.model.position import Lsn
from engine.model.schema import KeyMode
from engine.net import decode as decode_module
from engine.net import run_task, spill_result, staging_prefix
from engine.net.plan import plan_for
from engine.platform.compiled import Array
from engine.records import scan
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.net.batch_builder import FIRST, column, net, part, rows, table, task

_KEYED = table([column("id", "int4"), column("v", "int4")], ["id"], oid=1)
_OTHER = table([column("id", "int4"), column("v")], ["id"], oid=2)


def test_tables_without_changes_are_not_in_the_result() -> None:
    result = task([pgoutput.insert(1, ["1", "2"])], [part(_OTHER), part(_KEYED)])
    assert [(t.table, rows(t.inserts)) for t in result.tables] == [("t1", [(1, 2)])]
    assert (result.records, result.bucket) == (1, 0)


@pytest.mark.parametrize(("follows", "faulty"), [(True, True), (False, False)])
def test_no_row_is_read_by_a_structure_that_was_rolled_back(follows: bool, faulty: bool) -> None:
    records = [pgoutput.insert(1, ["1", "2"]), pgoutput.relation(1, ["id", "v"]), pgoutput.truncate([1])]
    records += [pgoutput.insert(1, ["3", "4"])] if follows else []
    records += [pgoutput.relation(1, ["id", "v"]), pgoutput.insert(1, ["5", "6"])]
    versions = (_KEYED, replace(_KEYED, void=True), _KEYED)
    (changes,) = task(records, [replace(part(_KEYED), versions=versions)]).tables
    assert (changes.fault is not None) is faulty
    if changes.fault is not None:
        assert changes.fault.code == FaultKind.TABLE_STRUCTURE_CHANGED
    else:
        assert rows(changes.inserts) == [(5, 6)]


def test_no_records_at_all() -> None:
    assert task([], [part(_KEYED)]).tables == ()


@pytest.mark.parametrize(
    ("value", "code"), [("999999999999", FaultKind.VALUE_OUT_OF_DOMAIN), (None, FaultKind.NET_CHANGE_ANOMALY)]
)
def test_one_tables_fault_leaves_the_others_alone(value: str | None, code: FaultKind) -> None:
    bad = [pgoutput.insert(1, ["1", value])] * (2 if value is None else 1)
    result = task([*bad, pgoutput.insert(2, ["5", "x"])], [part(_KEYED), part(_OTHER)])
    faulty, well = result.tables
    assert faulty.fault is not None
    assert faulty.fault.code == code
    assert faulty.inserts is faulty.deletes is faulty.partials is None
    assert (faulty.refused is None) == (value is None)
    assert "999" not in faulty.fault.detail
    assert rows(well.inserts) == [(5, "x")]


def test_a_value_out_of_domain_in_a_key_of_a_delete() -> None:
    changes = net([pgoutput.delete(1, ["x", None], "K")], _KEYED)
    assert changes.fault is not None
    assert changes.fault.code == FaultKind.VALUE_OUT_OF_DOMAIN


_WIDE = table([column("id", "int4"), column("v", "int4"), column("t")], ["id"], oid=100)
_UNSET = pgoutput.UNCHANGED


def refused(changes: TableChanges) -> list[tuple[str | None, ...]]:
    """Key before, values, whether `t` is unset and whether the row is gone; in the order of the keys."""
    assert changes.refused is not None
    assert all("column" in cause for cause in changes.refused["cause"].to_pylist())
    found = [
        (row["k0"], row["c0"], row["c1"], row["c2"], bool(row.get("u2")), row["gone"])
        for row in changes.refused.to_pylist()
    ]
    return sorted(found, key=str)


@pytest.mark.parametrize("buckets", [1, 3])
def test_rows_with_a_value_that_no_column_holds_come_as_texts_beside_the_others(buckets: int) -> None:
    records = [
        pgoutput.insert(100, ["1", "x", "new"]),
        pgoutput.update(100, ["2", "x", _UNSET]),
        pgoutput.update(100, ["4", "x", "moved"], ["3", None, None], "K"),
        pgoutput.delete(100, ["y", None, None], "K"),
        pgoutput.update(100, ["z", "5", _UNSET]),
        pgoutput.update(100, ["7", "7", "mended"], ["w", None, None], "K"),
        pgoutput.update(100, ["8", "8", "stays"]),
        pgoutput.insert(100, ["9", None, None]),
    ]
    results = [task(records, [part(_WIDE)], bucket=b, buckets=buckets) for b in range(buckets)]
    found = [changes for result in results for changes in result.tables]
    bad = [changes for changes in found if changes.fault is not None]
    assert {changes.fault.code for changes in bad if changes.fault} == {FaultKind.VALUE_OUT_OF_DOMAIN}
    assert sorted((row for changes in bad for row in refused(changes)), key=str) == sorted(
        [
            (None, "1", "x", "new", False, False),
            ("2", "2", "x", None, True, False),
            ("3", "4", "x", "moved", False, False),
            ("y", None, None, None, False, True),
            ("z", "z", "5", None, True, False),
            ("w", None, None, None, False, True),
        ],
        key=str,
    )
    assert sorted(row for c in found for row in rows(c.deletes)) == [(2,), (3,), (8,)]
    assert sorted(row for c in found for row in rows(c.inserts)) == [(7, 7, "mended"), (8, 8, "stays"), (9, None, None)]
    for changes in found:
        assert [row[0] for row in rows(changes.deletes)][: changes.paired] == [8][: changes.paired]
        assert [row[0] for row in rows(changes.inserts)][: changes.paired] == [8][: changes.paired]
    assert sum(changes.paired for changes in found) == 1


def test_inserts_without_identity_leave_refused_rows_out() -> None:
    append = table([column("v", "int4")], mode=KeyMode.APPEND)
    changes = net([pgoutput.insert(100, [value]) for value in ("1", "x", "3")], append)
    assert rows(changes.inserts) == [(1,), (3,)]
    assert changes.refused is not None
    assert changes.refused["c0"].to_pylist() == ["x"]


def test_a_row_of_another_width_than_its_structure() -> None:
    changes = net([pgoutput.insert(1, ["1", "2", "3"])], _KEYED)
    assert changes.fault is not None
    assert changes.fault.code == FaultKind.TABLE_STRUCTURE_CHANGED


def test_more_relation_records_than_versions_is_our_own_mistake() -> None:
    changes = net([pgoutput.relation(1, ["id", "v"]), pgoutput.insert(1, ["1", "2"])], _KEYED)
    assert changes.fault is not None
    assert changes.fault.code == FaultKind.INTERNAL


def test_fills_of_several_tables_do_not_mix() -> None:
    parts, records = [], []
    for oid in (1, 2, 3):
        old = table([column("id", "int4", 1)], ["id"], oid=oid)
        new = table(
            [column("id", "int4", 1), column("v", "text", 2, f"fill {oid}"), column("w", "int4", 3, "4")],
            ["id"],
            oid=oid,
        )
        parts.append(part(old, new))
        records += [pgoutput.insert(oid, [str(oid)]), pgoutput.relation(oid, ["id", "v", "w"])]
    result = task(records, parts)
    assert [rows(t.inserts) for t in result.tables] == [[(oid, f"fill {oid}", 4)] for oid in (1, 2, 3)]


def test_a_structure_fault_shows_even_without_changes_behind_it() -> None:
    other = replace(_KEYED, columns=(_KEYED.columns[0], replace(_KEYED.columns[1], type=_OTHER.columns[1].type)))
    changes = net([pgoutput.relation(1, ["id", "v"])], _KEYED, other)
    assert changes.fault is not None
    assert changes.fault.code == FaultKind.TABLE_STRUCTURE_CHANGED


def test_a_plan_is_built_once() -> None:
    assert plan_for((_KEYED,)) is plan_for((replace(_KEYED),))


def test_a_structure_that_is_announced_again_and_again_costs_nothing_new() -> None:
    wider = replace(_KEYED, columns=(*_KEYED.columns, column("w", "int4", 3, "4")))
    versions = (_KEYED, _KEYED, replace(_KEYED), wider, _KEYED, *[wider] * 1000)
    plan, short = plan_for(versions), plan_for((_KEYED, wider))
    assert (plan.schema, plan.fills, plan.fault) == (wider, short.fills, None)
    of_each = [0, 0, 0, 1, 0, *[1] * 1000]
    for name in ("width", "target", "key", "key_stop", "lacks"):
        assert (getattr(plan.layout, name) == getattr(short.layout, name)[of_each]).all()
    assert plan_for((wider, _KEYED)).layout.width.tolist() == [3, 2]


def test_the_oid_of_a_type_is_no_part_of_its_form() -> None:
    renamed = tuple(replace(c, type=replace(c.type, oid=n + 20)) for n, c in enumerate(_KEYED.columns))
    assert plan_for((_KEYED, replace(_KEYED, columns=renamed))).fault is None


def test_columns_may_be_mapped_to_text() -> None:
    schema = table(
        [column("id", "int4"), replace(column("n", "numeric", modifier=(4 << 16) + 4), map_as="text")],
        ["id"],
        oid=1,
    )
    assert rows(net([pgoutput.insert(1, ["1", "NaN"])], schema).inserts) == [(1, "NaN")]


def test_every_kind_through_a_task() -> None:
    texts = {
        "bool": "t", "int2": "-1", "oid": "4294967295", "float4": "1.5", "float8": "-0", "bytea": r"\xff00",
        "date": "0001-01-01 BC", "timestamp": "infinity", "timestamptz": "10000-01-01 00:00:00+00", "time": "24:00:00",
        "uuid": "00000000-0000-0000-0000-00000000000a", "_text": '{a,"b c",NULL}', "jsonb": '{"a": 1}', "inet": "::1",
    }  # fmt: skip
    schema = table([column("id", "int4"), *(column(name, name) for name in texts)], ["id"], oid=1)
    inserts = net([pgoutput.insert(1, ["1", *texts.values()])], schema).inserts
    assert isinstance(inserts, pa.Table)
    held = dict(zip(["id", *texts], inserts.columns, strict=True))
    assert held["oid"].to_pylist() == [2**32 - 1]
    assert held["date"].combine_chunks().view(pa.int32()).to_pylist() == [-719_528]
    assert held["_text"].to_pylist() == [["a", "b c", None]]
    assert [held[n].to_pylist()[0] for n in ("bool", "int2", "float4", "bytea", "uuid", "jsonb", "inet")] == [
        True, -1, 1.5, b"\xff\0", texts["uuid"], '{"a": 1}', "::1",
    ]  # fmt: skip


def test_large_results_come_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_module, "MAX_TEXT_BYTES", 100)
    records = [pgoutput.insert(2, [str(n), "x" * n]) for n in range(60)] + [pgoutput.insert(2, ["99", "y" * 500])]
    inserts = net(records, _OTHER).inserts
    assert isinstance(inserts, pa.Table)
    assert inserts.column(1).num_chunks > 10
    assert rows(inserts) == [(n, "x" * n) for n in range(60)] + [(99, "y" * 500)]


def test_partials_name_their_unset_columns() -> None:
    schema = table([column("id", "int4"), column("a"), column("b"), column("c")], ["id"], oid=1)
    same = pgoutput.UNCHANGED
    records = [
        pgoutput.update(1, ["1", same, "x", "y"]),
        pgoutput.update(1, ["2", "p", same, "y"]),
        pgoutput.update(1, ["3", "p", "q", "r"]),
    ]
    changes = net(records, schema)
    assert changes.partials is not None
    assert changes.partials.column_names == ["k0", "c0", "c1", "c2", "c3", "u1", "u2"]
    assert changes.partials.to_pylist() == [
        {"k0": 1, "c0": 1, "c1": None, "c2": "x", "c3": "y", "u1": True, "u2": False},
        {"k0": 2, "c0": 2, "c1": "p", "c2": None, "c3": "y", "u1": False, "u2": True},
    ]
    assert rows(changes.inserts) == [(3, "p", "q", "r")]
    assert rows(changes.deletes) == [(3,), (1,), (2,)]
    assert changes.paired == 1


def descriptor(blocks: tuple[BlockRef, ...], ranges: tuple[LogRange, ...]) -> TaskDescriptor:
    tables = (part(_KEYED),)
    return TaskDescriptor(SubscriptionName("s"), Epoch(3), BatchId(17), 2, 0, 1, ranges, blocks, tables, "")


def test_blocks_in_any_order_and_within_larger_buffers() -> None:
    first = pgoutput.pack([b"dropped", pgoutput.insert(1, ["1", "1"])])
    second = pgoutput.pack([pgoutput.insert(1, ["2", "2"])])
    held: dict[str, tuple[Array, Array]] = {"a": (first[0], first[1][1:]), "b": second}
    blocks = (BlockRef("b", 0, 99, 0, Ordinal(FIRST + 1), 1), BlockRef("a", 0, 99, 0, Ordinal(FIRST), 1))
    task_of_two = descriptor(blocks, (LogRange(Ordinal(FIRST), Ordinal(FIRST + 2), Lsn(1)),))
    result = run_task(task_of_two, lambda blocks: (held[block.path] for block in blocks), scan.RecordScanner())
    assert rows(result.tables[0].inserts) == [(1, 1), (2, 2)]
    with pytest.raises(EngineFault) as caught:
        run_task(task_of_two, lambda blocks: (first for _ in blocks), scan.RecordScanner())
    assert caught.value.kind is FaultKind.QUEUE_CORRUPT


def test_a_result_survives_its_files(tmp_path: Path) -> None:
    result = task(
        [pgoutput.insert(1, ["1", "2"]), pgoutput.update(2, ["1", pgoutput.UNCHANGED]), pgoutput.truncate([1])],
        [part(_KEYED), part(_OTHER)],
    )
    prefix = staging_prefix(descriptor((), ()))
    spilled = spill_result(result, tmp_path / "new", prefix)
    (file,) = (tmp_path / "new").iterdir()
    assert file.name == "e3-b17-a2-p0-k0.arrows"
    assert spilled.tables[0] == result.tables[0]
    for kind in ("deletes", "partials"):
        staged = getattr(spilled.tables[1], kind)
        assert (staged.path, staged.offset % 64) == (str(file), 0)
        held = file.read_bytes()[staged.offset : staged.offset + staged.size]
        assert pa.ipc.open_stream(held).read_all() == getattr(result.tables[1], kind)


def test_a_result_without_rows_needs_no_file(tmp_path: Path) -> None:
    result = task([pgoutput.truncate([1])], [part(_KEYED)])
    assert spill_result(result, tmp_path / "new", "x") == result
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_written_is_a_fault(tmp_path: Path) -> None:
    result = task([pgoutput.insert(1, ["1", "2"])], [part(_KEYED)])
    (tmp_path / "x-k0.arrows").mkdir()
    with pytest.raises(EngineFault) as caught:
        spill_result(result, tmp_path, "x")
    assert caught.value.kind is FaultKind.QUEUE_DISK_FULL


_WARM_CHECK = """
from pathlib import Path
from engine.records import scan
from engine.net import change_kernels, value_kernels, warm
from tests.unit.net import test_net_task
from tests.unit.net.net_change_text import run_case

def compiled():
    return {
        f"{module.__name__}.{name}": len(value.nopython_signatures)
        for module in (scan, change_kernels, value_kernels)
        for name, value in vars(module).items()
        if hasattr(value, "nopython_signatures")
    }

scan.warm()
warm()
before = compiled()
for path in Path("tests/golden/net_change").glob("*.txt"):
    for block in path.read_text().split("\\n== ")[1:]:
        run_case(block.partition("\\n")[2].partition("---")[0])
test_net_task.test_every_kind_through_a_task()
after = compiled()
print(sorted(name for name in after if after[name] != before[name]))
"""


@pytest.mark.slow
def test_nothing_is_compiled_after_warming() -> None:
    found = subprocess.run([sys.executable, "-c", _WARM_CHECK], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
