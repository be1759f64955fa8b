"""Verifications of copies of MariaDB by checksums: values of every type are hashed alike on both sides, and every error is found."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.link.verifications import RowCounts
from engine.model.masks import Mask, MaskMethod
from engine.model.verification import VerificationMethod
from tests.fixtures.mariadb import MariaDbDatabase
from tests.fixtures.replication import Replica, table
from tests.pg.engine.repairing import plant
from tests.pg.mariadb_checksums.compared import assert_found_by_checksums, checksums, drawn_text, listed

pytestmark = [pytest.mark.pg, pytest.mark.usefixtures("small_ranges")]

Start = Callable[..., Replica]

EVERY = """
CREATE TABLE every (
    id int PRIMARY KEY, a tinyint, b smallint unsigned, c mediumint, d int unsigned, e bigint, f bigint unsigned, g int(8) zerofill,
    h decimal(10, 2), i decimal(38, 38), j decimal(60, 5), k float, l double, m date, n datetime, o datetime(6), p timestamp(6) NULL,
    q time(6), r year, s char(10), t varchar(200), u longtext, v varchar(50) CHARACTER SET latin1, w enum('', 'one', 'two'),
    x set('a', 'b'), y binary(4), z longblob, aa bit(10), ab json, ac uuid, ad inet6, ae point, af boolean, ag decimal(6, 3) zerofill);
INSERT INTO every VALUES
(1, -128, 0, -8388608, 4294967295, -9223372036854775808, 18446744073709551615, 7, -0.05, 0.00000000000000000000000000000000000001,
    -1234567890123456789012345678901234567890.00001, -0.1, -1e300, '0001-01-01', '9999-12-31 23:59:59', '1000-01-01 00:00:00.000001',
    '1970-01-01 00:00:01.5', '-838:59:59.000001', 1901, 'a  ', 'tab\\tline\\nreturn\\rback\\\\slash', '😀 Ä \\\\N', 'Ä€', '', '', 'ab',
    X'00095C0A0DFF', b'1000000001', '{"a": [1, 2.50]}', '12345678-9abc-4ef0-8234-56789abcdef0', '::ffff:1.2.3.4', POINT(1.5, -2), TRUE, 7),
