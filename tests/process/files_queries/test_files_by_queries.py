"""Folders of files that are only read: what a snapshot is, what a table is, and which files are refused."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.sources.files_queries import place
from engine.sources.files_queries.listing import Listed, Listing
from engine.sources.files_queries.place import HeldFiles
from engine.sources.query_diff.cycle import run_cycle
from engine.sources.query_diff.database import Method
from engine.sources.query_diff.folder import Follow
from engine.sources.query_diff.given import Given
from tests.fixtures.compared_reads import errors, held_by, lines_of, whole
from tests.fixtures.replication import table
from tests.pg.query_diff.test_cycles_find_changes import ALL, Copy
from tests.process.files_queries.conftest import GOODS, Folder, goods
from tests.process.sqlite_triggers.conftest import Replicate

ONE = "SELECT 1 AS id, 'a' AS name, 1.5::DOUBLE AS price"
TWO = "SELECT 2 AS id, NULL::VARCHAR AS name, NULL::DOUBLE AS price"
TYPES = {"id": "integer", "price": "double"}


def kind_of(call: object) -> FaultKind:
    with pytest.raises(EngineFault) as caught:
        call()  # type: ignore[operator]
    return caught.value.kind


def read(folder: Folder) -> list[bytes]:
    database = folder.database
    with database.snapshot(1) as snapshot:
        return lines_of(database, whole(database, goods()), snapshot)


def test_a_copy_follows_parts_and_columns(parquet: Folder, replicate: Replicate) -> None:
    parquet.put("goods/1.parquet", ONE)
    parquet.put("goods/2.parquet", TWO)
    replica = replicate(parquet, goods())
    replica.assert_equal()
    parquet.put("goods/2.parquet", "SELECT 2 AS id, '' AS name, NULL::DOUBLE AS price")
    parquet.put("goods/3.parquet", "SELECT 3 AS id, 'c' AS name, 4::DOUBLE AS price")
    replica.assert_equal()
    assert replica.query("SELECT * FROM files.goods ORDER BY id") == [(1, "a", 1.5), (2, "", None), (3, "c", 4.0)]
    (parquet.path / "goods/3.parquet").unlink()
    parquet.put("goods/1.parquet", "SELECT 7 AS id, 'a' AS name, 1.5::DOUBLE AS price")
    replica.assert_equal()
    assert replica.query("SELECT * FROM files.goods ORDER BY id") == [(2, "", None), (7, "a", 1.5)]
    parquet.put("goods/4.parquet", "SELECT 8 AS id, 'd' AS name, 1::DOUBLE AS price, 5 AS stock")
    replica.assert_equal()
    assert replica.query("SELECT id, stock FROM files.goods ORDER BY id") == [(2, None), (7, None), (8, 5)]
    parquet.put("goods/empty.parquet", f"{ONE} LIMIT 0")
    for name in ("1", "2", "4"):
        (parquet.path / f"goods/{name}.parquet").unlink()
    replica.assert_equal()
    assert replica.query("SELECT count(*) FROM files.goods") == [(0,)]


def test_a_copy_follows_csv_files(csv: Folder, replicate: Replicate) -> None:
    csv.tables = {"goods": {"key": ["id"], "columns": TYPES}}
    csv.write("goods.csv", 'id,name,price\n1,"a, ""b""\n",1.5\n2,,\n3,"",1e3\n')
    replica = replicate(csv, goods())
    replica.assert_equal()
    assert replica.query("SELECT * FROM files.goods ORDER BY id") == [
        (1, 'a, "b"\n', 1.5),
        (2, None, None),
        (3, "", 1000.0),
    ]
    csv.write("goods.csv", "price,id,name\n1.5,7,a\n,2,\\N\n")
    replica.assert_equal()
    assert replica.query("SELECT id, name, price FROM files.goods ORDER BY id") == [(2, "\\N", None), (7, "a", 1.5)]
    csv.write("goods.csv", "price,id,name,stock\n1.5,7,a,x\n")
    replica.assert_equal()
    assert replica.query("SELECT id, stock FROM files.goods") == [(7, "x")]


@pytest.mark.parametrize("change", ["replaced", "removed", "added"])
def test_a_snapshot_is_the_files_of_one_moment(parquet: Folder, change: str) -> None:
    parquet.put("goods/1.parquet", ONE)
    parquet.put("goods/2.parquet", TWO)
    database = parquet.database
    split = whole(database, goods())
    with database.snapshot(1) as snapshot:
        if change == "removed":
            (parquet.path / "goods/1.parquet").unlink()
        else:
            parquet.put(
                "goods/1.parquet" if change == "replaced" else "goods/3.parquet",
                "SELECT 9 AS id, 'x' AS name, 0::DOUBLE AS price",
            )
        for _ in range(2):
            assert lines_of(database, split, snapshot) == [b"1\ta\t1.5", b"2\t\\N\t\\N"]
    assert kind_of(lambda: lines_of(database, split, snapshot)) is FaultKind.COPY_LOST
    assert len(read(parquet)) == {"replaced": 2, "removed": 1, "added": 3}[change]


def test_a_list_that_was_no_state_of_the_folder_is_made_again(parquet: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file gets another name between the read of the names and that of its status, so that the list has it under neither."""
    parquet.put("goods/1.parquet", ONE)
    moved = parquet.put("goods/2.parquet", TWO)
    database, whole_list = parquet.database, place.listed
    split = whole(database, goods())

    def torn(folder: str, form: str, subject: str) -> Listing:
        found = whole_list(folder, form, subject)
        if moved.exists():
            moved.rename(moved.with_name("3.parquet"))
            return {GOODS: Listed(found[GOODS].parts[:1])}
        return found

    monkeypatch.setattr(place, "listed", torn)
    with database.snapshot(1) as snapshot:
        assert lines_of(database, split, snapshot) == [b"1\ta\t1.5", b"2\t\\N\t\\N"]


