"""Read points end at their time, at the limits, and with their targets; the reason is kept for those who ask."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

import pytest

from engine.control.read_points import EXISTS, LIMIT, UNKNOWN, PointReads, ReadPointRegistry, visible_position
from engine.control.read_tables import NOT_FOLLOWING
from engine.model.identity import SubscriptionName, TableId, TableName
from engine.model.position import Lsn
from engine.model.target import ENDED, HeldState, HeldTable, QueryAnswer, QueryRefused, TableRead, Target
from engine.pipeline.commit import Applied
from engine.platform.settings import EngineSettings

SHOP = SubscriptionName("shop")
STATE = HeldState(Lsn(100), 5, (HeldTable(TableId("t1"), TableName("public", "orders"), complete=True),))


class Time:
    """A clock that moves only when it is set."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic_ms(self) -> float:
        return self.seconds * 1000

    def wall_us(self) -> int:
        return round(self.seconds * 1e6)


class Held:
    """A snapshot without a target."""

    subscription = SHOP
    state = STATE

    def __init__(self) -> None:
        self.why: str | None = None
        self.bytes = 0

    def lost(self) -> str | None:
        return self.why

    def kept_bytes(self) -> int:
        return self.bytes

    def query(self, *_: object, **__: object) -> AbstractContextManager[QueryAnswer]:
        raise AssertionError

    def end(self, why: str) -> None:
        self.why = self.why or why


class Holding:
    """A target that only holds. `meanwhile` is called while it does."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.made: list[Held] = []
        self.meanwhile = meanwhile

    def hold(self, _: SubscriptionName, seconds: float) -> Held:
        assert seconds > 0
        self.meanwhile()
        self.made.append(Held())
        return self.made[-1]


class Rig:
    """A registry on a target and a clock of the test."""

    def __init__(self, folder: Path, **settings: float) -> None:
        self.time, self.target = Time(), Holding()
        given = EngineSettings(home=folder, read_points=2, read_point_ttl_s=100, read_point_bytes=1 << 20, **settings)  # type: ignore[arg-type]
        self.owner: object | None = object()
        self.registry = ReadPointRegistry(given, self.time, lambda _: self.owner)

    def hold(self, name: str, ttl_s: float = 50.0, applied: Applied | None = None) -> str:
        point = self.registry.hold(self.owner, cast("Target", self.target), SHOP, name, f"id-{name}", ttl_s, applied)
        return str(point.position)

    def refusal(self, name: str) -> QueryRefused:
        with pytest.raises(QueryRefused) as caught:
            self.registry.find(SHOP, name)
        return caught.value


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(QueryRefused) as caught:
        call()
    return caught.value.code


def test_it_expires_and_its_name_can_be_used_again(rig: Rig) -> None:
    rig.hold("a")
    rig.time.seconds = 49.9
    assert rig.registry.find(SHOP, "a").held is rig.target.made[0]
    rig.time.seconds = 50.0
    assert (rig.refusal("a").code, rig.refusal("a").detail) == (
        ENDED,
        "the read point 'a' has ended: its time was over",
    )
    assert rig.target.made[0].why == "its time was over"
    assert [one.name for one in rig.registry.listed(SHOP).ended] == ["a"]
    rig.hold("a")
    assert rig.registry.find(SHOP, "a").held is rig.target.made[1]
    body = rig.registry.listed(SHOP)
    assert ([one.name for one in body.points], body.ended) == (["a"], ())
    assert (body.points[0].created_us, body.points[0].expires_us) == (50_000_000, 100_000_000)


def test_a_name_has_one_read_point_also_while_it_is_created(rig: Rig) -> None:
    codes: list[str] = []
    rig.target.meanwhile = lambda: codes.append(refused(lambda: rig.hold("a"))) if not codes else None
    rig.hold("a")
    assert codes == [EXISTS]
    assert refused(lambda: rig.hold("a")) == EXISTS
    assert rig.registry.listed(SubscriptionName("other")).points == ()


def test_the_limits_are_named(rig: Rig) -> None:
    assert refused(lambda: rig.hold("long", 100.1)) == LIMIT
    rig.hold("a")
    rig.hold("b")
    assert refused(lambda: rig.hold("c")) == LIMIT
    assert rig.registry.release(SHOP, "a")
    assert rig.target.made[0].why == "it was deleted"
    assert rig.refusal("a").code == UNKNOWN
    rig.hold("c")
    rig.time.seconds = 50.0
    rig.hold("d")
    assert not rig.registry.release(SHOP, "b")


def test_a_target_that_fails_leaves_no_trace(rig: Rig) -> None:
    def fail() -> None:
        raise QueryRefused("query_unavailable", "nothing yet")

    rig.target.meanwhile = fail
    for _ in range(3):
        assert refused(lambda: rig.hold("a")) == "query_unavailable"
    assert rig.refusal("a").code == UNKNOWN


def test_it_ends_when_its_target_keeps_too_much_or_lost_it(rig: Rig) -> None:
    rig.hold("a")
    rig.hold("b")
    rig.target.made[0].bytes = (1 << 20) + 1
    rig.target.made[1].why = "the target was closed"
    rig.registry.sweep()
    assert "1048576 bytes" in rig.refusal("a").detail
    assert "PENSTOCK_READ_POINT_BYTES" in rig.refusal("a").detail
    assert rig.refusal("b").detail == "the read point 'b' has ended: the target was closed"


def test_a_subscription_of_the_same_name_does_not_get_it(rig: Rig) -> None:
    rig.hold("a")
    rig.owner = object()
    assert rig.refusal("a").detail.endswith("the subscription was deleted, or given to another engine")
    rig.hold("a")
    rig.owner = None
    assert rig.registry.listed(SHOP).points == ()
    assert all(held.why for held in rig.target.made)


def test_the_end_of_the_engine_ends_all(rig: Rig) -> None:
    rig.hold("a")
    rig.registry.close()
    assert rig.target.made[0].why == "the engine was stopped"
    assert refused(lambda: rig.hold("b")) == "query_unavailable"


def test_the_position_is_the_visible_one(rig: Rig) -> None:
    assert rig.hold("a", applied=Applied(Lsn(130), Lsn(100))) == "0/82"
    assert rig.hold("b", applied=Applied(Lsn(130), Lsn(90))) == "0/64"
    assert visible_position(None, Lsn(100)) == Lsn(100)


@pytest.mark.parametrize("available", [False, True])
def test_tables_count_as_they_were(available: bool) -> None:
    def read(table: str, *, complete: bool, of: str = "shop") -> TableRead:
        return TableRead(SubscriptionName(of), TableId(table), TableName("public", table), complete)

    reads = PointReads(SHOP, available=available)
    reads.judge([read("a", complete=True), read("z", complete=True, of="other")])
    assert (reads.tables, reads.not_following) == (["a"], [])
    some = [read("a", complete=True), read("b", complete=False)]
    if available:
        assert refused(lambda: reads.judge(some)) == NOT_FOLLOWING
    else:
        reads.judge(some)
        assert (reads.tables, reads.not_following) == (["a", "b"], ["b"])
