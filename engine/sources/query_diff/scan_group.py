"""Subscriptions of one connection that read the same tables share the reads of a cycle: one of them leads, and spools what it reads.

All of it is in a folder of the connection. Nothing there is needed: a cycle that misses a file reads the source. Moments are compared on
the clock of this machine's present run, so that no step of the wall clock lets a cycle use a snapshot that was taken too early.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from engine.platform.clock import SystemClock
from engine.queue.files import write_file
from engine.sources.query_diff.cycle_numbers import hold, is_locked
from engine.sources.query_diff.moments import Moment

KEPT_S = 5.0
"""Seconds after its cycle for which an offer waits for others to use it. They look every 50 ms. Not measured."""
_MOST_KEPT_S = 900.0
"""Seconds after its cycle from which on an offer is removed, even if it is used: its users read the rest themselves. Not measured."""
_BEGINS_S = 2.0
"""Seconds that a cycle waits for the offer of one that has just begun; a snapshot takes milliseconds. Not measured."""
_LOOK_S = 0.02
"""Seconds between two looks for that."""
_LEAD, _USE, _FACTS = "lead.lock", "use.lock", "offer.json"
"""Files of an offer: the first is locked while its cycle runs, the second while others use it, the third says what it offers."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A scan of a whole table. `base`: digest of what determines its lines; `row_filter`, `columns`: as of RowFilter; None: all rows."""

    table: str
    base: str
    row_filter: str | None = None
    columns: tuple[tuple[int, str], ...] = ()
    id: str = ""
    """Digest of all that."""