@pytest.mark.parametrize(("open_files", "how"), [(256, "in place"), (0, "in place"), (0, "renamed"), (1, "renamed")])
def test_a_cycle_begins_again_when_a_file_was_changed_while_it_was_read(
    parquet: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_files: int, how: str
) -> None:
    monkeypatch.setattr(place, "_MOST_OPEN", open_files)
    parquet.put("goods/1.parquet", ONE)
    changed = parquet.put("goods/2.parquet", TWO)
    fresh = parquet.put(".2.parquet", "SELECT 5 AS id, 'changed' AS name, 0::DOUBLE AS price")
    tries: list[int] = []
    provide = HeldFiles.provide

    def disturbed(self: HeldFiles, table: object) -> None:
        provide(self, table)  # type: ignore[arg-type]
        if not tries:
            if how == "renamed":
                fresh.replace(changed)
            else:
                changed.write_bytes(fresh.read_bytes())
        tries.append(1)

    monkeypatch.setattr(HeldFiles, "provide", disturbed)
    given = Given(0, Method.INCREMENTAL, 10.0, tmp_path / "reader", "shop")
    given.folder.make()
    given.folder.follow({GOODS: Follow(None, ALL)})
    database = parquet.database
    with run_cycle(database, given) as (snapshot, number):
        found = held_by(database, {GOODS: None}, snapshot)
    assert number == 2
    assert sorted(found["goods"].values()) == [b"1\ta\t1.5\n", b"5\tchanged\t0\n"]


