"""When a catalog that was read from the source counts as in force."""

from __future__ import annotations

import threading

from engine.model.identity import BatchId, TableId
from engine.model.position import Lsn
from engine.model.source import CatalogAt
from engine.tables.known_catalog import KnownCatalog, Settled

ORDERS, LINES = TableId("orders"), TableId("lines")


def look(position: int, mark: str = "m", *tables: TableId) -> Settled:
    return Settled(CatalogAt(Lsn(position), mark), frozenset(tables), seen_us=position)


def never() -> bool:
    return False


def test_a_look_vouches_while_the_catalog_says_the_same_and_for_the_tables_that_it_compared() -> None:
    seen = look(10, "m", ORDERS)
    assert seen.is_current(CatalogAt(Lsn(20), "m"), [ORDERS])
    assert not seen.is_current(CatalogAt(Lsn(20), "other"), [ORDERS])
    assert not seen.is_current(CatalogAt(Lsn(20), "m"), [ORDERS, LINES])


def test_it_counts_when_the_batches_that_were_planned_by_its_end_are_committed() -> None:
    known = KnownCatalog(BatchId(3), Lsn(5))
    known.planned(look(10), BatchId(6))
    assert known.last is None
    known.committed(BatchId(4), Lsn(8))
    assert known.last is None
    known.committed(BatchId(5), Lsn(9))
    assert known.last == look(10)


def test_it_counts_at_once_where_nothing_was_planned() -> None:
    known = KnownCatalog(BatchId(3), Lsn(5))
    known.planned(look(10), BatchId(4))
    assert known.last == look(10)


def test_the_same_catalog_at_a_later_position_is_known_up_to_there() -> None:
    known = KnownCatalog(BatchId(3), Lsn(5))
    known.planned(look(10), BatchId(4))
    first = known.last
    assert first is not None
    known.same(first, CatalogAt(Lsn(20), "m"), 20)
    assert known.last == look(20)
    known.same(first, CatalogAt(Lsn(30), "m"), 30)
    assert known.last == look(20), "another look came in between"


def test_whoever_waits_goes_on_when_it_is_in_force_or_the_run_is_over() -> None:
    known = KnownCatalog(BatchId(3), Lsn(5))
    done: list[bool] = []
    waiting = threading.Thread(target=lambda: done.append(known.in_force(look(10), never)))
    waiting.start()
    known.planned(look(10), BatchId(5))
    known.committed(BatchId(4), Lsn(8))
    waiting.join(10)
    assert done == [True]
    assert known.reaches(Lsn(8), never)
    assert not known.reaches(Lsn(9), lambda: True)
