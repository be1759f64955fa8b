"""Values whose text is larger than max_allowed_packet of the server, for which functions of MariaDB return NULL: never copied as NULL."""

from __future__ import annotations

from collections.abc import Callable

import pymysql
import pytest

from engine.model.subscription import CaptureSpec, ConnectionSpec
from tests.fixtures.mariadb import MariaDbDatabase
from tests.fixtures.replication import Replica, table

pytestmark = pytest.mark.pg

Start = Callable[..., Replica]
LARGE = "REPEAT('x', @@max_allowed_packet DIV 2 + 1)"
"""It can be stored, but its hexadecimal digits are too many."""


def begun(database: MariaDbDatabase, replicate: Start, capture: CaptureSpec) -> Replica:
    source = ConnectionSpec("shop", "mariadb", database.settings, database.secrets, capture=capture)
    return replicate(database, [table("large", database.name)], source=source, live=False)


@pytest.mark.parametrize("statement", ["INSERT", "INSERT IGNORE", "REPLACE"])
def test_a_write_that_triggers_cannot_record_is_refused(
    mariadb: MariaDbDatabase, replicate: Start, statement: str
) -> None:
    mariadb.execute("CREATE TABLE large (id int PRIMARY KEY, v longblob, w text)")
    replica = begun(mariadb, replicate, CaptureSpec("triggers"))
    replica.wait_live()
    with pytest.raises(pymysql.err.MySQLError, match="max_allowed_packet"):
        mariadb.execute(f"{statement} INTO large VALUES (1, {LARGE}, NULL)")
    mariadb.execute(f"{statement} INTO large VALUES (2, 'small', NULL)")
    replica.assert_equal()


@pytest.mark.parametrize("kind", ["triggers", "query_diff"])
def test_a_copy_with_a_value_that_the_server_cannot_print_is_parked(
    mariadb: MariaDbDatabase, replicate: Start, kind: str
) -> None:
    mariadb.execute("CREATE TABLE large (id int PRIMARY KEY, v longblob, w text)")
    mariadb.execute(f"INSERT INTO large VALUES (1, NULL, 'small'), (2, {LARGE}, NULL), (3, 'small', NULL)")
    replica = begun(mariadb, replicate, CaptureSpec(kind, {"every_seconds": 3600} if kind == "query_diff" else {}))
    parked = replica.wait_table("large", "parked")
    assert parked.code == "value_out_of_domain"
    assert "max_allowed_packet" in (parked.reason or "")