def test_every_part_is_read_whatever_set_a_split_was_cut_for(parquet: Folder) -> None:
    """Splits are cut of the files as they are, and read of those of a snapshot."""
    parquet.put("goods/0.parquet", f"{ONE} UNION ALL SELECT i::INTEGER, 'x', i::DOUBLE FROM range(100, 2000) AS t(i)")
    database = parquet.database
    spec = goods()
    splits = database.reads.splits(database.describe([spec])[GOODS], spec, 8_000)
    assert len(splits) > 3
    for number in range(20):
        parquet.put(f"goods/more-{number}.parquet", f"SELECT {number + 10} AS id, 'more' AS name, 0::DOUBLE AS price")
    with database.snapshot(1) as snapshot:
        lines = [line for split in splits for line in lines_of(database, split, snapshot)]
    assert len(lines) == len(set(lines)) == 1921


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("no folder", "source_unreachable"),
        ("no table", "table_missing"),
        ("no part", "table_missing"),
        ("hidden", "table_missing"),
        ("folder in it", "table_not_logged"),
        ("two of a name", "table_not_logged"),
        ("broken", "table_not_logged"),
        ("link to nothing", "table_not_logged"),
        ("other types", "table_not_logged"),
        ("no key", "table_no_identity"),
        ("wrong key", "table_no_identity"),
        ("list", "table_columns_unfit"),
    ],
)
def test_what_cannot_be_compared_is_found_before(parquet: Folder, how: str, code: str) -> None:
    if how not in {"no table", "no part", "hidden"}:
        parquet.put("goods/1.parquet", ONE)
    match how:
        case "no folder":
            parquet.path.rename(parquet.path.with_suffix(".away"))
        case "no part":
            (parquet.path / "goods").mkdir()
        case "hidden":
            parquet.put("goods/_1.parquet", ONE)
            parquet.put("goods/1.parquet.tmp", ONE)
        case "folder in it":
            (parquet.path / "goods/year=2024").mkdir()
        case "two of a name":
            parquet.put("goods.parquet", ONE)
        case "broken":
            parquet.write("goods/2.parquet", "PAR1 nothing")
        case "link to nothing":
            (parquet.path / "goods/2.parquet").symlink_to("nowhere")
        case "other types":
            parquet.put("goods/2.parquet", "SELECT 2::BIGINT AS id, 'b' AS name, 1::DOUBLE AS price")
        case "no key":
            parquet.tables = {}
        case "wrong key":
            parquet.tables = {"goods": {"key": ["number"]}}
        case "list":
            parquet.put("goods/2.parquet", "SELECT 2 AS id, [1] AS many")
    assert errors(parquet.database, goods()) == [code]
    if how == "list":
        assert errors(parquet.database, goods(exclude_columns=("many",))) == []
    if how != "no folder":
        assert parquet.database.tables({GOODS: None}).keys() == ({GOODS} if how == "list" else set())


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"1.csv": "id,name\n1,a\n", "2.csv": "id,nmae\n2,b\n"}, "other columns"),
        ({"1.csv": "id,name\n1,a\n", "2.csv": "2,b\n"}, "other columns"),
        ({"1.csv": ""}, "line of column names"),
        ({"1.csv": "id,,name\n"}, "line of column names"),
        ({"1.csv": "id,ID\n1,2\n"}, "differ in case"),
        ({"1.csv": b"id,n\xff\n"}, "UTF-8"),
        ({"1.csv.gz": "id,name\n"}, "cannot be read as csv"),
    ],
    ids=["misspelt", "none", "empty", "unnamed", "twice", "no UTF-8", "no gzip"],
)
def test_a_wrong_header_is_found_before(csv: Folder, files: dict[str, str | bytes], problem: str) -> None:
    for name, text in files.items():
        csv.write(f"goods/{name}", text)
    (found,) = csv.database.discover()
    (finding,) = found.problems
    assert finding.code == "table_not_logged"
    assert problem in finding.what


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("id,name\n1,a\n1,b\n", FaultKind.TABLE_KEY_NOT_UNIQUE),
        ("id,name\n1,a\n01,b\n", FaultKind.TABLE_KEY_NOT_UNIQUE),
        ("id,name\n1,a\n,b\n", FaultKind.TABLE_KEY_NOT_UNIQUE),
        ("id,name\n1,a\n2\n", FaultKind.VALUE_OUT_OF_DOMAIN),
        ("id,name\n1,a\n2,b,c\n", FaultKind.VALUE_OUT_OF_DOMAIN),
        ('id,name\n1,a\n2,"b\n', FaultKind.VALUE_OUT_OF_DOMAIN),
        (b"id,name\n1,a\n2,\xff\n", FaultKind.VALUE_OUT_OF_DOMAIN),
    ],
    ids=["twice", "twice alike", "no key", "too few", "too many", "open quote", "no UTF-8"],
)
def test_rows_that_cannot_be_read_are_refused(csv: Folder, text: str | bytes, kind: FaultKind) -> None:
    csv.tables = {"goods": {"key": ["id"], "columns": {"id": "integer"}}}
    csv.write("goods.csv", text)
    assert kind_of(lambda: read(csv)) is kind


def test_files_are_read_as_the_settings_say(csv: Folder) -> None:
    csv.settings = {"delimiter": ";", "header": "none", "null_text": "NULL"}
    csv.tables = {"goods": {"key": ["id"], "columns": {"id": "bigint", "name": "text", "price": "decimal(5,2)"}}}
    csv.write("goods/1.csv", '1;NULL;1.5\n2;"NULL";NULL\n')
    csv.write("goods/2.csv.gz", gzip.compress(b"3;;-.25\n"))
    assert read(csv) == [b"1\t\\N\t1.50", b"2\tNULL\t\\N", b"3\t\t-0.25"]


