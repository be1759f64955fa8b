"""Read points: named snapshots of targets that this engine process keeps for queries, with their limits."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from engine.control.read_tables import NOT_FOLLOWING
from engine.link.read_points import EndedReadPointPart, ReadPointPart, ReadPointsBody, ReadPointTablePart
from engine.model.identity import SubscriptionName, TableId
from engine.model.position import Lsn
from engine.model.target import ENDED, HeldSnapshot, QueryRefused, TableRead, Target
from engine.pipeline.commit import Applied
from engine.platform.clock import Clock
from engine.platform.settings import EngineSettings

UNKNOWN = "read_point_unknown"
"""Refusal code: this engine process keeps no such read point, and does not remember one."""
EXISTS = "read_point_exists"
LIMIT = "read_point_limit"
REMEDY = "Create another read point, and give it the time that its queries need."
_REMEMBERED = 1000
"""Ended read points of which the reason is remembered."""
_SWEEP_SECONDS = 1.0
"""How often, in seconds, the limits of read points are checked while there are any."""

log = structlog.get_logger(__name__)

_Key = tuple[SubscriptionName, str]


@dataclass(frozen=True, slots=True)
class ReadPoint:
    """A read point. `position`: as users see it; the target's record may be at an earlier one without changes in between."""

    id: str
    name: str
    position: Lsn
    held: HeldSnapshot
    owner: object
    """The subscription's supervisor: after a deletion, or on another engine meanwhile, the same name is another one's."""
    created_us: int
    expires_us: int
    expires_ms: float
    """By the monotonic clock."""


class ReadPointRegistry:
    """The read points of this process. Any thread may call its methods."""

    def __init__(self, settings: EngineSettings, clock: Clock, find: Callable[[str], object | None]) -> None:
        """`find` returns the present owner of a subscription's read points."""
        self._find = find
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._points: dict[_Key, ReadPoint | None] = {}
        """None: being created."""
        self._ended: OrderedDict[_Key, tuple[str, str]] = OrderedDict()
        """Id and reason."""
        self._closed = threading.Event()
        self._sweeper: threading.Thread | None = None

    def hold(
        self,
        owner: object,
        target: Target,
        subscription: SubscriptionName,
        name: str,
        point: str,
        ttl_s: float,
        applied: Applied | None,
    ) -> ReadPoint:
        """Create the read point `name`, with the id `point`, at the target's present batch boundary. `owner`: of the subscription now;
        `applied`: as it was before the call.

        Raises:
            QueryRefused: EXISTS; LIMIT; `read_point_unsupported` if the target has no snapshots; `query_unavailable`.
            EngineFault: the target's.
        """
        key = subscription, name
        self._reserve(key, ttl_s)
        try:
            held = target.hold(subscription, ttl_s)
            if held is None:
                raise QueryRefused("read_point_unsupported", "this kind of target has no read points")
            now_us, now_ms = self._clock.wall_us(), self._clock.monotonic_ms()
            made = ReadPoint(
                point,
                name,
                visible_position(applied, held.state.position),
                held,
                owner,
                now_us,
                now_us + round(ttl_s * 1e6),
                now_ms + ttl_s * 1000,
            )
        except BaseException:
            with self._lock:
                del self._points[key]
            raise
        with self._lock:
            self._points[key] = made
            self._ended.pop(key, None)
            if self._sweeper is None:
                self._sweeper = threading.Thread(target=self._sweep_regularly, name="read-points", daemon=True)
                self._sweeper.start()
        return made

    def _reserve(self, key: _Key, ttl_s: float) -> None:
        longest = self._settings.read_point_ttl_s
        if ttl_s > longest:
            remedy = "Ask for less, or raise PENSTOCK_READ_POINT_TTL_S of the engine."
            raise QueryRefused(LIMIT, f"a read point may be kept for {longest:g} s at most", remedy)
        self.sweep()
        with self._lock:
            if self._closed.is_set():
                raise QueryRefused("query_unavailable", "the engine is being stopped")
            if key in self._points:
                raise QueryRefused(EXISTS, f"there is a read point {key[1]!r}", "Use another name, or delete it first.")
            if len(self._points) >= self._settings.read_points:
                detail = f"the engine keeps {len(self._points)} read points, as many as it may"
                remedy = "Delete one, wait until one expires, or raise PENSTOCK_READ_POINTS of the engine."
                raise QueryRefused(LIMIT, detail, remedy)
            self._points[key] = None

    def find(self, subscription: SubscriptionName, name: str) -> ReadPoint:
        """Raises QueryRefused: ENDED; UNKNOWN."""
        self.sweep(asked=False)
        with self._lock:
            point = self._points.get((subscription, name))
            ended = self._ended.get((subscription, name))
        if point is not None:
            return point
        if ended is not None:
            raise QueryRefused(ENDED, f"the read point {name!r} has ended: {ended[1]}", REMEDY)
        raise QueryRefused(UNKNOWN, f"this engine keeps no read point {name!r}", REMEDY)

    def release(self, subscription: SubscriptionName, name: str) -> bool:
        """End a read point, and forget that it was there. False if there is none."""
        with self._lock:
            self._ended.pop((subscription, name), None)
        return self._end((subscription, name), None)

    def listed(self, subscription: SubscriptionName, *, found: bool = True) -> ReadPointsBody:
        """The read points of a subscription."""
        self.sweep()
        with self._lock:
            points = [one for key, one in self._points.items() if key[0] == subscription and one is not None]
            ended = [(key[1], *end) for key, end in self._ended.items() if key[0] == subscription]
        return ReadPointsBody(
            points=tuple(_part(point) for point in points),
            ended=tuple(EndedReadPointPart(name=name, id=point, reason=reason) for name, point, reason in ended),
            found=found,
        )

    def sweep(self, *, asked: bool = True) -> None:
        """End the read points whose time is over, or whose subscription left. `asked`: also those that their targets lost, or keep too
        much for."""
        with self._lock:
            points = [(key, point) for key, point in self._points.items() if point is not None]
        for key, point in points:
            why = self._why_over(point, asked=asked)
            if why is not None:
                self._end(key, why, point)

    def _why_over(self, point: ReadPoint, *, asked: bool) -> str | None:
        if self._clock.monotonic_ms() >= point.expires_ms:
            return "its time was over"
        if self._find(point.held.subscription) is not point.owner:
            return "the subscription was deleted, or given to another engine"
        if not asked:
            return None
        most = self._settings.read_point_bytes
        if point.held.kept_bytes() > most:
            return f"the target kept more than {most} bytes for it (PENSTOCK_READ_POINT_BYTES)"
        return point.held.lost()

    def _end(self, key: _Key, why: str | None, only: ReadPoint | None = None) -> bool:
        """`why` None: it is not remembered. `only`: no other one of the same name."""
        with self._lock:
            point = self._points.get(key)
            if point is None or (only is not None and point is not only):
                return False
            del self._points[key]
            if why is not None:
                self._ended[key] = point.id, why
                while len(self._ended) > _REMEMBERED:
                    self._ended.popitem(last=False)
        point.held.end(why or "it was deleted")
        log.info("read_point_ended", subscription=key[0], read_point=key[1], why=why or "deleted")
        return True

    def close(self) -> None:
        """End all read points."""
        self._closed.set()
        with self._lock:
            keys = list(self._points)
        for key in keys:
            self._end(key, "the engine was stopped")

    def _sweep_regularly(self) -> None:
        while not self._closed.wait(_SWEEP_SECONDS):
            self.sweep()
            with self._lock:
                if not self._points:
                    self._sweeper = None
                    return


