"""Times as MariaDB's columns hold them: a bound that is cut like a stamp is never later than the stamp of a later statement."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.identity import TableName
from engine.sources.mariadb.types import ColumnFacts
from engine.sources.mariadb_queries.stamp_script import guard_sql, index_sql, stamp_triggers_sql
from engine.sources.mariadb_queries.stamps import cut

moments = st.integers(0, 500_000_000_000_000).map(
    lambda us: datetime(2020, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
)


def facts(kind: str, fraction: int | None) -> ColumnFacts:
    return ColumnFacts("at", kind, kind, None, None, fraction, False)


def stored(moment: datetime, kind: str, fraction: int | None) -> str:
    """The value that a statement at this moment leaves in the column."""
    if kind == "date":
        return f"{moment:%Y-%m-%d}"
    whole = f"{moment:%Y-%m-%d %H:%M:%S}"
    return f"{whole}.{moment.microsecond:06}"[: 20 + fraction] if fraction else whole


@given(moments, moments, st.sampled_from([("date", None), *(("timestamp", n) for n in range(7))]))
def test_no_later_stamp_is_below_the_bound(one: datetime, other: datetime, kind: tuple[str, int | None]) -> None:
    bound, moment = sorted([one, other])
    assert cut(facts(*kind), f"{bound:%Y-%m-%d %H:%M:%S}.{bound.microsecond:06}") <= stored(moment, *kind)
    assert cut(facts(*kind), f"{bound:%Y-%m-%d %H:%M:%S}") <= stored(moment, *kind)


@pytest.mark.parametrize("name", ["n" * 64, "a`b"])
def test_names_fit_and_are_quoted(name: str) -> None:
    table = TableName("shop", name)
    statements = [*stamp_triggers_sql(table, facts("date", None)), *guard_sql(table, name)]
    names = [statement.split("`.`")[1].split("` BEFORE")[0].replace("``", "`") for statement in statements]
    assert len(set(names)) == 3
    assert all(len(each) <= 64 for each in names)
    [index] = index_sql(table, name, [name, "b"])
    assert index.endswith(f"(`{name.replace('`', '``')}`, `b`) ALGORITHM = INPLACE LOCK = NONE")
