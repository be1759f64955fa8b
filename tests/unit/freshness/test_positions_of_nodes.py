"""Positions of a source with several logs in requests."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from engine.link.messages import Progress
from engine.model.position import Lsn
from engine.model.positions import ONLY_LOG, Mark
from engine.sources.postgres_logs.terms import POSTGRES_LOGS_TERMS
from server.errors import InvalidRequest
from server.freshness.subscription_status import SubscriptionStatus
from server.freshness.wait import parse_position

_AT = datetime(2026, 1, 1, tzinfo=UTC)
_ASKED = "n1=0/16"


def _status(*nodes: str) -> SubscriptionStatus:
    """Of a subscription whose engine has reported positions of these nodes."""
    logs = {name: Lsn(9) for name in (ONLY_LOG, *nodes)} if nodes else {}
    progress = Progress(subscription="s", epoch=0, applied=Lsn(9), applied_of_logs=logs, at=_AT)
    return SubscriptionStatus(name="s", form=POSTGRES_LOGS_TERMS.form, progress=progress)


def test_a_node_that_the_source_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="has no node n1") as refused:
        parse_position(_ASKED, "/position", _status("n0", "n2"))
    assert refused.value.remedy == "Name nodes of the source: n0, n2."


@pytest.mark.parametrize("nodes", [(), ("n0", "n1")])
def test_a_node_is_accepted_while_the_nodes_are_not_known(nodes: tuple[str, ...]) -> None:
    assert parse_position(_ASKED, "/position", _status(*nodes)) == (Mark("n1", Lsn(0x16)),)
