"""Tracks the relation records in force at the end of the queue; each new segment starts with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.model.control import ControlKind
from engine.records.messages import unstreamed


class RelationLedger:
    """The last relation record of each table. One in a streamed transaction takes effect at its commit, and not at all if it aborts."""

    def __init__(self, known: Sequence[bytes]) -> None:
        self._known: dict[bytes, bytes] = {}
        self._open: dict[int, list[bytes]] = {}
        for payload in known:
            self._keep(payload)

    @property
    def known(self) -> tuple[bytes, ...]:
        """One record per table, without transaction ids."""
        return tuple(self._known.values())

    def begin_session(self) -> None:
        """Discard open streamed transactions: the source sends them again."""
        self._open.clear()

    def feed(self, controls: Any, relations: Mapping[int, bytes]) -> None:
        """Process the control records of a landing (numpy, CONTROL_FIELDS) in order."""
        kinds = controls["kind"]
        ends = (kinds == ControlKind.STREAM_COMMIT) | (kinds == ControlKind.STREAM_ABORT)
        for control in controls[ends | (kinds == ControlKind.RELATION)]:
            kind, xid = int(control["kind"]), int(control["xid"])
            if kind == ControlKind.RELATION:
                payload = relations[int(control["ordinal"])]
                if xid:
                    # Inside a streamed transaction a transaction id follows the type byte.
                    self._open.setdefault(xid, []).append(self._shared(unstreamed(payload)))
                else:
                    self._keep(payload)
            elif kind == ControlKind.STREAM_COMMIT:
                for payload in self._open.pop(xid, ()):
                    self._keep(payload)
            elif int(control["subxid"]) == xid:
                self._open.pop(xid, None)

    def _shared(self, payload: bytes) -> bytes:
        """The known equal record, to save memory: thousands of open transactions may announce the same tables."""
        known = self._known.get(payload[1:5])
        return known if known == payload else payload

    def _keep(self, payload: bytes) -> None:
        self._known[payload[1:5]] = payload
