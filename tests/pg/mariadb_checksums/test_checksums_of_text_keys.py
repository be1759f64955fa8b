"""Verifications by checksums of tables with keys of texts and bytes, which MariaDB sorts by collations and a target by characters."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.link.verifications import RowCounts
from engine.model.ranges import ANOTHER_ORDER
from engine.model.verification import VerificationMethod
from tests.fixtures.mariadb import MariaDbDatabase
from tests.fixtures.replication import Replica
from tests.pg.engine.repairing import plant
from tests.pg.mariadb_checksums.compared import assert_found_by_checksums, checksums, drawn_text, listed

pytestmark = [pytest.mark.pg, pytest.mark.usefixtures("small_ranges")]

Start = Callable[..., Replica]

ROWS = 600
KEYS = {
    "nopad": "varchar(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin",
    "padded": "varchar(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "fixed": "char(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "folded": "varchar(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    "latin": "varchar(30) CHARACTER SET latin1 COLLATE latin1_swedish_ci",
    "ascii": "char(36) CHARACTER SET ascii",
    "bytes": "varbinary(20)",
    "digest": "binary(6)",
}
OF_ANY = ("nopad", "padded", "fixed", "folded")
"""Keys of random texts with case variants, accents, control characters, spaces at the end and characters above U+FFFF."""
IN_ORDER = ("nopad", "latin", "ascii", "bytes", "digest")
"""Keys that source and target sort alike: the PostgreSQL targets of tests sort by bytes."""


def different(drawn: Iterator[Any], same: Callable[[Any], Any]) -> list[Any]:
    """ROWS values that the source does not regard as equal."""
    found: dict[Any, Any] = {}
    for value in drawn:
        found.setdefault(same(value), value)
        if len(found) == ROWS:
            break
    return list(found.values())


def drawn_keys(name: str, chance: random.Random) -> list[Any]:
    if name == "bytes":
        drawn = (
            bytes(chance.choice(b"\0\1\\\t\n'\x7f\x80\xff") for _ in range(chance.randrange(12))) for _ in iter(int, 1)
        )
        return different(drawn, bytes)
    if name == "digest":
        return different((chance.randbytes(6) for _ in iter(int, 1)), bytes)
    if name in OF_ANY:
        texts = (drawn_text(chance) for _ in iter(int, 1))
        return different((t.rstrip(" ") if name == "fixed" else t for t in texts), str if name == "nopad" else folded)
    letters = "abcdefghijklmnopqrstuvwxyz" if name == "latin" else "0123456789abcdef"
    return different(("".join(chance.choices(letters, k=20)) for _ in iter(int, 1)), str)


def folded(text: str) -> str:
    """Equal for texts that a collation may regard as equal: it compares them without case and accents, and pads them with spaces."""
    plain = text.casefold().replace("ä", "a").replace("😀", "?")
    return "".join(letter for letter in plain.rstrip(" ") if letter >= " ") + "|"


def filled(mariadb: MariaDbDatabase, name: str, kind: str, keys: list[Any]) -> None:
    mariadb.execute(f"CREATE TABLE {name} (k {kind} PRIMARY KEY, n int, d double, t varchar(20))")
    lines = [(key, n, n / 7, ["", None, "text"][n % 3]) for n, key in enumerate(keys)]
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {name} VALUES (%s, %s, %s, %s)", lines)
    # Estimates decide where ranges begin.
    mariadb.execute(f"ANALYZE TABLE {name}")


def next_float(value: float) -> float:
    (bits,) = struct.unpack(">q", struct.pack(">d", value))
    (found,) = struct.unpack(">d", struct.pack(">q", bits + 1))
    return float(found)


def errors(table: str, extra: str) -> list[str]:
    """A row that is missing, an extra one, and rows with another number, one bit of a float, and NULL in place of an empty text."""
    return [
        f"DELETE FROM {table} WHERE n IN (17, 300)",
        f"INSERT INTO {table} (k, n) VALUES ({extra}, -1)",
        f"UPDATE {table} SET n = 1000 WHERE n = 401",
        f"UPDATE {table} SET d = {next_float(202 / 7)!r} WHERE n = 202",
        f"UPDATE {table} SET t = NULL WHERE n = 501",
        f"UPDATE {table} SET t = '' WHERE n = 502",
    ]


def test_errors_are_found_by_keys_of_texts_and_bytes_as_by_rows(
    mariadb: MariaDbDatabase, start: Start, target_kind: str
) -> None:
    chance = random.Random(1)
    for name, kind in KEYS.items():
        filled(mariadb, name, kind, drawn_keys(name, chance))
    replica = start(*KEYS)
    found = checksums(replica)
    assert {name: (one.equal, one.source_rows) for name, one in found.items()} == dict.fromkeys(KEYS, (True, ROWS))
    for name in IN_ORDER:
        assert_found_by_checksums(found[name], ROWS)
    assert (found["folded"].method, found["folded"].by_rows_because) == (VerificationMethod.ROWS, ANOTHER_ORDER)
    extra = {"duckdb": "'\\x00ff'::BLOB", "postgres": "'\\x00ff'"}[target_kind]
    for name in KEYS:
        key = extra if name in {"bytes", "digest"} else "'b 😀 extra'" if name != "ascii" else "'5 extra'"
        plant(replica, errors(f"{mariadb.name}.{name}", key))
    by_rows, found = checksums(replica, method=VerificationMethod.ROWS), checksums(replica)
    assert {name: listed(one) for name, one in found.items()} == {name: listed(one) for name, one in by_rows.items()}
    assert {len(one.differing) for one in found.values()} == {7}
    for name in IN_ORDER:
        assert (name, found[name].method, found[name].by_rows_because) == (name, VerificationMethod.CHECKSUM, None)
        assert 0 < found[name].ranges_different < found[name].ranges
    mended = checksums(replica, apply=True)
    for name in KEYS:
        counts = RowCounts(inserted=2, updated=4, deleted=1)
        assert (name, mended[name].equal, mended[name].repaired) == (name, True, counts)


def test_rows_that_the_two_sides_sort_otherwise_are_read_and_compared(mariadb: MariaDbDatabase, start: Start) -> None:
    chance = random.Random(3)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=12)) for _ in range(500)]
    few = [word.upper() for word in words[:3]]
    keys = different(iter([*words[3:], *few, *(f"{n} words" for n in range(ROWS))]), str)
    filled(mariadb, "folded", KEYS["folded"], keys)
    mariadb.execute("CREATE TABLE two (k varchar(20), b varbinary(8), i int, v int, PRIMARY KEY (i, k, b))")
    mariadb.execute("INSERT INTO two SELECT CONCAT('w', seq DIV 9), X'00FF5C', seq MOD 9, seq FROM seq_10000_to_10800")
    replica = start("folded", "two")
    found = checksums(replica)
    assert_found_by_checksums(found["two"], 801)
    one = found["folded"]
    assert (one.method, one.equal, one.source_rows, one.by_rows_because) == (
        VerificationMethod.CHECKSUM,
        True,
        ROWS,
        None,
    )
    assert 1 < one.ranges_different < one.ranges
    name = f"{mariadb.name}.folded"
    plant(replica, [f"UPDATE {name} SET t = 'X' WHERE k = '{few[0]}'", f"DELETE FROM {name} WHERE k = '{few[1]}'"])
    plant(replica, [f"DELETE FROM {mariadb.name}.two WHERE v IN (10000, 10400, 10800)"])
    found = checksums(replica)
    assert listed(found["folded"]) == sorted([((few[0],), "different", ("t",)), ((few[1],), "missing", ())])
    assert [kind for _, kind, _ in listed(found["two"])] == ["missing"] * 3
