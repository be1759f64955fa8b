"""What is asked of an engine about tickets."""

from __future__ import annotations

from typing import Literal

from engine.link.message import Message, Position


class Ticket(Message):
    """Put a ticket's marker into the source's log as soon as the subscription runs, and tell how it gets on. May come twice.

    Answered by `ticket` reports. `until`: an engine has told that the marker was committed at or before this position.
    """

    kind: Literal["ticket"] = "ticket"
    subscription: str
    ticket_id: str
    until: Position | None = None
