"""Arrays of types whose elements are not parted by commas, through copy, log, defaults and a restart."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fixtures.postgres import Database
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

COLON = """
CREATE TYPE colon;
CREATE FUNCTION colon_in(cstring) RETURNS colon LANGUAGE internal IMMUTABLE STRICT AS 'int4in';
CREATE FUNCTION colon_out(colon) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'int4out';
CREATE TYPE colon (INPUT = colon_in, OUTPUT = colon_out, INTERNALLENGTH = 4, PASSEDBYVALUE, DELIMITER = ':');
"""
BOXES = ["(1,1),(0,0)", "(3,3),(2,2)"]


def test_arrays_of_boxes_and_of_a_type_with_a_delimiter_of_its_own(
    database: Database, replicate: Callable[..., Replica]
) -> None:
    database.execute(COLON)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, c colon[], b box[])")
    database.execute("INSERT INTO t VALUES (1, '{1:2}', '{(1,1),(0,0);(3,3),(2,2)}')")
    replica = replicate(database, [table("t")])
    database.execute("INSERT INTO t VALUES (2, '{3:4:5}', '{(1,1),(0,0)}')")
    replica.catch_up()
    database.execute("ALTER TABLE t ADD d box[] DEFAULT '{(1,1),(0,0);(3,3),(2,2)}', ADD e colon[] DEFAULT '{6:7}'")
    database.execute("INSERT INTO t VALUES (3, '{8}', NULL, '{}', DEFAULT)")
    replica.assert_equal()
    replica.restart()
    replica.wait_live()
    database.execute("UPDATE t SET c = '{9:10}' WHERE id = 3")
    replica.assert_equal()
    assert replica.query("SELECT * FROM t ORDER BY id") == [
        (1, ["1", "2"], BOXES, BOXES, ["6", "7"]),
        (2, ["3", "4", "5"], BOXES[:1], BOXES, ["6", "7"]),
        (3, ["9", "10"], None, [], ["6", "7"]),
    ]
