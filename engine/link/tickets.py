"""Commands to an engine about tickets."""

from __future__ import annotations

from typing import Literal

from engine.link.message import Message, Position


class Ticket(Message):
    """Write a ticket's marker to the source's log as soon as the subscription runs. May be sent twice.

    Answered by `ticket` reports. `until`: an engine reported that the marker was committed at or before this position.
    """

    kind: Literal["ticket"] = "ticket"
    subscription: str
    ticket_id: str
    until: Position | None = None
