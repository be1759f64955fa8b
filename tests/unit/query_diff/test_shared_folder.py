"""Which subscriptions share reads: those of one database and user, unless the setting is off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.model.subscription import FOLDER, CaptureSpec, ConnectionSpec
from engine.sources.postgres_queries.declaration import PostgresQueriesCapture
from engine.sources.query_diff.given import given_by
from engine.sources.query_diff.moments import Moment

_SHOP = ConnectionSpec("shop", "postgres", {"host": "a", "user": "u"}, {"password": "p"})


def _of(reader: str, share: bool = True, **changes: Any) -> ConnectionSpec:
    capture = PostgresQueriesCapture(share_scans=share).assigned()["capture"]["settings"]
    return replace(_SHOP, capture=CaptureSpec("query_diff", {**capture, FOLDER: f"cycles/{reader}"}), **changes)


def test_subscriptions_of_one_connection_share_a_folder() -> None:
    first, second = given_by(_of("s1")), given_by(_of("s2"))
    assert first.shared is not None
    assert first.shared == second.shared
    assert first.path != second.path
    assert "p" not in first.shared.name.split("-")


@pytest.mark.parametrize(
    "changes", [{"settings": {"host": "b", "user": "u"}}, {"secrets": {"password": "q"}}, {"name": "other"}]
)
def test_another_database_or_user_has_another_folder(changes: dict[str, Any]) -> None:
    assert given_by(_of("s1", **changes)).shared != given_by(_of("s1")).shared


def test_the_setting_turns_it_off() -> None:
    given = given_by(_of("s1", share=False))
    assert given.shared is None
    assert given.group() is None


def test_moments_of_earlier_runs_are_earlier() -> None:
    now = Moment.now()
    later = Moment(now.run, now.ns + 1)
    assert Moment.of(now.text) == now
    assert now.is_before(later)
    assert not later.is_before(now)
    assert not now.is_before(now)
    assert Moment("another run", now.ns + 10**15).is_before(now)
    assert Moment.of("").is_before(now)