def test_tabs_separate_values_too(csv: Folder) -> None:
    csv.settings = {"delimiter": "tab"}
    csv.write("goods/1.csv", 'id\tname\n1\t"a\tb"\n')
    assert read(csv) == [b"1\ta\\tb"]


def test_a_part_with_another_header_parks_its_table_and_the_others_continue(csv: Folder, replicate: Replicate) -> None:
    csv.tables = {name: {"key": ["id"]} for name in ("goods", "more")}
    csv.write("goods/1.csv", "id,name\n1,a\n")
    csv.write("more.csv", "id\n1\n")
    replica = replicate(csv, goods(), table("more", "files"))
    replica.assert_equal()
    csv.write("goods/2.csv", "2,b\n")
    csv.write("more.csv", "id\n2\n")
    replica.wait_table("goods", "parked")
    replica.catch_up()
    assert replica.query("SELECT * FROM files.more") == [("2",)]
    assert replica.query("SELECT * FROM files.goods") == [("1", "a")]


def test_a_broken_part_parks_its_table_and_the_others_go_on(csv: Folder, replicate: Replicate) -> None:
    csv.tables = {name: {"key": ["id"], "columns": {"id": "integer"}} for name in ("goods", "more")}
    csv.write("goods/1.csv", "id,name\n1,a\n")
    csv.write("more.csv", "id\n1\n")
    replica = replicate(csv, goods(), table("more", "files"))
    replica.assert_equal()
    csv.write("goods/2.csv", "id,name\n2\n")
    csv.write("more.csv", "id\n2\n")
    replica.catch_up()
    assert "value_out_of_domain" in repr(replica.wait_table("goods", "parked"))
    replica.catch_up()
    assert replica.query("SELECT * FROM files.more") == [(2,)]
    assert replica.query("SELECT * FROM files.goods") == [(1, "a")]


def test_what_is_written_into_a_file_after_a_snapshot_is_never_read(parquet: Folder) -> None:
    path = parquet.put("goods/1.parquet", ONE)
    other = parquet.put(".1.parquet", "SELECT 1 AS id, 'b' AS name, 1.5::DOUBLE AS price").read_bytes()
    assert len(other) == path.stat().st_size
    database = parquet.database
    split = whole(database, goods())
    for _ in range(5):
        parquet.put("goods/1.parquet", ONE)
        with database.snapshot(1) as snapshot:
            path.write_bytes(other)
            assert kind_of(lambda: lines_of(database, split, snapshot)) is FaultKind.COPY_LOST


def test_a_folder_that_a_link_leads_to_is_read_after_another_one_took_its_place(
    parquet: Folder, tmp_path: Path
) -> None:
    parquet.put("goods/1.parquet", ONE)
    first = parquet.path.rename(tmp_path / "first")
    (tmp_path / "second/goods").mkdir(parents=True)
    os.link(first / "goods/1.parquet", tmp_path / "second/goods/1.parquet")
    parquet.path.symlink_to(first)
    assert read(parquet) == [b"1\ta\t1.5"]
    (tmp_path / "next").symlink_to(tmp_path / "second")
    (tmp_path / "next").replace(parquet.path)
    parquet.put("goods/2.parquet", TWO)
    assert read(parquet) == [b"1\ta\t1.5", b"2\t\\N\t\\N"]
    assert {each.name for each in parquet.database.discover()} == {TableName("files", "goods")}


def test_the_copy_of_cycles_is_one_of_the_type(tmp_path: Path, parquet: Folder) -> None:
    """What a cycle publishes makes the copy of the cycle before equal to its snapshot."""
    parquet.put("goods/1.parquet", ONE)
    given = Given(0, Method.INCREMENTAL, 10.0, tmp_path / "reader", "shop")
    given.folder.make()
    given.folder.follow({GOODS: Follow(None, ALL)})
    database, copy = parquet.database, Copy(given.folder)
    with run_cycle(database, given) as (snapshot, number):
        copy.fill(held_by(database, {GOODS: None}, snapshot), number)
    parquet.put("goods/2.parquet", TWO)
    with run_cycle(database, given) as (snapshot, number):
        expected = held_by(database, {GOODS: None}, snapshot)
    copy.follow()
    assert (copy.rows, copy.last) == (expected, number)