@dataclass(frozen=True, slots=True)
class Member:
    """What a subscription would take from others. `from_us`: offers of snapshots since then, by the wall clock; None: of none yet."""

    from_us: int | None
    wants: tuple[Wanted, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """The reads of a cycle that runs, or has ended. `taken`: its snapshot was taken after `before` and until then; `at_us`: before that, by
    the wall clock; `snapshot`: its name; `overlap_s`: see CycleSnapshot; `promised`: ids of scans that are, or will be, in `folder`."""

    folder: Path
    before: Moment
    taken: Moment
    at_us: int
    snapshot: str
    overlap_s: float
    promised: frozenset[str]

    @property
    def is_led(self) -> bool:
        """Whether its cycle runs."""
        return is_locked(self.folder / _LEAD)

    def write(self) -> None:
        facts = {
            "before": self.before.text,
            "taken": self.taken.text,
            "at_us": self.at_us,
            "snapshot": self.snapshot,
            "overlap_s": self.overlap_s,
            "promised": sorted(self.promised),
        }
        write_file(self.folder / _FACTS, json.dumps(facts).encode("utf-8"), private=True)

    @staticmethod
    def read(folder: Path) -> Offer | None:
        """None if it is not there, or cannot be understood."""
        try:
            facts = json.loads((folder / _FACTS).read_bytes())
            return Offer(
                folder,
                Moment.of(facts["before"]),
                Moment.of(facts["taken"]),
                facts["at_us"],
                facts["snapshot"],
                facts["overlap_s"],
                frozenset(facts["promised"]),
            )
        except (OSError, ValueError, KeyError):
            return None


@dataclass(slots=True)
class ScanGroup:
    """The subscriptions of a connection on this machine, as one of them sees them. `folder`: of the connection; `name`: of the subscription
    in it. Used by one thread, until `close`."""

    folder: Path
    name: str
    member: Member = Member(None, ())
    refused: set[str] = field(default_factory=set)
    """Ids of scans that could not be read together with others: they are not tried again."""
    covers: bool = False
    """Scans are all that a cycle of this subscription reads."""
    _held: ExitStack = field(default_factory=ExitStack)
    _is_known: bool = False
    _swept: float = 0.0

    def close(self) -> None:
        """No longer take part. Idempotent."""
        self._held.close()
        self._is_known = False
        with suppress(OSError):
            (self._members / f"{self.name}.json").unlink(missing_ok=True)

    @property
    def _members(self) -> Path:
        return self.folder / "members"

    @property
    def _offers(self) -> Path:
        return self.folder / "offers"

    def note(self, wants: Sequence[Wanted], *, covers: bool) -> None:
        """What the next cycle would take from others; they know after `register`."""
        self.member, self.covers = Member(None, tuple(wants)), covers

    def register(self, from_us: int) -> None:
        """Take part: say what this subscription takes from others, and from when on. See Member."""
        self.member = replace(self.member, from_us=from_us)
        with suppress(OSError):  # Without it others do not read for this one.
            for each in (self.folder, self._members, self._offers):
                each.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not self._is_known:
                self._is_known = self._held.enter_context(hold(self._members / f"{self.name}.lock"))
            write_file(self._members / f"{self.name}.json", json.dumps(asdict(self.member)).encode(), private=True)

    def others_want(self, now_us: int) -> list[Wanted]:
        """The scans that other subscriptions would take now, of those that this one makes."""
        own = {each.base for each in self.member.wants}
        found: dict[str, Wanted] = {}
        for path in self._members.glob("*.json") if own else ():
            if path.stem != self.name and is_locked(path.with_suffix(".lock")):
                member = _member(path)
                if member.from_us is not None and member.from_us <= now_us:
                    found |= {w.id: w for w in member.wants if w.base in own and w.id not in self.refused}
        return list(found.values())

    def is_offered(self, now_us: int) -> bool:
        """Whether others read all that a cycle of this subscription would, so that it may as well begin."""
        from_us = self.member.from_us
        if not self.covers or from_us is None or from_us > now_us:
            return False
        ids = {each.id for each in self.member.wants}
        return any(offer.at_us >= from_us and ids <= offer.promised for offer in self._all())

    def join(self, after: Sequence[Moment], held: ExitStack) -> Offer | None:
        """An offer whose snapshot was taken after these moments, to be used until `held` closes. Waits for one that is about to be made."""
        ids, until = {each.id for each in self.member.wants}, time.monotonic() + _BEGINS_S
        while ids and self.member.from_us is not None:
            led = False
            for offer in self._all():
                led = led or offer.is_led
                fits = offer.at_us >= self.member.from_us and ids & offer.promised
                is_later = all(moment.is_before(offer.before) for moment in after)
                if fits and is_later and held.enter_context(hold(offer.folder / _USE, shared=True)):
                    return offer
            if led or not is_locked(self.folder / _LEAD) or time.monotonic() >= until:
                return None
            time.sleep(_LOOK_S)
        return None

    def lead(self, held: ExitStack) -> bool:
        """Whether this subscription may make the next offer; no other one does until `held` closes."""
        with suppress(OSError):
            return held.enter_context(hold(self.folder / _LEAD))
        return False

    @contextmanager
    def offering(self) -> Iterator[Path]:
        """A folder for an offer, which others see after `show`; it ends with the block, and is removed by `sweep`."""
        hidden = self._offers / f".{uuid.uuid4().hex}"
        hidden.mkdir(mode=0o700)
        shown = hidden.with_name(hidden.name[1:])
        with hold(hidden / _LEAD):
            try:
                yield hidden
            finally:
                shutil.rmtree(hidden, ignore_errors=True)
                with suppress(OSError):
                    os.utime(shown / _LEAD)  # It is kept for a while from now on.

    def sweep(self, *, least_s: float = 1.0) -> None:
        """Remove offers that have ended and are not in use, also those of processes that were killed. At most once in `least_s`."""
        if time.monotonic() - self._swept < least_s:
            return
        self._swept = time.monotonic()
        _sweep(self._offers, "*", KEPT_S)

    def _all(self) -> list[Offer]:
        try:
            folders = [each for each in self._offers.iterdir() if not each.name.startswith(".")]
        except OSError:
            return []
        offers = [offer for offer in map(Offer.read, folders) if offer is not None and offer.before.is_of_this_run]
        return sorted(offers, key=lambda offer: offer.before.ns, reverse=True)


def show(hidden: Path) -> Path:
    """Let others see an offer; returns its folder."""
    shown = hidden.with_name(hidden.name[1:])
    hidden.rename(shown)
    return shown


def _member(path: Path) -> Member:
    try:
        found = json.loads(path.read_bytes())
        wants = [Wanted(**{**each, "columns": tuple(tuple(c) for c in each["columns"])}) for each in found["wants"]]
        return Member(found["from_us"], tuple(wants))
    except (OSError, ValueError, KeyError, TypeError):
        return Member(None, ())


def sweep_all(connections: Path, *, at_once: bool) -> None:
    """Remove offers of all connections that have ended and are not in use; `at_once`: also if they have just ended."""
    _sweep(connections, "*/offers/*", 0.0 if at_once else KEPT_S)


def _sweep(folder: Path, offers: str, kept_s: float) -> None:
    """Remove those of the offers, a pattern of paths below the folder, that ended so long ago and are not in use."""
    with suppress(OSError):
        for each in list(folder.glob(offers)):
            _remove_if_over(each, kept_s)


def _remove_if_over(folder: Path, kept_s: float) -> None:
    with suppress(OSError), ExitStack() as stack:
        # By the wall clock: a step of it removes an offer early or late. The lock file may be missing: a crash left the folder half made.
        path = folder / _LEAD
        ended_s = SystemClock().wall_us() / 1e6 - (path if path.exists() else folder).stat().st_mtime
        if ended_s < kept_s or not stack.enter_context(hold(path)):
            return
        if stack.enter_context(hold(folder / _USE)) or ended_s >= _MOST_KEPT_S:
            shutil.rmtree(folder, ignore_errors=True)
