"""The store of keys and hashes: what a cycle changes is whole or not at all, and a file that cannot be opened loses nothing."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.records.row_digest import keyed_lines
from engine.sources.query_diff.row_store import Known, RowStore

_HOLD = "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
KNOWN = Known(TableName("public", "notes"), None, b"R", ("id",), "incremental")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RowStore]:
    with closing(RowStore(tmp_path / "rows.duckdb")) as opened:
        with opened.transaction(1):
            opened.follow(7, KNOWN)
            opened.comparison(7).fill(keyed_lines(b"1\ta\n2\tb\n3\tc\n", 2, [0]))
        yield opened


def _found(store: RowStore, text: bytes) -> tuple[list[tuple[str, bytes]], list[bytes]]:
    """What a comparison with these rows finds: letters and lines, and lines of deleted keys."""
    comparison = store.comparison(7)
    changes = comparison.changes(keyed_lines(text, 2, [0]))
    written = list(zip(map(chr, changes.column("op").to_pylist()), changes.column("line").to_pylist(), strict=True))
    return sorted(written), sorted(line for piece in comparison.finish() for line in piece.column("line").to_pylist())


def _lines(piece: Any) -> list[bytes]:
    found: list[bytes] = piece.column("line").to_pylist()
    return found


def _fail(store: RowStore, error: Exception) -> None:
    """In the middle of a transaction."""
    _found(store, b"1\tx\n")
    raise error


def test_each_change_is_found_once(store: RowStore) -> None:
    with store.transaction(2):
        assert _found(store, b"1\ta\n3\tz\n4\td\n") == ([("I", b"4\td\n"), ("U", b"3\tz\n")], [b"2\n"])
    with store.transaction(3):
        assert _found(store, b"1\ta\n3\tz\n4\td\n") == ([], [])


def test_pieces_do_not_stay_in_memory_until_the_transaction_ends(store: RowStore) -> None:
    pieces = []
    with store.transaction(2):
        comparison = store.comparison(7)
        for text in (b"1\tx\n", b"2\tb\n", b"4\td\n"):
            piece = keyed_lines(text, 2, [0])
            comparison.know_olds(piece, only=True)
            found = comparison.changes(piece)
            pieces += [weakref.ref(piece), weakref.ref(found)]
            del piece, found
            gc.collect()
            assert [each() for each in pieces] == [None] * len(pieces)


def test_what_did_not_end_is_found_again(store: RowStore) -> None:
    with pytest.raises(KeyError), store.transaction(2):
        _fail(store, KeyError())
    assert store.last == 1
    with store.transaction(2):
        assert _found(store, b"1\tx\n") == ([("U", b"1\tx\n")], [b"2\n", b"3\n"])


def test_a_key_that_several_rows_have_is_refused(store: RowStore) -> None:
    with pytest.raises(EngineFault) as caught, store.transaction(2):
        _found(store, b"1\ta\n2\tb\n3\tc\n3\tc\n")
    assert caught.value.kind is FaultKind.TABLE_NO_IDENTITY


def test_rows_that_left_are_gone_and_others_stay(store: RowStore) -> None:
    with store.transaction(2):
        comparison = store.comparison(7)
        comparison.changes(keyed_lines(b"4\td\n1\tz\n", 2, [0]))
        gone = [line for keys in (b"2\n9\n", b"") for line in _lines(comparison.left(keyed_lines(keys, 1, [0])))]
        comparison.keep()
        assert (gone, comparison.deleted) == ([b"2\n"], 1)
    with store.transaction(3):
        assert _found(store, b"1\tz\n4\td\n") == ([], [b"3\n"])


@pytest.mark.parametrize("only", [True, False])
def test_only_rows_that_the_store_knows_are_old_rows(store: RowStore, only: bool) -> None:
    copy = b"1\ta\n", b"2\tz\n9\tx\n3\tc\n"
    with store.transaction(2):
        comparison = store.comparison(7)
        for rows in copy:
            comparison.know_olds(keyed_lines(rows, 2, [0]), only=only)
        changes = comparison.changes(keyed_lines(b"1\tA\n2\tB\n9\tx\n", 2, [0]))
        assert sorted(changes.select(["line", "old"]).to_pylist(), key=str) == [
            {"line": b"1\tA\n", "old": None if only else b"1\ta\n"},
            {"line": b"2\tB\n", "old": None},
            {"line": b"9\tx\n", "old": None},
        ]
        gone = comparison.left(keyed_lines(b"3\n", 1, [0])).to_pylist()
        assert gone == [{"line": b"3\n", "old": b"3\tc\n"}]
        assert [row for piece in comparison.finish() for row in piece.to_pylist()] == gone


@pytest.mark.parametrize(
    "text",
    [
        b"1\ta\n2\tb\n2\tb\n",
        b"1\ta\n\\N\tb\n",
        # The row that is gone must not make up for the one that is there twice.
        b"1\ta\n1\tz\n2\tb\n",
    ],
)
@pytest.mark.parametrize("filled", [True, False])
def test_rows_without_a_key_of_their_own_are_found(store: RowStore, text: bytes, filled: bool) -> None:
    with store.transaction(2):
        if filled:
            store.forget(7)
            store.follow(7, KNOWN)
        comparison = store.comparison(7)
        (comparison.fill if filled else comparison.changes)(keyed_lines(text, 2, [0]))
        with pytest.raises(EngineFault) as caught:
            comparison.check_keys()
    assert caught.value.kind is FaultKind.TABLE_NO_IDENTITY


def test_a_text_that_looks_like_null_is_a_key(store: RowStore) -> None:
    rows = b"\\\\N\ta\nN\tb\n\tc\n\\\\\td\n"
    with store.transaction(2):
        comparison = store.comparison(7)
        comparison.changes(keyed_lines(rows, 2, [0]))
        comparison.check_keys()
        assert comparison.inserted == 4


def test_an_error_of_the_store_is_a_fault_and_changes_nothing(store: RowStore) -> None:
    with pytest.raises(EngineFault) as caught, store.transaction(2):
        _fail(store, duckdb.IOException("No space left on device"))
    assert (caught.value.kind, store.last) == (FaultKind.QUEUE_DISK_FULL, 1)


def test_a_file_that_another_program_has_open_is_tried_again_later(tmp_path: Path) -> None:
    path = tmp_path / "rows.duckdb"
    with closing(RowStore(path)) as first:
        identity = first.id
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(EngineFault) as caught:
            RowStore(path)
        holder.communicate(b"", timeout=30)
    assert caught.value.kind is FaultKind.SOURCE_TIMEOUT
    with closing(RowStore(path)) as again:
        assert again.id == identity


def test_a_file_that_is_no_store_is_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "rows.duckdb"
    path.write_bytes(b"something else " * 1000)
    with pytest.raises(EngineFault) as caught:
        RowStore(path)
    assert caught.value.kind is FaultKind.LOG_GAP