(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
(3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '2024-02-29', '2024-02-29 00:00:00', '2024-02-29 12:30:00.120000', '2038-01-19 03:14:07',
    '00:00:00', 2155, '', '', '', '', 'two', 'a,b', '', '', 0, '[]', '00000000-0000-0000-0000-000000000000', '::', POINT(0, 0), FALSE, 0),
(4, 127, 65535, 8388607, 1, 9223372036854775807, 9223372036854775808, 12345678, 99999999.99, -0.5, 0.5, 3.4e38, 4.9e-324, '9999-12-31',
    '1000-01-01 00:00:00', '9999-12-31 23:59:59.999999', '2024-10-27 01:30:00.000001', '838:59:59', 2000, 'Trailing', 'trailing ', ' ',
    'x', 'one', 'a', X'FFFFFFFF', REPEAT(X'FF', 70000), 1023, '"x"', 'ffffffff-ffff-4fff-bfff-ffffffffffff', 'fe80::1', NULL, NULL, 321.5);
INSERT INTO every (id, k, l, t, h, o)
    SELECT seq + 10, seq / 7, seq / 3e5, CONCAT('row ', seq), seq / 7, '2024-01-01' + INTERVAL seq * 1001 MICROSECOND FROM seq_1_to_700
"""
KEYS = {
    "of_numbers": "bigint",
    "of_large": "bigint unsigned",
    "of_padded": "int(9) zerofill",
    "of_decimals": "decimal(12, 3)",
    "of_times": "datetime(6)",
    "of_dates": "date",
}
COMPOSITE = "CREATE TABLE of_two (a smallint, b datetime(3), v int, PRIMARY KEY (b, a));\nINSERT INTO of_two"
COMPOSITE += " SELECT CAST(seq AS SIGNED) MOD 7 - 3, '2024-01-01' + INTERVAL seq DIV 7 SECOND, seq FROM seq_1_to_900"
BY_ROWS = """
CREATE TABLE of_instants (id timestamp PRIMARY KEY, v int);
INSERT INTO of_instants VALUES ('2024-01-01', 1), ('2024-01-02', 2);
CREATE TABLE of_greek (id varchar(20) CHARACTER SET greek PRIMARY KEY, v int);
INSERT INTO of_greek VALUES ('a', 1), ('b', 2);
CREATE TABLE hidden (id int PRIMARY KEY, v int);
INSERT INTO hidden VALUES (1, 1), (2, 2)
"""


def random_rows(count: int) -> Iterator[tuple[Any, ...]]:
    """Floats of random bits, and texts of characters that are escaped, or compared without regard to case, accents and padding."""
    chance = random.Random(7)
    for number in range(count):
        (double,) = struct.unpack(">d", chance.randbytes(8))
        real = chance.choice([chance.random(), chance.uniform(-1e38, 1e38), chance.randrange(10**7) * 10.0**-3])
        double = double if double - double == 0 else -1.5e-310
        yield number, double, real, drawn_text(chance), drawn_text(chance), chance.randbytes(chance.randrange(5))


def test_values_of_every_type_are_hashed_alike(mariadb: MariaDbDatabase, start: Start) -> None:
    mariadb.execute(EVERY)
    mariadb.execute("CREATE TABLE drawn (id int PRIMARY KEY, d double, r float, t longtext, s varchar(30), b blob)")
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO drawn VALUES (%s, %s, %s, %s, %s, %s)", list(random_rows(800)))
    found = checksums(start("every", "drawn"))
    assert_found_by_checksums(found["every"], 704)
    assert_found_by_checksums(found["drawn"], 800)


def test_errors_of_each_kind_are_found_and_repaired(mariadb: MariaDbDatabase, start: Start) -> None:
    mariadb.execute(EVERY)
    replica = start("every")
    name = f"{mariadb.name}.every"
    plant(
        replica,
        [
            f"DELETE FROM {name} WHERE id = 110",
            f"INSERT INTO {name} (id, a) VALUES (-5, 1)",
            f"INSERT INTO {name} (id, a) VALUES (100000, NULL)",
            f"UPDATE {name} SET h = h + 0.01 WHERE id = 200",
            f"UPDATE {name} SET l = 0.0010000000000000002 WHERE id = 310",  # 0.001 and one bit
            f"UPDATE {name} SET t = NULL WHERE id = 3",
            f"UPDATE {name} SET u = '' WHERE id = 2",
            f"UPDATE {name} SET t = t || ' ' WHERE id = 400",
            f"UPDATE {name} SET t = 'Row 440' WHERE id = 450",
            f"UPDATE {name} SET o = o + INTERVAL '1 microsecond', w = 'one' WHERE id = 500",
            f"UPDATE {name} SET t = '\\N' WHERE id = 4",
        ],
    )
    found = checksums(replica)["every"]
    assert listed(found) == [
        (("-5",), "extra", ()),
        (("100000",), "extra", ()),
        (("110",), "missing", ()),
        (("2",), "different", ("u",)),
        (("200",), "different", ("h",)),
        (("3",), "different", ("t",)),
        (("310",), "different", ("l",)),
        (("4",), "different", ("t",)),
        (("400",), "different", ("t",)),
        (("450",), "different", ("t",)),
        (("500",), "different", ("o", "w")),
    ]
    assert (found.method, found.equal, found.source_rows, found.target_rows) == ("checksum", False, 704, 705)
    assert 3 < found.ranges_different < found.ranges
    assert listed(checksums(replica, method=VerificationMethod.ROWS)["every"]) == listed(found)
    mended = checksums(replica, apply=True)["every"]
    assert (mended.equal, mended.repaired) == (True, RowCounts(inserted=1, updated=8, deleted=2))
    assert_found_by_checksums(checksums(replica)["every"], 704)


def test_keys_sort_alike_on_both_sides(mariadb: MariaDbDatabase, start: Start) -> None:
    values = {
        "of_numbers": "CAST(seq AS SIGNED) * 3 - 1000",
        "of_large": "seq * 24000000000000000",
        "of_padded": "seq",
        "of_decimals": "(CAST(seq AS SIGNED) - 300) / 8",
        "of_times": "'1999-12-31 23:59:59.5' + INTERVAL seq * 100001 MICROSECOND",
        "of_dates": "'1969-12-01' + INTERVAL seq DAY",
    }
    for name, kind in KEYS.items():
        mariadb.execute(f"CREATE TABLE {name} (k {kind} PRIMARY KEY, v text)")
        mariadb.execute(f"INSERT INTO {name} SELECT {values[name]}, CONCAT('v', seq) FROM seq_1_to_700")
    mariadb.execute(COMPOSITE)
    replica = start(*KEYS, "of_two")
    found = checksums(replica)
    for name in KEYS:
        assert_found_by_checksums(found[name], 700)
    assert_found_by_checksums(found["of_two"], 900)
    changes = [f"UPDATE {mariadb.name}.{name} SET v = 'V7' WHERE v = 'v7'" for name in KEYS]
    changes += [f"DELETE FROM {mariadb.name}.{name} WHERE v = 'v699'" for name in KEYS]
    plant(replica, [*changes, f"UPDATE {mariadb.name}.of_two SET v = -1 WHERE v IN (8, 500)"])
    by_checksum, by_rows = checksums(replica), checksums(replica, method=VerificationMethod.ROWS)
    assert {each.method for each in by_checksum.values()} == {VerificationMethod.CHECKSUM}
    assert [len(listed(found)) for found in by_checksum.values()] == [2] * 7
    assert {name: listed(each) for name, each in by_checksum.items()} == {
        n: listed(each) for n, each in by_rows.items()
    }


def test_tables_that_cannot_be_hashed_alike_are_compared_by_rows(mariadb: MariaDbDatabase, start: Start) -> None:
    mariadb.execute(BY_ROWS)
    hidden = table("hidden", mariadb.name, mask={"v": Mask(MaskMethod.NULL)})
    found = checksums(start("of_instants", "of_greek", hidden))
    another = "a key that is not the primary key, or has a type or character set that is not compared by literals"
    assert {name: (each.equal, each.method, each.by_rows_because) for name, each in found.items()} == {
        "of_instants": (True, VerificationMethod.ROWS, another),
        "of_greek": (True, VerificationMethod.ROWS, another),
        "hidden": (True, VerificationMethod.ROWS, "masked columns"),
    }
