"""What `capture` declares of the log of PostgreSQL, and what an engine is assigned of it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from engine.model.subscription import CaptureSpec, ConnectionSpec
from engine.sources.postgres_log.declaration import PostgresLogCapture
from engine.sources.postgres_log.given import given_by


def test_what_exists_already_is_assigned_and_its_slot_never_dropped() -> None:
    assigned = PostgresLogCapture(publication="Their Own", slot="theirs").assigned()
    assert assigned["capture"] == {"kind": "postgres_log", "settings": {"publication": "Their Own", "slot": "theirs"}}
    assert assigned["guard"]["drop_slot"] is False
    given = given_by(ConnectionSpec("shop", "postgres", capture=CaptureSpec(**assigned["capture"])))
    assert given.publications("penstock_s") == ("Their Own",)
    assert given.slot_of("penstock_s") == "theirs"


def test_without_names_everything_is_penstocks_own() -> None:
    assigned = PostgresLogCapture().assigned()
    assert assigned["capture"] == {"kind": "postgres_log", "settings": {}}
    assert assigned["guard"]["drop_slot"] is True
    for capture in (CaptureSpec(**assigned["capture"]), None):
        given = given_by(ConnectionSpec("shop", "postgres", capture=capture))
        assert given.publications("penstock_s") == ("penstock_s", "penstock_s_ins")
        assert given.slot_of("penstock_s") == "penstock_s"


@pytest.mark.parametrize(
    "wrong", [{"publication": ""}, {"publication": "ü" * 32}, {"slot": "Mine"}, {"slot": "s" * 64}]
)
def test_names_that_the_source_cannot_have_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PostgresLogCapture(**wrong)
