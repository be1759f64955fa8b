"""What a two-phase session brings of prepared transactions, as seen on PostgreSQL 16.14 and 18.4.

`b` BEGIN PREPARE, `P` PREPARE, `K` COMMIT PREPARED, `r` ROLLBACK PREPARED; "start" is the start of a record in the log.

- A prepared transaction comes as `b`, its records, `P` where it was prepared, and `K` or `r` where it ended; nothing is between `b` and
  `P` but its own records. `b` and `P` have the same positions. `K` may start exactly where `P` ended, and `r` names where `P` ended.
- A session sends what starts at or after the slot's confirmed position, each record for itself: confirmed up to the start of PREPARE, it
  sends the rows again; one byte further it does not, and `K` or `r` comes alone. A new session sends all of it again, also after a
  restart of the server. A crash of the server can set the confirmed position back.
- A transaction that changed only unpublished tables, or whose changes were all rolled back, comes as `b P K`. One that only locked rows
  comes as `K` alone from 16 and as `P K`, without `b`, from 18. One that wrote nothing does not come at all.
- `K` alone therefore does not prove on 16 that rows are missing.
- If a transaction was rolled back before it is decoded, its `b` and `P` come with all, some or none of its rows, and `r` follows: only
  `K` shows that the rows are complete.
- A gid is unique among those that are prepared at one time on a server, and may be used again, also by the next transaction. It may be
  empty. It comes in UTF-8; one that is not UTF-8, in a database of the encoding SQL_ASCII, ends each session with SQLSTATE 22021.
- Transactions of other databases do not come.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.model.fault import EngineFault
from engine.model.position import Lsn
from server.demo.embedded import EmbeddedPostgres
from tests.fixtures.postgres import Database
from tests.fixtures.waiting import wait_until
from tests.pg.two_phase.node import LOCKS, MESSAGE, Node, insert, node_on, only, read_all, words

pytestmark = pytest.mark.pg

LARGE = 2000
"""Rows of a transaction that exceeds `logical_decoding_work_mem` of the nodes, 64 kB."""
GIDS = [
    "",
    " ",
    "a gid with spaces ",
    'o\'clock "quoted" \\ back',
    "Größe 表 🐘",
    "tab\tand\nline",
    "bPKr",
    "0_1234@n1",
    "G" * 199,
    "表" * 66,
]


def test_prepared_transactions_come_in_the_order_of_the_log(node: Node) -> None:
    node.prepare("one", insert(1))
    node.finish("COMMIT", "one")
    node.prepare("two", insert(2))
    node.insert(3)
    node.finish("ROLLBACK", "two")
    node.prepare("three", insert(4))
    node.insert(5)
    node.finish("COMMIT", "three")
    found = node.read()
    assert words(found) == [
        *("b one", "R", "I", "P one", "K one"),
        *("b two", "I", "P two", "B", "I", "C", "r two"),
        *("b three", "I", "P three", "B", "I", "C", "K three"),
    ]
    ends = [one.end for one in found if one.letter in {"P", "K", "r", "C"}]
    assert ends == sorted(set(ends))


def test_positions_times_and_transaction_ids_fit_together(node: Node) -> None:
    node.prepare("one", insert(1))
    ((xid, prepared_us),) = node.database.execute(
        "SELECT transaction::text::bigint, (extract(epoch FROM prepared) * 1000000)::bigint FROM pg_prepared_xacts"
        " WHERE database = current_database()"
    )
    node.finish("COMMIT", "one")
    node.prepare("two", insert(2))
    node.insert(3)
    node.finish("ROLLBACK", "two")
    found = node.read()
    begun, prepared, committed = (only(found, f"{letter} one") for letter in "bPK")
    assert {one.xid for one in (begun, prepared, committed)} == {xid}
    assert (begun.lsn, begun.end, begun.time_us) == (prepared.lsn, prepared.end, prepared.time_us)
    assert prepared.time_us == prepared_us
    assert node.begin < prepared.lsn < prepared.end <= committed.lsn < committed.end
    assert committed.time_us >= prepared.time_us
    undone, between = only(found, "r two"), next(one for one in found if one.letter == "C")
    assert undone.lsn == only(found, "P two").end <= between.lsn
    assert undone.end > between.end
    assert undone.xid == only(found, "b two").xid != xid
    assert undone.time_us >= only(found, "P two").time_us


@pytest.mark.parametrize("further", [0, 1, None], ids=["at_its_start", "one_byte_further", "at_its_end"])
@pytest.mark.parametrize("ended", ["COMMIT", "ROLLBACK"])
def test_rows_come_again_exactly_if_prepare_does_not_start_before_what_is_confirmed(
    node: Node, further: int | None, ended: str
) -> None:
    node.insert(1)
    node.prepare("one", insert(2), insert(3))
    prepared = only(node.read(), "P one")
    confirm = prepared.end if further is None else Lsn(prepared.lsn.value + further)
    node.read(confirm=confirm)
    assert node.confirmed() == confirm
    node.begin = prepared.end
    whole = ["b one", "R", "I", "I", "P one"] if further == 0 else []
    assert words(node.read()) == whole
    node.finish(ended, "one")
    found = words(node.read())
    if ended == "COMMIT":
        assert found == [*whole, "K one"]
    else:
        # Rows of what is known to be rolled back may be left out.
        assert [word for word in found if word not in {"R", "I"}] == [*whole[:1], *whole[-1:], "r one"]


@pytest.mark.parametrize("how", ["session", "fast", "immediate", "killed"])
def test_a_transaction_comes_again_whole_after_its_session_ended_or_the_server(
    private_cluster: Callable[..., EmbeddedPostgres], how: str
) -> None:
    cluster = private_cluster(18)
    with node_on(Database(cluster, "postgres")) as node:
        node.insert(1)
        node.prepare("one", insert(2), insert(3, LARGE))
        first = node.read(confirm=node.begin)
        if how == "killed":
            cluster.kill9()
            cluster.start()
        elif how != "session":
            cluster.restart("fast" if how == "fast" else "immediate")
        assert words(node.read()) == words(first)
        node.finish("COMMIT", "one")
        assert words(node.read())[-2:] == ["P one", "K one"]
        assert [one.raw for one in node.read()[: len(first)]] == [one.raw for one in first]


def test_a_crash_of_the_server_sets_the_confirmed_position_back_and_loses_nothing(
    private_cluster: Callable[..., EmbeddedPostgres],
) -> None:
    cluster = private_cluster(18)
    with node_on(Database(cluster, "postgres")) as node:
        node.prepare("one", insert(1))
        node.finish("COMMIT", "one")
        node.prepare("two", insert(2))
        begin, held = node.begin, only(node.read(), "P two").lsn
        node.read(confirm=held)
        assert node.confirmed() == held
        cluster.kill9()
        cluster.start()
        assert node.confirmed() == begin
        node.begin = held
        assert words(node.read()) == ["b one", "R", "I", "P one", "K one", "b two", "I", "P two"]


@pytest.mark.parametrize("gid", GIDS, ids=range(len(GIDS)))
def test_a_gid_comes_as_it_was_given_and_may_be_used_again(node: Node, gid: str) -> None:
    for number, ended in ((1, "COMMIT"), (2, "ROLLBACK"), (3, "COMMIT")):
        node.prepare(gid, insert(number))
        node.finish(ended, gid)
    found = node.read()
    assert [one.letter for one in found] == list("bRIPKbIPrbIPK")
    assert {one.gid for one in found} == {None, gid}
    ids = [one.xid for one in found if one.gid is not None]
    assert len(set(ids)) == 3
    assert ids == sorted(ids)


SHAPES: dict[str, tuple[list[str], dict[int, str]]] = {
    "nothing": (["SELECT 1"], {16: "", 18: ""}),
    "an id only": (["SELECT pg_current_xact_id()"], {16: "", 18: ""}),
    "unpublished": (["INSERT INTO u VALUES (1)"], {16: "bP", 18: "bP"}),
    "published and not": (["INSERT INTO u VALUES (1)", insert(1)], {16: "bRIP", 18: "bRIP"}),
    "locks": ([LOCKS], {16: "", 18: "P"}),
    "message": ([MESSAGE], {16: "bMP", 18: "bMP"}),
    "rows and message": ([insert(1), MESSAGE], {16: "bRIMP", 18: "bRIMP"}),
    "rolled back": (["SAVEPOINT a", insert(1), "ROLLBACK TO a"], {16: "bP", 18: "bP"}),
    "partly rolled back": (
        [insert(1), "SAVEPOINT a", insert(2), "ROLLBACK TO a", "SAVEPOINT b", insert(3), "RELEASE b"],
        {16: "bRIIP", 18: "bRIIP"},
    ),
    "large, partly rolled back": (
        [insert(1), "SAVEPOINT a", insert(2, LARGE), "ROLLBACK TO a", insert(2)],
        {16: "bRIIP", 18: "bRIIP"},
    ),
    "table": (["CREATE TABLE more (id int)"], {16: "bP", 18: "bP"}),
    "structure": (
        [insert(1), "ALTER TABLE t ADD w int", "INSERT INTO t VALUES (2, 'v', 3)"],
        {16: "bRIRIP", 18: "bRIRIP"},
    ),
    "truncate": (["TRUNCATE t", insert(1)], {16: "bRTIP", 18: "bRTIP"}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_what_comes_of_a_transaction_that_was_committed(node: Node, version: int, shape: str) -> None:
    statements, letters = SHAPES[shape]
    node.insert(10 * LARGE)
    node.skip()
    node.prepare("one", *statements)
    node.finish("COMMIT", "one")
    ended = "" if shape in {"nothing", "an id only"} else "K"
    for _ in range(2):
        assert "".join(one.letter for one in node.read()) == letters[version] + ended


@pytest.mark.parametrize("shape", SHAPES)
def test_what_comes_of_a_transaction_that_was_rolled_back_when_it_was_read(
    node: Node, version: int, shape: str
) -> None:
    statements, letters = SHAPES[shape]
    node.insert(10 * LARGE)
    node.skip()
    node.prepare("one", *statements)
    assert "".join(one.letter for one in node.read()) == letters[version]
    node.finish("ROLLBACK", "one")
    found = "".join(one.letter for one in node.read())
    ended = "" if shape in {"nothing", "an id only"} else "r"
    assert found.removesuffix("r") + ended == found
    # Rows of what is known to be rolled back may be left out, and no others come.
    assert found.removesuffix("r").strip("bP") in {letters[version].strip("bP"), ""}
    assert [one for one in found if one in "bP"] == [one for one in letters[version] if one in "bP"]


def test_a_large_transaction_comes_whole_where_it_was_prepared(node: Node) -> None:
    node.prepare("large", insert(1, LARGE))
    node.insert(LARGE + 1)
    node.finish("COMMIT", "large")
    found = node.read()
    assert words(found) == ["b large", "R", *["I"] * LARGE, "P large", "B", "I", "C", "K large"]
    spilled = "SELECT 1 FROM pg_stat_replication_slots WHERE slot_name = %s AND spill_bytes > 0"
    wait_until(lambda: node.database.execute(spilled, [node.slot]), what="the statistics name what was spilled")


def test_a_large_transaction_that_was_rolled_back_before_it_is_read_brings_no_rows(node: Node) -> None:
    node.prepare("large", insert(1, LARGE))
    node.finish("ROLLBACK", "large")
    assert words(node.read()) == ["b large", "P large", "r large"]


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_gid_comes_in_utf8_whatever_the_encoding_of_the_database(
    pg: EmbeddedPostgres, database_on: Callable[..., Database], encoding: str
) -> None:
    with node_on(encoded(database_on(pg), encoding)) as node, node.database.connect(client_encoding="UTF8") as session:
        node.prepare("Größe", insert(1), session=session)
        session.execute("COMMIT PREPARED 'Größe'")
        assert words(node.read()) == ["b Größe", "R", "I", "P Größe", "K Größe"]


def test_a_gid_that_is_no_utf8_ends_the_session(pg: EmbeddedPostgres, database_on: Callable[..., Database]) -> None:
    with node_on(encoded(database_on(pg), "SQL_ASCII")) as node:
        with node.database.connect(client_encoding="SQL_ASCII") as session:
            session.execute("BEGIN")
            session.execute(insert(1).encode())
            session.execute(b"PREPARE TRANSACTION E'\\xf6'")
            session.execute(b"COMMIT PREPARED E'\\xf6'")
        with pytest.raises(EngineFault, match="SQLSTATE 22021"):
            node.read()


def encoded(database: Database, encoding: str) -> Database:
    """The database, made again with this encoding."""
    database.cluster.execute(f'DROP DATABASE "{database.name}"')
    database.cluster.execute(f"CREATE DATABASE \"{database.name}\" ENCODING '{encoding}' TEMPLATE template0")
    return database


def test_prepare_comes_after_some_rows_of_a_transaction_that_was_rolled_back_before_it_is_read(node: Node) -> None:
    node.insert(1)
    node.prepare("one", insert(2), insert(3), "INSERT INTO u VALUES (1)", insert(4))
    assert words(node.read()) == ["B", "R", "I", "C", "b one", "I", "I", "I", "P one"]
    node.finish("ROLLBACK", "one")
    # Decoding ends where it reads the catalog next, which is for a table that the session has not met.
    assert words(node.read()) == ["B", "R", "I", "C", "b one", "I", "I", "P one", "r one"]


def test_messages_outside_of_transactions_come_at_their_place(node: Node) -> None:
    node.prepare("one", insert(1), "SELECT pg_logical_emit_message(false, 'any', 'at once')")
    node.finish("COMMIT", "one")
    assert [one.letter for one in node.read()] == list("MbRIPK")


def test_transactions_of_another_database_do_not_come(node: Node, database_on: Callable[..., Database]) -> None:
    with node_on(database_on(node.database.cluster)) as other:
        for one in (node, other):
            one.prepare(f"of {one.database.name}", insert(1))
            one.finish("COMMIT", f"of {one.database.name}")
        for one in (node, other):
            name = one.database.name
            assert words(one.read()) == [f"b of {name}", "R", "I", f"P of {name}", f"K of {name}"]


@pytest.mark.pg15
def test_version_15_sends_the_same(pg15: EmbeddedPostgres, database_on: Callable[..., Database]) -> None:
    with node_on(database_on(pg15)) as node:
        node.prepare("one", insert(1))
        node.insert(2)
        node.finish("COMMIT", "one")
        assert words(node.read()) == ["b one", "R", "I", "P one", "B", "I", "C", "K one"]


def test_one_session_brings_each_part_when_it_is_written(node: Node) -> None:
    with node.session() as stream:
        node.prepare("one", insert(1))
        assert words(read_all(stream, node.now())) == ["b one", "R", "I", "P one"]
        node.insert(2)
        assert words(read_all(stream, node.now())) == ["B", "I", "C"]
        node.finish("COMMIT", "one")
        assert words(read_all(stream, node.now())) == ["K one"]
