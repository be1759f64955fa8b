"""Looks for new changes that pass all open ones."""

from __future__ import annotations

from engine.records.window_stream import RestedLook


def test_a_look_that_finds_nothing_rests_as_long_as_befits_its_cost() -> None:
    now, looks, found = 100.0, 0, False

    def look() -> bool:
        nonlocal now, looks
        now, looks = now + 0.5, looks + 1
        return found

    rested = RestedLook(look, lambda: now)
    assert not rested()
    now = 104.9
    assert not rested()
    assert looks == 1, "it looked while it had to rest"
    now, found = 105.0, True
    assert rested()
    assert rested()
    assert looks == 3, "it rested though it had found something"