class PointReads:
    """Judges the tables of a statement at a read point: their state is that of the point, whatever became of them since."""

    def __init__(self, subscription: SubscriptionName, *, available: bool) -> None:
        """`available`: refuse tables whose rows were not complete."""
        self._subscription = subscription
        self._available = available
        self.tables: list[TableId] = []
        self.not_following: list[TableId] = []

    def judge(self, reads: Sequence[TableRead]) -> None:
        """As ReadTables.judge."""
        own = [read for read in reads if read.subscription == self._subscription]
        self.tables = [read.table for read in own]
        old = [read for read in reads if read.removed or not read.complete]
        self.not_following = [read.table for read in old if read in own]
        if old and self._available:
            detail = f"the rows of {', '.join(str(read.target) for read in old)} were not complete at the read point"
            remedy = 'Create a read point when the table is live; or send "on_unavailable": "include" for the rows that were there.'
            raise QueryRefused(NOT_FOLLOWING, detail, remedy, self.not_following)


def visible_position(applied: Applied | None, recorded: Lsn) -> Lsn:
    """The position that a snapshot shows, of which the target has recorded `recorded`. `applied`: from before the snapshot began.

    Positions without changes are written to the target with a delay, so its rows are those of the visible position. A recorded position
    that is another one than `applied` has is later, or that of a target that was set back.
    """
    return applied.visible if applied is not None and recorded == applied.written else recorded


def _part(point: ReadPoint) -> ReadPointPart:
    tables = (
        ReadPointTablePart(table=one.table, schema=one.target.schema, name=one.target.name, complete=one.complete)
        for one in point.held.state.tables
    )
    return ReadPointPart(
        id=point.id,
        name=point.name,
        position=point.position,
        committed_us=point.held.state.committed_us,
        created_us=point.created_us,
        expires_us=point.expires_us,
        tables=tuple(tables),
    )
