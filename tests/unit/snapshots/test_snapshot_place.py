"""Snapshots in their folder: whole under a final name or not there, whatever happens, and never outside it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from engine.model.identity import TableName
from engine.model.snapshots import SnapshotFormat, SnapshotRefused
from engine.snapshots.files import file_stem
from engine.snapshots.place import MANIFEST, SnapshotPlace, position_name, refused_for

POSITION = "0/16B3748"


@pytest.fixture
def place(tmp_path: Path) -> SnapshotPlace:
    return SnapshotPlace(tmp_path, "shop")


def written(place: SnapshotPlace, snapshot: str, position: str = POSITION) -> str:
    folder = place.begin(snapshot)
    (folder / MANIFEST).write_text(json.dumps({"id": snapshot}))
    return place.publish(snapshot, position)


def names(place: SnapshotPlace) -> list[str]:
    return sorted(path.name for path in place.folder.iterdir())


def test_a_snapshot_is_named_by_its_position(place: SnapshotPlace) -> None:
    assert position_name(POSITION) == "0-16B3748"
    assert [written(place, f"n{i}") for i in range(3)] == ["0-16B3748", "0-16B3748.2", "0-16B3748.3"]
    found = place.find("n1")
    assert found is not None
    assert found[0] == "0-16B3748.2"


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_what_is_there_is_never_replaced(place: SnapshotPlace, make: object) -> None:
    taken = place.folder / "0-16B3748"
    place.begin("n1")
    make(taken)  # type: ignore[operator]
    assert place.publish("n1", POSITION) == "0-16B3748.2"
    assert os.path.lexists(taken)


@pytest.mark.parametrize("name", ["", ".", "..", "../shop", "a/b", "/etc", "a\0b"])
def test_no_name_of_a_subscription_leads_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a name of a folder"):
        SnapshotPlace(tmp_path, name)


@pytest.mark.parametrize(
    ("table", "stem"),
    [
        (TableName("public", "orders"), "public.orders"),
        (TableName("..", "../../etc/passwd"), "%2E%2E.%2E%2E%2F%2E%2E%2Fetc%2Fpasswd"),
        (TableName("a.b", "c"), "a%2Eb.c"),
        (TableName("a", "b.c"), "a.b%2Ec"),
        (TableName("a%2Eb", "c"), "a%252Eb.c"),
        (TableName("public", "naïve\0\n"), "public.na%C3%AFve%00%0A"),
    ],
)
def test_files_of_tables_stay_in_the_folder(table: TableName, stem: str) -> None:
    assert file_stem(table) == stem
    assert Path(stem).name == stem


def test_a_long_name_is_cut(place: SnapshotPlace) -> None:
    assert len(file_stem(TableName("s" * 63, "€" * 63))) == 180


def test_deleting_asks_for_an_id_and_takes_the_link_along(place: SnapshotPlace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / MANIFEST).write_text(json.dumps({"id": "n9"}))
    (tmp_path / "shop").mkdir()
    (place.folder / "elsewhere").symlink_to(outside)
    for i in (1, 2):
        place.link(f"n{i}", written(place, f"n{i}"), SnapshotFormat.PARQUET)
    assert (place.folder / "latest-parquet").readlink() == Path("0-16B3748.2")
    assert not any(place.delete(unknown) for unknown in ("n9", "../outside", "0-16B3748", ""))
    assert (outside / MANIFEST).exists()
    assert place.delete("n1")
    assert names(place) == ["0-16B3748.2", "elsewhere", "latest-parquet"]
    assert place.delete("n2")
    assert names(place) == ["elsewhere"]
    assert not place.delete("n2")


def test_leftovers_are_cleaned_and_nothing_else(place: SnapshotPlace) -> None:
    place.clean(())
    written(place, "n1")
    for snapshot in ("n2", "n3"):
        (place.begin(snapshot) / "public.a.parquet").write_bytes(b"half")
    (place.folder / ".deleted-n4").mkdir()
    (place.folder / ".link-n5").symlink_to("0-16B3748")
    (place.folder / ".other").touch()
    place.clean({"n3"})
    assert names(place) == [".other", ".writing-n3", "0-16B3748"]


def test_a_link_is_not_made_in_place_of_something_else(place: SnapshotPlace) -> None:
    (place.folder / "latest-duckdb").mkdir(parents=True)
    place.refuse_taken_link(SnapshotFormat.PARQUET)
    with pytest.raises(SnapshotRefused) as refused:
        place.refuse_taken_link(SnapshotFormat.DUCKDB)
    assert refused.value.code == "snapshot_place_taken"


@pytest.mark.parametrize(
    ("number", "status", "code"),
    [
        (errno.ENOSPC, 507, "snapshot_disk_full"),
        (errno.EDQUOT, 507, "snapshot_disk_full"),
        (errno.EACCES, 409, "snapshot_not_permitted"),
        (errno.EROFS, 409, "snapshot_not_permitted"),
        (errno.EIO, 503, "snapshot_failed"),
    ],
)
def test_errors_of_the_disk_say_what_to_do(number: int, status: int, code: str) -> None:
    refused = refused_for(OSError(number, os.strerror(number)), Path("/snapshots/shop"))
    assert (refused.status, refused.code) == (status, code)
    assert "/snapshots/shop" in refused.detail
    assert refused.remedy
