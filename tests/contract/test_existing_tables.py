"""Rows that go into a table which its owner made on a PostgreSQL target: what it keeps of its own, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from engine.model.fault import FaultKind
from engine.model.identity import SubscriptionName, TableId, TableName
from engine.model.schema import Column, KeyMode, SourceType, TableSchema
from engine.model.subscription import ConnectionSpec, LanePolicy
from engine.model.target import InOrderPlan, TableCommit, Target
from engine.net.copy_text import decode_copy_text
from engine.targets.postgres.target import PostgresTarget
from server.demo.embedded import EmbeddedPostgres
from tests.contract.in_order_material import DELETE, INSERT, TRUNCATE, UPDATE, Change, write_in_order
from tests.contract.target_material import (
    SUBSCRIPTION,
    Pipeline,
    Row,
    changes,
    fault_of,
    images,
    inserts,
    keys,
    partials,
    structure,
)
from tests.fixtures.postgres import Database, Session

pytestmark = pytest.mark.pg

ORDERS, BAG = TableId("t0a"), TableId("t0b")
MOOD = SourceType("shop.mood", category="e", oid=99_001)
plain = structure(
    TableName("public", "orders"), {"id": "int4", "region": "text", "mood": "text", "n": "int8"}, ["id", "region"]
)
orders = replace(plain, columns=(*plain.columns[:2], Column("mood", MOOD, 3), plain.columns[3]))
bag = structure(TableName("public", "bag"), {"word": "text", "x": "float8"}, mode=KeyMode.BAG)
MADE = """
CREATE SCHEMA "my types";
CREATE TYPE "my types".mood AS ENUM ('sad', 'ok', 'glad');
CREATE TABLE orders (
  extra int NOT NULL DEFAULT 7,
  n bigint GENERATED ALWAYS AS IDENTITY,
  mood "my types".mood,
  region text COLLATE "C" NOT NULL,
  id bigint NOT NULL,
  twice bigint GENERATED ALWAYS AS (n * 2) STORED,
  PRIMARY KEY (id, region)
) PARTITION BY LIST (region);
CREATE TABLE orders_eu PARTITION OF orders FOR VALUES IN ('eu');
CREATE TABLE orders_us PARTITION OF orders FOR VALUES IN ('us') PARTITION BY RANGE (id);
CREATE TABLE orders_us_1 PARTITION OF orders_us FOR VALUES FROM (0) TO (1000);
CREATE TABLE orders_us_2 PARTITION OF orders_us FOR VALUES FROM (1000) TO (1000000);
CREATE INDEX by_mood ON orders (mood);
CREATE TABLE noted (what text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.noted VALUES (TG_OP); RETURN NEW; END';
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON orders FOR EACH ROW EXECUTE FUNCTION note();
CREATE TABLE bag (word varchar, at timestamptz NOT NULL DEFAULT now(), x float8, part int DEFAULT 1) PARTITION BY LIST (part);
CREATE TABLE bag_1 PARTITION OF bag FOR VALUES IN (1);
CREATE TABLE bag_2 PARTITION OF bag FOR VALUES IN (2);
"""
LOADED: list[Row] = [
    (1, "eu", "sad", 10),
    (2, "eu", None, 20),
    (3, "us", "glad", 30),
    (9003, "us", "ok", 40),
]
MANY = 2_500


on_one_server = pytest.mark.parametrize("pg", [18], indirect=True, ids=["pg18"])
"""For what does not depend on the server's version."""


@pytest.fixture
def mart(pg: EmbeddedPostgres, database_on: Callable[[EmbeddedPostgres], Database]) -> Database:
    return database_on(pg)


@pytest.fixture
def target(mart: Database) -> Iterator[PostgresTarget]:
    made = PostgresTarget(ConnectionSpec("mart", "postgres", mart.settings), decode_copy_text)
    yield made
    made.close()


@pytest.fixture
def pipeline(target: PostgresTarget) -> Pipeline:
    return Pipeline(target).claim()


@pytest.fixture
def filled(pipeline: Pipeline, mart: Database) -> Pipeline:
    mart.execute(MADE)
    load(pipeline, ORDERS, orders, LOADED)
    return pipeline


def load(pipeline: Pipeline, table: TableId, schema: TableSchema, rows: Sequence[Row]) -> None:
    pipeline.target.adopt(pipeline.subscription, table, schema.name, into_existing=True)
    copy(pipeline, table, schema, rows)
    pipeline.commit(TableCommit(table, schema, schema.name, handover=True))


def copy(pipeline: Pipeline, table: TableId, schema: TableSchema, rows: Sequence[Row]) -> None:
    pipeline.target.begin_copy(pipeline.subscription, table, schema.name, schema)
    if rows:
        pipeline.target.append_copy(table, inserts(schema, rows))


def adoption(pipeline: Pipeline, schema: TableSchema = orders, *, into: bool = True) -> Callable[[], None]:
    return lambda: pipeline.target.adopt(pipeline.subscription, ORDERS, schema.name, into_existing=into)


def assert_holds(
    pipeline: Pipeline, mart: Database, rows: Sequence[Row], table: TableId = ORDERS, schema: TableSchema = orders
) -> None:
    """The comparison finds these rows and no others, and so does a look of the owner's."""
    record = pipeline.target.progress(SUBSCRIPTION).tables[table]  # type: ignore[union-attr]
    with pipeline.target.pin(SUBSCRIPTION) as reader:
        assert reader.compare(record, inserts(schema, rows).to_batches(), 5) == (len(rows), len(rows), [])
        wrong = inserts(schema, [*rows[1:], rows[1]] if schema.mode is KeyMode.BAG else rows[1:])
        assert reader.compare(record, wrong.to_batches(), 5)[2]
    if table == ORDERS:
        found = mart.execute("SELECT id, region, mood::text, n FROM orders ORDER BY id")
        assert found == sorted(rows)
        assert mart.execute("SELECT count(*) FROM orders WHERE twice IS DISTINCT FROM n * 2 OR extra <> 7") == [(0,)]
    assert mart.execute("SELECT * FROM noted") == []


def many(first: int = 10) -> list[Row]:
    return [(i, ("eu", "us")[i % 2], ("sad", "ok", "glad")[i % 3], i) for i in range(first, first + MANY)]


def test_a_copy_goes_into_the_table_that_stands_there(filled: Pipeline, mart: Database) -> None:
    assert_holds(filled, mart, LOADED)
    kinds = mart.execute(
        "SELECT relname, relkind::text FROM pg_class WHERE relname IN ('orders', 'orders_eu') ORDER BY relname"
    )
    assert kinds == [("orders", "p"), ("orders_eu", "r")]
    assert mart.execute("SELECT indexname FROM pg_indexes WHERE indexname = 'by_mood'")
    assert mart.execute("SELECT relname FROM pg_class WHERE relname LIKE '%penstock_copy%'") == []
    assert filled.select("SELECT sum(n)::int8 AS n, sum(twice)::int8 AS twice, max(extra) FROM orders") == [
        (100, 200, 7)
    ]


@pytest.mark.parametrize("more", [[], many()], ids=["as arrays", "through COPY"])
def test_net_changes_go_in_beside_what_is_the_owners(filled: Pipeline, mart: Database, more: list[Row]) -> None:
    """Inserts, replaced rows, moves to other partitions, deletes, rows with unset columns; then more of each, and a truncate."""
    filled.change(
        ORDERS,
        orders,
        changes(
            ORDERS,
            delete=keys(orders, [(1, "eu"), (2, "eu"), (3, "us")]),
            insert=inserts(orders, [(1, "eu", "glad", -1), (2, "us", "ok", 21), *more]),
            partial=partials(orders, [((3, "us"), (3, "eu", None, 31), frozenset({2}))]),
            paired=1,
        ),
    )
    rows: list[Row] = [(1, "eu", "glad", -1), (2, "us", "ok", 21), (3, "eu", "glad", 31), LOADED[3], *more]
    assert_holds(filled, mart, rows)
    if more:
        again = [(i, region, "sad", n + 1) for i, region, _, n in more]
        moved = [(i + 5_000, region, mood, n) for i, region, mood, n in again]
        ids = [(row[0], row[1]) for row in more]
        filled.change(
            ORDERS, orders, changes(ORDERS, delete=keys(orders, ids), insert=inserts(orders, again), paired=MANY)
        )
        assert_holds(filled, mart, rows[:4] + again)
        unset = [((i, region), (i + 5_000, region, None, None), frozenset({2, 3})) for i, region in ids]
        filled.change(ORDERS, orders, changes(ORDERS, delete=keys(orders, ids), partial=partials(orders, unset)))
        assert_holds(filled, mart, rows[:4] + moved)
    filled.change(ORDERS, orders, changes(ORDERS, truncated=True, insert=inserts(orders, LOADED[:2])))
    assert_holds(filled, mart, LOADED[:2])


@pytest.mark.parametrize("lanes", [1, 2])
def test_source_transactions_go_in_beside_what_is_the_owners(filled: Pipeline, mart: Database, lanes: int) -> None:
    load(filled, BAG, bag, [("a", 1.0), ("a", 1.0), ("b", -0.0)])
    mart.execute("UPDATE bag SET part = 2 WHERE ctid = '(0,1)'")
    mart.execute("UPDATE bag SET part = 2 WHERE x = '-0'")

    def change(op: int, key: Row | None = None, row: Row | None = None, unset: frozenset[int] = frozenset()) -> Change:
        return Change(ORDERS, op, key, row, unset)

    transactions = [
        [change(INSERT, row=(n, "eu", "ok", n)) for n in range(10, 20)],
        [change(UPDATE, (n, "eu"), (n, "eu", "sad", None), frozenset({3})) for n in range(10, 15)],
        [change(UPDATE, (10, "eu"), (10, "us", None, 11), frozenset({2})), change(DELETE, (11, "eu"))],
        [change(UPDATE, (12, "eu"), (12, "eu", "glad", -12)), change(DELETE, (3, "us"))],
        [Change(BAG, UPDATE, key=("a", 1.0), row=("c", 2.0)), Change(BAG, DELETE, key=("b", -0.0))],
        [Change(BAG, INSERT, row=("d", None))],
    ]
    schemas = {ORDERS: orders, BAG: bag}
    write_in_order(filled, schemas, transactions, InOrderPlan(LanePolicy.PESSIMISTIC, lanes=lanes))
    rows: list[Row] = [*LOADED[:2], LOADED[3], (10, "us", "sad", 11), (12, "eu", "glad", -12)]
    rows += [(n, "eu", "sad" if n < 15 else "ok", n) for n in range(13, 20)]
    assert_holds(filled, mart, rows)
    assert_holds(filled, mart, [("a", 1.0), ("c", 2.0), ("d", None)], BAG, bag)

    last = [[change(TRUNCATE)], [change(INSERT, row=LOADED[0]), Change(BAG, TRUNCATE)]]
    write_in_order(filled, schemas, last, InOrderPlan(LanePolicy.PESSIMISTIC, lanes=lanes))
    assert_holds(filled, mart, LOADED[:1])
    assert mart.execute("SELECT count(*) FROM bag") == [(0,)]


@on_one_server
def test_rows_that_are_told_apart_by_all_columns_alone(filled: Pipeline, mart: Database) -> None:
    """Rows that are equal in the replicated columns are in several partitions, at the same place in each."""
    load(filled, BAG, bag, [("a", 1.0), ("a", 1.0), ("b", None)])
    mart.execute(
        "WITH one AS (DELETE FROM bag WHERE ctid = '(0,1)' RETURNING *) INSERT INTO bag SELECT word, at, x, 2 FROM one"
    )
    filled.change(BAG, bag, changes(BAG, delete=images(bag, {("a", 1.0): 1}), insert=inserts(bag, [("b", None)])))
    assert_holds(filled, mart, [("a", 1.0), ("b", None), ("b", None)], BAG, bag)


@on_one_server
@pytest.mark.parametrize(
    ("small_bytes", "referenced"),
    [(1 << 20, False), (0, False), (0, True)],
    ids=["cleared by rows", "truncated", "referred to"],
)
def test_a_reload_keeps_the_table(
    filled: Pipeline, mart: Database, monkeypatch: pytest.MonkeyPatch, small_bytes: int, referenced: bool
) -> None:
    """Its identity, its indexes, partitions and grants; a truncate of it is not possible where a foreign key leads to it."""
    monkeypatch.setattr("engine.targets.postgres.tables.TRUNCATE_ABOVE_BYTES", small_bytes)
    if referenced:
        mart.execute("CREATE TABLE parts (id bigint, region text, FOREIGN KEY (id, region) REFERENCES orders)")
    before = mart.execute("SELECT 'orders'::regclass::oid, pg_relation_filenode('orders_us_1')")
    generations = "SELECT generation FROM penstock.tables"
    assert mart.execute(generations) == [(0,)]
    load(filled, ORDERS, orders, [*LOADED[1:], (5, "eu", "ok", 50)])
    assert_holds(filled, mart, [*LOADED[1:], (5, "eu", "ok", 50)])
    after = mart.execute("SELECT 'orders'::regclass::oid, pg_relation_filenode('orders_us_1')")
    truncated = small_bytes == 0 and not referenced
    assert (after == before, mart.execute(generations) == [(1,)]) == (not truncated, truncated)


@on_one_server
def test_a_table_taken_up_again_may_hold_its_rows(filled: Pipeline, mart: Database) -> None:
    """After a restart, and after it was removed and added again under another id."""
    adoption(filled)()
    again = TableId("t9z")
    filled.commit(removed=[ORDERS])
    filled.target.adopt(SUBSCRIPTION, again, orders.name, into_existing=True)
    load(filled, again, orders, LOADED[:1])
    assert mart.execute("SELECT count(*) FROM orders") == [(1,)]
    assert mart.execute("SELECT table_id, existing FROM penstock.tables") == [("t9z", "filled")]


@on_one_server
def test_an_owners_table_is_never_dropped(filled: Pipeline, mart: Database) -> None:
    fault = fault_of(lambda: filled.commit(removed=[ORDERS], dropped=[ORDERS]))
    assert (fault.kind, fault.subject) == (FaultKind.TABLE_NOT_DROPPED, ORDERS)
    assert "made by its owner" in fault.detail
    filled.commit(removed=[ORDERS])
    assert mart.execute("SELECT count(*) FROM orders") == [(4,)]


@on_one_server
def test_a_table_of_our_own_can_become_its_owners(pipeline: Pipeline, mart: Database) -> None:
    """What was added to it stays from then on; back again would take it away."""
    pipeline.load(ORDERS, plain, LOADED)
    mart.execute("CREATE INDEX by_mood ON orders (mood)")
    load(pipeline, ORDERS, plain, LOADED[:2])
    assert mart.execute("SELECT count(*) FROM pg_indexes WHERE tablename = 'orders'") == [(2,)]
    fault = fault_of(adoption(pipeline, into=False))
    assert fault.kind is FaultKind.TABLE_NAME_COLLISION
    assert '"into_existing": true' in fault.detail
    assert mart.execute("SELECT count(*) FROM orders") == [(2,)]
    mart.execute("DROP TABLE orders")
    adoption(pipeline, into=False)()
    pipeline.load(ORDERS, plain, LOADED)
    assert mart.execute("SELECT count(*) FROM orders") == [(4,)]


@on_one_server
def test_rows_that_came_while_the_copy_was_made_are_not_cleared(pipeline: Pipeline, mart: Database) -> None:
    mart.execute(MADE)
    adoption(pipeline)()
    copy(pipeline, ORDERS, orders, LOADED)
    mart.execute("INSERT INTO orders (id, region) VALUES (77, 'eu')")
    fault = fault_of(lambda: pipeline.commit(TableCommit(ORDERS, orders, orders.name, handover=True)))
    assert (fault.kind, fault.subject) == (FaultKind.TABLE_UNFIT, ORDERS)
    assert "contains rows" in fault.detail
    assert "contains rows" in fault_of(adoption(pipeline)).detail
    assert mart.execute("SELECT id FROM orders") == [(77,)]


@on_one_server
def test_columns_come_and_go(filled: Pipeline, mart: Database) -> None:
    """A dropped column stays as the user's, a new one is added, and an existing one gets the source's values."""
    mart.execute("ALTER TABLE orders ADD COLUMN note text DEFAULT 'mine'")
    added = (Column("note", SourceType("text"), 5, fill="theirs"), Column("more", SourceType("int4"), 6, fill="3"))
    wider = replace(orders, columns=(*orders.columns, *added))
    filled.change(ORDERS, wider, changes(ORDERS, insert=inserts(wider, [(4, "eu", None, 1, "x", None)])))
    notes = "SELECT id, note, more FROM orders ORDER BY id"
    assert mart.execute(notes) == [
        (1, "theirs", 3),
        (2, "theirs", 3),
        (3, "theirs", 3),
        (4, "x", None),
        (9003, "theirs", 3),
    ]
    filled.change(ORDERS, orders, changes(ORDERS, insert=inserts(orders, [(5, "eu", None, 1)])))
    assert mart.execute("SELECT note, more FROM orders WHERE id = 5") == [("mine", None)]
    again = replace(orders, columns=(*orders.columns, Column("note", SourceType("text"), 7)))
    filled.change(ORDERS, again)
    assert mart.execute("SELECT count(note) FROM orders") == [(0,)]

    copy(filled, ORDERS, again, [(*LOADED[0], None)])
    during = replace(again, columns=(*again.columns, Column("later", SourceType("text"), 8, fill="f")))
    filled.commit(TableCommit(ORDERS, during, orders.name, handover=True))
    assert mart.execute("SELECT id, note, later FROM orders") == [(1, None, "f")]

    mart.execute("UPDATE orders SET note = 'x'; ALTER TABLE orders ALTER note DROP DEFAULT, ALTER note SET NOT NULL")
    fault = fault_of(lambda: filled.change(ORDERS, orders))
    assert (fault.kind, fault.subject) == (FaultKind.TABLE_UNFIT, ORDERS)
    assert 'ALTER TABLE "public"."orders" ALTER COLUMN "note" DROP NOT NULL' in fault.detail
    odd = replace(again, columns=(*again.columns, Column("extra", SourceType("text"), 9)))
    assert 'ALTER COLUMN "extra" TYPE text' in fault_of(lambda: filled.change(ORDERS, odd)).detail


@on_one_server
def test_what_the_owner_changes_meanwhile_parks_the_table_with_a_remedy(filled: Pipeline, mart: Database) -> None:
    nowhere = changes(ORDERS, insert=inserts(orders, [(4, "asia", "sad", 1)]))
    fault = fault_of(lambda: filled.change(ORDERS, orders, nowhere))
    assert (fault.kind, fault.subject) == (FaultKind.ROW_REFUSED, ORDERS)
    assert "no partition takes the row" in fault.detail
    mart.execute("ALTER TABLE orders ALTER mood TYPE int USING 1")
    bucket = changes(ORDERS, insert=inserts(orders, [(4, "eu", "sad", 1)]))
    fault = fault_of(lambda: filled.change(ORDERS, orders, bucket))
    assert (fault.kind, fault.subject) == (FaultKind.TABLE_UNFIT, ORDERS)
    assert "'mood' of type pg_catalog.int4" in fault.detail
    in_order = [[Change(ORDERS, INSERT, row=(4, "eu", "sad", 1))]]
    write = lambda: write_in_order(filled, {ORDERS: orders}, in_order, InOrderPlan())  # noqa: E731
    assert fault_of(write).kind is FaultKind.TABLE_UNFIT
    mart.execute("DROP TABLE orders")
    for gone in (write, lambda: filled.change(ORDERS, orders, bucket)):
        fault = fault_of(gone)
        assert (fault.kind, fault.subject) == (FaultKind.TABLE_UNFIT, ORDERS)
        assert "there is no such table on the target" in fault.detail


@contextmanager
def undone(owner: Session, made: str) -> Iterator[None]:
    """What the owner makes stands for the length of the block."""
    owner.execute(made)
    yield
    owner.execute("DROP VIEW IF EXISTS orders" if "VIEW" in made else "DROP TABLE IF EXISTS orders CASCADE")


UNFIT = {
    "nothing there": ("SELECT 1", "there is no such table on the target: create it"),
    "a view": ("CREATE VIEW orders AS SELECT 1 AS id", "it is a view"),
    "rows": (
        "CREATE TABLE orders (id int); INSERT INTO orders VALUES (1)",
        'run TRUNCATE "public"."orders" to use it',
    ),
    "unlogged": ("CREATE UNLOGGED TABLE orders (id int)", "SET LOGGED"),
    "inherited": (
        "CREATE TABLE orders (id int); CREATE TABLE c () INHERITS (orders)",
        "that are not partitions inherit from it",
    ),
}


@on_one_server
def in_the_way(target: Target, existing: Collection[TableName] = ()) -> list[tuple[str, str, str, str]]:
    """Errors of the checks about the table: nothing of the user, who is the owner of everything here."""
    found = target.check([orders.name], existing)
    return [finding for finding in found if finding[0] == "error" and finding[1] != "target_superuser"]


def test_what_cannot_be_taken_at_all(pipeline: Pipeline, mart: Database) -> None:
    for made, words in UNFIT.values():
        with mart.connect() as owner, undone(owner, made):
            fault = fault_of(adoption(pipeline))
            assert (fault.kind, fault.subject) == (FaultKind.TABLE_UNFIT, ORDERS)
            assert words in fault.detail
            found = in_the_way(pipeline.target, {orders.name})
            assert [f[1] for f in found] == ["table_unfit"]
            assert words in ": ".join(found[0][2:])


KEYED = "CREATE TABLE orders (id int, region text, mood text, n int8, PRIMARY KEY (id, region)"
MISSHAPEN = {
    "a missing column": (
        "CREATE TABLE orders (id int, region text, n int8, PRIMARY KEY (id, region))",
        'ADD COLUMN "mood" text',
    ),
    "too small": (KEYED.replace("id int", "id int2") + ")", 'ALTER COLUMN "id" TYPE int4'),
    "a rounding type": (KEYED.replace("n int8", "n numeric(30,2)") + ")", 'ALTER COLUMN "n" TYPE int8'),
    "too short": (KEYED.replace("region text", "region varchar(3)") + ")", 'ALTER COLUMN "region" TYPE text'),
    "a text for a number": (KEYED.replace("n int8", "n text") + ")", '"map_as": "text"'),
    "generated": (KEYED.replace("n int8", "n int8 GENERATED ALWAYS AS (id) STORED") + ")", "'n' is generated there"),
    "a column to fill": (KEYED + ", extra int NOT NULL)", 'ALTER COLUMN "extra" DROP NOT NULL'),
    "no key": (KEYED.replace(", PRIMARY KEY (id, region)", ")"), 'ADD PRIMARY KEY ("id", "region")'),
    "another key": (KEYED.replace("(id, region)", "(id)") + ")", 'ADD PRIMARY KEY ("id", "region")'),
    "partitions by something else": (
        KEYED.replace("(id, region)", "(id, region, n)") + ") PARTITION BY HASH (n)",
        "partitioned by HASH (n), whose columns the key must contain",
    ),
}


def test_a_structure_that_does_not_take_the_rows(pipeline: Pipeline, mart: Database) -> None:
    for made, words in MISSHAPEN.values():
        with mart.connect() as owner, undone(owner, made):
            adoption(pipeline, plain)()
            fault = fault_of(lambda: copy(pipeline, ORDERS, plain, LOADED))
            assert (fault.kind, fault.subject) == (FaultKind.TABLE_UNFIT, ORDERS)
            assert words in fault.detail


@on_one_server
def test_a_name_that_another_table_has(pipeline: Pipeline, mart: Database) -> None:
    """Without the option the hint names it; with it, the table is for one of ours alone."""
    mart.execute(MADE)
    assert '"into_existing": true' in fault_of(adoption(pipeline, into=False)).detail
    found = in_the_way(pipeline.target)
    assert [(f[1], '"into_existing": true' in f[3]) for f in found] == [("table_name_collision", True)]
    load(pipeline, ORDERS, orders, LOADED)
    other = SubscriptionName("other")
    fault = fault_of(lambda: pipeline.target.adopt(other, BAG, orders.name, into_existing=True))
    assert (fault.kind, fault.subject) == (FaultKind.TABLE_NAME_COLLISION, BAG)
    assert in_the_way(pipeline.target, {orders.name}) == []
    pipeline.target.forget(SUBSCRIPTION)
    assert (
        "contains rows" in fault_of(lambda: pipeline.target.adopt(other, BAG, orders.name, into_existing=True)).detail
    )
    mart.execute("TRUNCATE orders")
    pipeline.target.adopt(other, BAG, orders.name, into_existing=True)
    assert mart.execute("SELECT subscription, existing FROM penstock.tables") == [("other", "empty")]


def test_what_a_user_may_not_do(pg: EmbeddedPostgres, mart: Database) -> None:
    """Rights on the table, rows that are hidden, triggers that fire, and rows of others that would go."""
    role = f"loader_{mart.name}"
    mart.execute(
        f"{MADE} CREATE ROLE {role} LOGIN; GRANT CREATE ON DATABASE {mart.name} TO {role}; GRANT SELECT, INSERT ON orders TO {role};"
        "ALTER TABLE orders ENABLE ROW LEVEL SECURITY;"
        "CREATE TABLE parts (id bigint, region text, FOREIGN KEY (id, region) REFERENCES orders ON DELETE CASCADE)"
    )
    made = PostgresTarget(ConnectionSpec("mart", "postgres", {**mart.settings, "user": role}), decode_copy_text)
    try:
        pipeline = Pipeline(made).claim()
        detail = fault_of(adoption(pipeline)).detail
        for words in (
            f'GRANT UPDATE, DELETE, TRUNCATE ON "public"."orders" TO "{role}"',
            f'GRANT USAGE, CREATE ON SCHEMA "public" TO "{role}"',
            "row security hides rows",
            "foreign keys of public.parts would change rows there when rows here are deleted: GRANT SET ON PARAMETER",
        ):
            assert words in detail
        mart.execute(
            f"GRANT ALL ON orders TO {role}; GRANT CREATE ON SCHEMA public TO {role}; DROP TABLE parts;"
            "ALTER TABLE orders DISABLE ROW LEVEL SECURITY"
        )
        found = made.check([orders.name], {orders.name})
        assert [f[:2] for f in found if f[1] != "mark"][-1:] == [("warning", "target_triggers_fire")]
        mart.execute("DROP TRIGGER note ON orders")
        adoption(pipeline)()
        unusable = fault_of(lambda: copy(pipeline, ORDERS, orders, LOADED))
        assert """the type "my types"."mood" of its column 'mood' may not be used: GRANT USAGE""" in unusable.detail
        mart.execute(
            f"GRANT USAGE ON SCHEMA \"my types\" TO {role}; CREATE SEQUENCE s; ALTER TABLE orders ADD s int DEFAULT nextval('s')"
        )
        unusable = fault_of(lambda: load(pipeline, ORDERS, orders, LOADED))
        assert (unusable.kind, unusable.detail[:32]) == (FaultKind.TABLE_UNFIT, "permission denied for sequence s")
        mart.execute(f"GRANT USAGE ON SEQUENCE s TO {role}")
        load(pipeline, ORDERS, orders, LOADED)
        assert mart.execute("SELECT count(*) FROM orders") == [(4,)]
        wider = replace(orders, columns=(*orders.columns, Column("note", SourceType("text"), 5)))
        assert "only its owner may add" in fault_of(lambda: pipeline.change(ORDERS, wider)).detail
    finally:
        made.close()
        mart.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@on_one_server
def test_records_of_the_layout_before_are_brought_to_this_one(filled: Pipeline, mart: Database) -> None:
    mart.execute("ALTER TABLE penstock.tables DROP COLUMN existing; ALTER TABLE penstock.copies DROP COLUMN standing")
    mart.execute("UPDATE penstock.layout SET version = 1; DROP TABLE penstock.refused_rows")
    mart.execute("ALTER TABLE penstock.progress DROP COLUMN publications, DROP COLUMN last_commit")
    progress = filled.target.progress(SUBSCRIPTION)
    assert progress is not None
    assert ORDERS in progress.tables
    assert progress.last is None
    filled.claim()
    assert mart.execute("SELECT version, (SELECT count(existing) FROM penstock.tables) FROM penstock.layout") == [
        (6, 0)
    ]
