"""One shared table fed by several subscriptions: what readers see of it whatever becomes of its members."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import SubscriptionName, TableId, TableName
from engine.model.schema import Column, TableSchema
from engine.model.shared import SharedInto
from engine.model.target import QueryLimits, QueryRefused, TableCommit, TableRead, Target
from engine.targets.duckdb.target import DuckDbTarget
from engine.targets.postgres.target import PostgresTarget
from tests.contract.target_material import (
    Pipeline,
    Row,
    changes,
    fault_of,
    inserts,
    keys,
    source_type,
    sql_name,
    structure,
)
from tests.contract.targets import Build, OpenTarget, builder, target_opener
from tests.fixtures.answers import answered

pytestmark = pytest.mark.pg

SHARED = TableName("marts", "orders")
COLUMNS = {"id": "int4", "state": "text"}


@pytest.fixture(params=["duckdb", "postgres18"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenTarget]:
    with target_opener(str(request.param), request, tmp_path) as opener:
        yield opener


@pytest.fixture
def target(opened: OpenTarget) -> Iterator[Target]:
    made = opened()
    yield made
    made.close()


@pytest.fixture
def build(target: Target) -> Build:
    return builder(target)


class Source:
    """One subscription with one table, `orders`."""

    def __init__(
        self, target: Target, name: str, columns: Mapping[str, str] = COLUMNS, value: str | None = None
    ) -> None:
        self.pipeline = Pipeline(target, SubscriptionName(name)).claim()
        self.table = TableId(f"t{name}")
        self.schema = structure(TableName("marts", f"orders__{name}"), columns, ["id"])
        self.into = SharedInto(SHARED, "source", value or name)

    def load(self, rows: Sequence[Row], schema: TableSchema | None = None) -> None:
        """Copy the table, as it is now, and hand it over."""
        self.schema = schema or self.schema
        self.copy(rows)
        self.hand_over()

    def copy(self, rows: Sequence[Row]) -> None:
        target, subscription = self.pipeline.target, self.pipeline.subscription
        target.adopt(subscription, self.table, self.schema.name, shared=self.into)
        target.begin_copy(subscription, self.table, self.schema.name, self.schema)
        target.append_copy(self.table, inserts(self.schema, rows))

    def hand_over(self) -> None:
        self.pipeline.commit(TableCommit(self.table, self.schema, self.schema.name, handover=True))

    def becomes(self, columns: Mapping[str, str], first_attnum: int = 1) -> None:
        """The table has these columns from now on."""
        schema = structure(self.schema.name, columns, ["id"], first_attnum=first_attnum)
        self.pipeline.commit(TableCommit(self.table, schema, schema.name))
        self.schema = schema

    def insert(self, *rows: Row) -> None:
        self.pipeline.change(self.table, self.schema, changes(self.table, insert=inserts(self.schema, rows)))


@pytest.fixture
def eu(target: Target) -> Source:
    source = Source(target, "eu")
    source.load([(1, "new"), (2, "paid")])
    return source


@pytest.fixture
def us(eu: Source, target: Target) -> Source:
    source = Source(target, "us")
    source.load([(1, "sent")])
    return source


BOTH = [("eu", 1, "new"), ("eu", 2, "paid"), ("us", 1, "sent")]


def seen(source: Source, sql: str = "SELECT *") -> list[Row]:
    return sorted(source.pipeline.select(f"{sql} FROM marts.orders"), key=str)


def columns_of(source: Source) -> list[str]:
    answer = answered(source.pipeline.target, "SELECT * FROM marts.orders", 1, 30.0, source.pipeline.subscription)
    return list(answer.table.column_names)


def test_rows_of_all_are_shown_with_their_source(eu: Source, us: Source) -> None:
    assert columns_of(eu) == ["source", "id", "state"]
    assert seen(eu) == seen(us) == BOTH
    us.insert((2, "us"))
    keyed = changes(eu.table, delete=keys(eu.schema, [(1,)]), insert=inserts(eu.schema, [(3, "eu")]))
    eu.pipeline.change(eu.table, eu.schema, keyed)
    assert seen(eu) == [("eu", 2, "paid"), ("eu", 3, "eu"), ("us", 1, "sent"), ("us", 2, "us")]
    eu.pipeline.change(eu.table, eu.schema, changes(eu.table, truncated=True))
    assert seen(us) == [("us", 1, "sent"), ("us", 2, "us")]


def test_nothing_is_shown_of_a_copy_that_is_not_complete(eu: Source, target: Target) -> None:
    us = Source(target, "us")
    us.copy([(1, "sent")])
    assert seen(eu) == BOTH[:2]
    us.hand_over()
    assert seen(eu) == BOTH


def test_a_reload_takes_the_place_of_one_sources_rows(eu: Source, us: Source) -> None:
    eu.copy([(7, "anew")])
    assert seen(eu) == BOTH
    eu.hand_over()
    assert seen(us) == [("eu", 7, "anew"), ("us", 1, "sent")]


def test_columns_are_the_union_by_name(eu: Source, us: Source) -> None:
    us.becomes({"id": "int4", "state": "text", "vat": "numeric(10,2)"})
    us.insert((2, "new", None))
    assert columns_of(eu) == ["source", "id", "state", "vat"]
    assert seen(eu, "SELECT source, id, vat IS NULL") == [
        ("eu", 1, True),
        ("eu", 2, True),
        ("us", 1, True),
        ("us", 2, True),
    ]
    eu.becomes({"id": "int4"})
    assert columns_of(eu) == ["source", "id", "state", "vat"]
    us.becomes({"id": "int4"})
    assert columns_of(eu) == ["source", "id"]
    assert seen(eu) == [("eu", 1), ("eu", 2), ("us", 1), ("us", 2)]


def test_a_renamed_column_is_another_one(eu: Source, us: Source) -> None:
    us.becomes({"id": "int4", "status": "text"})
    assert seen(eu, "SELECT source, id, state, status") == [
        ("eu", 1, "new", None),
        ("eu", 2, "paid", None),
        ("us", 1, None, "sent"),
    ]


def test_types_are_widened_where_that_is_exact(eu: Source, target: Target) -> None:
    us = Source(target, "us", {"id": "int8", "state": "varchar"})
    us.load([(2**40, "sent")])
    assert seen(eu) == [*BOTH[:2], ("us", 2**40, "sent")]


def test_what_is_held_as_text_goes_with_text(eu: Source, target: Target) -> None:
    mood = replace(source_type("mood"), category="e")
    eu.load([(1, "glad")], replace(eu.schema, columns=(eu.schema.columns[0], Column("state", mood, 2))))
    us = Source(target, "us", {"id": "int2", "state": "varchar"})
    us.load([(1, "sent")])
    third = Source(target, "zz")
    third.load([(1, "text")])
    assert seen(eu) == [("eu", 1, "glad"), ("us", 1, "sent"), ("zz", 1, "text")]


def test_a_column_whose_types_do_not_go_together_is_a_fault_of_the_table_that_brings_it(
    eu: Source, target: Target
) -> None:
    us = Source(target, "us", {"id": "uuid", "state": "text"})
    fault = fault_of(lambda: us.copy([]))
    assert (fault.kind, fault.subject) == (FaultKind.SHARED_TABLE_CONFLICT, us.table)
    assert "column 'id'" in fault.detail
    assert seen(eu) == BOTH[:2]
    us.load([(1, "sent")], structure(us.schema.name, COLUMNS, ["id"]))
    assert seen(eu) == BOTH
    fault = fault_of(lambda: us.becomes({"id": "int4", "source": "text"}))
    assert (fault.kind, fault.subject) == (FaultKind.SHARED_TABLE_CONFLICT, us.table)
    assert seen(eu) == BOTH


def test_who_adds_a_type_that_does_not_go_together_keeps_what_was_shown(eu: Source, us: Source) -> None:
    us.becomes({"id": "int4", "state": "text", "n": "int4"})
    fault = fault_of(lambda: eu.becomes({"id": "int4", "state": "text", "n": "bool"}))
    assert (fault.kind, fault.subject) == (FaultKind.SHARED_TABLE_CONFLICT, eu.table)
    assert seen(eu, "SELECT source, id, state") == BOTH


@pytest.mark.parametrize(
    ("into", "why"),
    [
        (SharedInto(SHARED, "source", "eu"), "source value 'eu'"),
        (SharedInto(SHARED, "region", "us"), "source column"),
        (SharedInto(TableName("marts", "orders__us"), "source", "us"), "is the shared table itself"),
    ],
)
def test_what_cannot_be_shown_beside_the_others_is_refused(
    eu: Source, target: Target, into: SharedInto, why: str
) -> None:
    us = Source(target, "us")
    us.into = into
    found = target.check([us.schema.name], (), {us.schema.name: into})
    assert [(severity, code) for severity, code, what, _ in found if why in what] == [
        ("error", "shared_table_conflict")
    ]
    fault = fault_of(lambda: us.copy([]))
    assert (fault.kind, fault.subject) == (FaultKind.SHARED_TABLE_CONFLICT, us.table)
    assert why in fault.detail
    assert seen(eu) == BOTH[:2]


def test_a_place_that_something_else_has_is_refused(target: Target, build: Build) -> None:
    us = Source(target, "us")
    build("CREATE SCHEMA marts")
    build("CREATE TABLE marts.orders (id int)")
    found = target.check([us.schema.name], (), {us.schema.name: us.into})
    assert [code for _, code, _, _ in found if code == "table_name_collision"]
    assert fault_of(lambda: us.copy([])).kind is FaultKind.TABLE_NAME_COLLISION
    build("DROP TABLE marts.orders")
    us.copy([(1, "sent")])
    build("CREATE TABLE marts.orders (id int)")
    assert fault_of(us.hand_over).kind is FaultKind.TABLE_NAME_COLLISION
    build("DROP TABLE marts.orders")
    us.load([(1, "sent")])
    build("DROP VIEW marts.orders")
    build("CREATE TABLE marts.orders (id int)")
    assert fault_of(lambda: us.becomes({"id": "int4"})).kind is FaultKind.TABLE_NAME_COLLISION
    build("DROP TABLE marts.orders")
    us.load([(1, "sent")])
    assert seen(us) == BOTH[2:]
    assert not target.check([us.schema.name], (), {us.schema.name: us.into})


def test_no_table_takes_the_shared_tables_place(eu: Source, target: Target) -> None:
    other = Source(target, "other")
    adopt = lambda: target.adopt(other.pipeline.subscription, other.table, SHARED)  # noqa: E731
    assert fault_of(adopt).kind is FaultKind.TABLE_NAME_COLLISION


def test_a_removed_table_stays_shown_or_goes_and_the_last_one_takes_the_shared_table_with_it(
    eu: Source, us: Source, opened: OpenTarget
) -> None:
    us.pipeline.commit(removed=[us.table])
    eu.becomes({"id": "int4", "state": "text", "n": "int4"})
    assert seen(eu, "SELECT source, id, state") == BOTH
    us.pipeline.commit(removed=[us.table], dropped=[us.table])
    assert seen(eu, "SELECT source, id, state") == BOTH[:2]
    eu.pipeline.commit(removed=[eu.table], dropped=[eu.table])
    with pytest.raises(Exception, match=r"orders|schema marts"):
        seen(eu)
    eu.table = TableId("tagain")
    eu.load([(1, "again", None)])
    assert seen(eu) == [("eu", 1, "again", None)]


def test_a_removed_table_that_comes_again_is_shown_all_the_time(eu: Source, us: Source) -> None:
    us.pipeline.commit(removed=[us.table])
    us.table = TableId("tagain")
    us.copy([(5, "again")])
    assert seen(eu) == BOTH
    eu.becomes({"id": "int4", "state": "text", "n": "int4"})
    assert seen(eu, "SELECT source, id, state") == BOTH
    us.hand_over()
    assert seen(eu, "SELECT source, id, state") == [*BOTH[:2], ("us", 5, "again")]


def test_a_table_that_is_declared_otherwise_leaves_the_shared_table(eu: Source, us: Source) -> None:
    us.pipeline.commit(removed=[us.table])
    us.table, us.into = TableId("tagain"), replace(us.into, source_value="us2")
    us.copy([(5, "again")])
    assert seen(eu) == BOTH[:2]
    us.hand_over()
    assert seen(eu) == [*BOTH[:2], ("us2", 5, "again")]


def test_a_declaration_that_came_to_nothing_leaves_its_source_value_free(eu: Source, target: Target) -> None:
    us = Source(target, "us")
    us.copy([(1, "sent")])
    us.pipeline.commit(removed=[us.table])
    other = Source(target, "other", value="us")
    other.load([(1, "sent")])
    assert seen(eu) == BOTH
    third = Source(target, "third")
    third.copy([])
    target.forget(third.pipeline.subscription)
    Source(target, "fourth", value="third").load([(1, "x")])
    assert seen(eu) == sorted([*BOTH, ("third", 1, "x")], key=str)


def test_the_shared_table_is_there_after_the_target_was_opened_again(
    eu: Source, us: Source, opened: OpenTarget
) -> None:
    eu.pipeline.target.close()
    again = opened()
    try:
        eu.pipeline.target = again
        eu.pipeline.epoch = eu.pipeline.epoch + 1  # type: ignore[assignment]
        eu.pipeline.claim()
        eu.copy([(9, "x")])
        eu.hand_over()
        assert seen(eu) == [("eu", 9, "x"), BOTH[2]]
    finally:
        again.close()


def test_what_somebody_dropped_is_shown_no_more_from_the_next_claim_on(eu: Source, us: Source, build: Build) -> None:
    us.pipeline.target.forget(us.pipeline.subscription)
    build("DROP VIEW marts.orders")
    build("DROP TABLE marts.orders__us")
    eu.pipeline.claim()
    assert seen(eu) == BOTH[:2]
    us.pipeline.claim()
    us.load([(4, "again")])
    assert seen(eu) == [*BOTH[:2], ("us", 4, "again")]


def test_views_of_others_upon_it_live_through_all_of_it(eu: Source, us: Source, build: Build) -> None:
    build("CREATE VIEW marts.states AS SELECT source, state, count(*) AS n FROM marts.orders GROUP BY source, state")
    states = lambda: sorted(eu.pipeline.look("SELECT source, state FROM marts.states"), key=str)  # noqa: E731
    eu.load([(8, "reloaded")])
    assert states() == [("eu", "reloaded"), ("us", "sent")]
    us.becomes({"id": "int4", "state": "text", "n": "int4"})
    eu.becomes({"id": "int4"})
    assert states() == [("eu", None), ("us", "sent")]
    us.becomes({"id": "int4"})
    assert states() == [("eu", None), ("us", None)]
    us.pipeline.commit(removed=[us.table], dropped=[us.table])
    fault = fault_of(lambda: eu.pipeline.commit(removed=[eu.table], dropped=[eu.table]))
    assert (fault.kind, fault.subject) == (FaultKind.TABLE_NOT_DROPPED, eu.table)
    assert "states" in fault.detail
    assert states() == [("eu", None)]


@pytest.mark.parametrize("opened", ["postgres16"], indirect=True)
def test_what_its_users_said_of_it_stays(eu: Source, us: Source, build: Build) -> None:
    build("CREATE ROLE penstock_reader; CREATE ROLE penstock_owner")
    build("GRANT penstock_reader, penstock_owner TO CURRENT_USER WITH INHERIT TRUE, SET TRUE")
    build("GRANT ALL ON SCHEMA marts TO penstock_owner")
    try:
        build(
            "GRANT SELECT ON marts.orders TO PUBLIC; GRANT SELECT (id) ON marts.orders TO penstock_reader WITH GRANT OPTION"
        )
        build("COMMENT ON VIEW marts.orders IS 'it''s all'; COMMENT ON COLUMN marts.orders.id IS 'an id'")
        build("ALTER VIEW marts.orders SET (security_barrier = true)")
        build("ALTER VIEW marts.orders OWNER TO penstock_owner")
        for source in (eu, us):
            source.becomes({"id": "int4"})
        said = (
            "SELECT pg_get_userbyid(relowner)::text, reloptions::text, obj_description(oid, 'pg_class'), col_description(oid, 2),"
            " has_table_privilege('penstock_reader', oid, 'SELECT'), (SELECT count(*) FROM aclexplode(relacl) WHERE grantee = 0),"
            " has_column_privilege('penstock_reader', oid, 'id', 'SELECT WITH GRANT OPTION')"
            " FROM pg_class WHERE oid = 'marts.orders'::regclass"
        )
        expected = ("penstock_owner", "{security_barrier=true}", "it's all", "an id", True, 1, True)
        assert eu.pipeline.select(said) == [expected]
        named = "SELECT attname::text FROM pg_attribute WHERE attrelid = 'marts.orders'::regclass AND attnum > 0 ORDER BY attnum"
        assert eu.pipeline.select(named) == [("source",), ("id",)]
    finally:
        build("DROP OWNED BY penstock_reader, penstock_owner CASCADE; DROP ROLE penstock_reader, penstock_owner")


@pytest.mark.parametrize("opened", ["postgres18"], indirect=True)
def test_a_type_that_others_show_parks_only_the_table_that_changes_it(eu: Source, us: Source, build: Build) -> None:
    for source in (eu, us):
        source.load([(1, "x")], structure(source.schema.name, {"id": "int4", "state": "varchar"}, ["id"]))
    build("CREATE VIEW marts.states AS SELECT state FROM marts.orders")
    fault = fault_of(lambda: eu.becomes({"id": "int4", "state": "text"}))
    assert (fault.kind, fault.subject) == (FaultKind.TABLE_UNFIT, eu.table)
    assert "marts.states" in fault.detail
    assert seen(us) == [("eu", 1, "x"), ("us", 1, "x")]
    build("DROP VIEW marts.states")
    eu.becomes({"id": "int4", "state": "text"})
    assert seen(us) == [("eu", 1, "x"), ("us", 1, "x")]


def test_a_view_of_duckdb_cannot_read_a_schema_that_is_named_like_the_file(tmp_path: Path) -> None:
    target = DuckDbTarget(tmp_path / "Marts.duckdb")
    us = Source(target, "us")
    found = target.check([us.schema.name], (), {us.schema.name: us.into})
    assert "shared_table_conflict" in [code for _, code, _, _ in found]
    fault = fault_of(lambda: us.copy([]))
    assert (fault.kind, fault.subject) == (FaultKind.SHARED_TABLE_CONFLICT, us.table)
    us.schema = structure(TableName("us", "orders"), COLUMNS, ["id"])
    us.load([(1, "sent")])
    assert us.pipeline.select("SELECT * FROM marts.marts.orders") == BOTH[2:]
    target.close()


def test_names_of_any_characters_are_shown(target: Target) -> None:
    odd = Source(target, "odd", {"id": "int4", "a\"b'%s": "text"}, value="it's \\ 100 %")
    odd.into = replace(odd.into, relation=TableName('ma"rts', "or'ders %"), source_column='so"urce')
    odd.load([(1, "x")])
    answer = odd.pipeline.select(f"SELECT * FROM {sql_name(odd.into.relation)}")
    assert answer == [("it's \\ 100 %", 1, "x")]


def test_an_engine_fault_is_all_that_comes_of_a_refused_declaration(eu: Source, target: Target) -> None:
    reserved = Source(target, "us")
    reserved.into = replace(reserved.into, relation=TableName("penstock", "orders"))
    with pytest.raises(EngineFault) as caught:
        reserved.copy([])
    assert caught.value.kind is FaultKind.TABLE_NAME_COLLISION
    assert seen(eu) == BOTH[:2]


@pytest.mark.parametrize("opened", ["postgres18"], indirect=True)
def test_engines_define_it_beside_each_other_and_no_reader_sees_a_gap(opened: OpenTarget, build: Build) -> None:
    """A reader of its own, whose every statement sees what is committed then."""
    sources = [Source(opened(), name) for name in ("eu", "us")]
    for source in sources:
        source.load([(1, "x"), (2, "y")])
    target = sources[0].pipeline.target
    assert isinstance(target, PostgresTarget)
    done = threading.Event()
    counts: set[Row] = set()

    def read() -> None:
        with target._sessions.session() as connection:
            while not done.is_set():
                rows = connection.execute("SELECT source, count(*) FROM marts.orders GROUP BY source ORDER BY source")
                counts.add(tuple(rows.fetchall()))

    def reload(source: Source) -> None:
        for _ in range(8):
            source.load([(1, "x"), (2, "y")])

    with ThreadPoolExecutor(3) as pool:
        reading = pool.submit(read)
        try:
            for each in [pool.submit(reload, source) for source in sources]:
                each.result()
        finally:
            done.set()
        reading.result()
    assert counts == {(("eu", 2), ("us", 2))}
    for source in sources:
        source.pipeline.target.close()


@pytest.mark.parametrize("opened", ["postgres18"], indirect=True)
def test_two_engines_that_hand_over_the_first_rows_at_once_both_show_them(opened: OpenTarget) -> None:
    sources = [Source(opened(), name) for name in ("eu", "us")]
    with ThreadPoolExecutor(2) as pool:
        for number in range(6):
            relation = TableName("marts", f"orders_{number}")
            for source in sources:
                source.table = TableId(f"{source.table}{number}")
                place = replace(relation, name=f"{relation.name}__{source.into.source_value}")
                source.schema, source.into = replace(source.schema, name=place), replace(source.into, relation=relation)
                source.copy([(1, "x")])
            for each in [pool.submit(source.hand_over) for source in sources]:
                each.result()
            rows = sources[0].pipeline.select(f"SELECT source FROM {sql_name(relation)} ORDER BY source")
            assert rows == [("eu",), ("us",)]
    for source in sources:
        source.pipeline.target.close()


def test_a_statement_reads_the_tables_whose_rows_the_shared_table_shows(eu: Source, us: Source, target: Target) -> None:
    def reads(sql: str) -> dict[TableId, tuple[bool, bool]]:
        found: list[TableRead] = []

        def judge(tables: Sequence[TableRead]) -> None:
            found[:] = tables

        with target.query(sql, QueryLimits(30.0), eu.pipeline.subscription, judge) as answer:
            assert len(list(answer.batches)) == 1
        return {read.table: (read.complete, read.removed) for read in found}

    both = {eu.table: (True, False), us.table: (True, False)}
    assert reads("SELECT count(*) FROM marts.orders") == both
    assert reads("WITH x AS (SELECT id FROM marts.orders) SELECT max(id) FROM x") == both
    assert reads("SELECT max(id) FROM marts.orders__eu") == {eu.table: (True, False)}
    assert reads("SELECT 1 AS one") == {}
    us.pipeline.commit(TableCommit(us.table, us.schema, us.schema.name, parked="value_out_of_domain"))
    eu.pipeline.commit(stale=[eu.table])
    assert reads("SELECT count(*) FROM marts.orders") == {eu.table: (False, False), us.table: (False, False)}
    eu.pipeline.commit(removed=[eu.table])
    assert reads("SELECT count(*) FROM marts.orders__eu")[eu.table] == (False, True)


def test_what_the_judge_raises_ends_the_query(eu: Source, target: Target) -> None:
    def judge(_: Sequence[TableRead]) -> None:
        raise QueryRefused("table_not_ready", "not yet")

    with (
        pytest.raises(QueryRefused) as caught,
        target.query("SELECT * FROM marts.orders__eu", QueryLimits(30.0), eu.pipeline.subscription, judge),
    ):
        pass
    assert caught.value.code == "table_not_ready"
    assert seen(eu) == BOTH[:2]
