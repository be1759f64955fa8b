"""Whether the tables of a statement follow their sources, also those of other subscriptions that a shared table shows."""

from __future__ import annotations

import pytest

from engine.control.read_tables import NOT_FOLLOWING, NOT_READY, Follows, ReadTables
from engine.model.identity import SubscriptionName, TableId, TableName
from engine.model.target import QueryRefused, TableRead

OWN, OTHER = SubscriptionName("own"), SubscriptionName("other")


def _read(subscription: SubscriptionName) -> TableRead:
    return TableRead(subscription, TableId(f"t-{subscription}"), TableName("public", f"orders__{subscription}"), True)


def _judged(follows: Follows, *reads: TableRead, **wanted: bool) -> ReadTables:
    tables = ReadTables(lambda *_: None, OWN, lambda _: follows, **wanted)
    tables.judge(reads)
    return tables


@pytest.mark.parametrize(("follows", "code"), [(Follows.NOT, NOT_FOLLOWING), (Follows.SOON, NOT_READY)])
def test_rows_of_a_subscription_that_does_not_run_are_not_fresh(follows: Follows, code: str) -> None:
    with pytest.raises(QueryRefused) as caught:
        _judged(follows, _read(OWN), _read(OTHER), demanded=True)
    assert (caught.value.code, "orders__other" in caught.value.detail) == (code, True)
    if follows is Follows.NOT:
        assert "Start subscription 'other'" in str(caught.value.remedy)


def test_rows_of_other_subscriptions_are_shown_where_no_fresh_ones_are_demanded() -> None:
    assert _judged(Follows.NOT, _read(OWN), _read(OTHER), available=True).tables == ["t-own"]
    assert _judged(Follows.YES, _read(OWN), _read(OTHER), demanded=True).not_following == []
    assert _judged(Follows.NOT, _read(OWN), demanded=True).tables == ["t-own"]
