"""Global transactions in messages of a merged log, as staging tables show them."""

from __future__ import annotations

import numpy as np
import pytest

from engine.model.change_data import GlobalUnit, UnitKind, global_units
from engine.model.fault import EngineFault, FaultKind
from engine.model.last_commit import CommitTimes
from engine.model.merged_logs import LogsMessage


def times(*messages: tuple[int, bytes]) -> CommitTimes:
    none = np.empty(0, np.uint64)
    return CommitTimes(none, none.astype(np.int64), none.astype(np.uint32), messages)


@pytest.mark.parametrize(("kind", "shown"), [(1, UnitKind.SEVERAL_NODES), (2, UnitKind.OTHER_NODE)])
def test_a_message_names_its_transaction(kind: int, shown: UnitKind) -> None:
    message = LogsMessage((("order-1", (2,)),), transaction=("order-1", kind))
    assert LogsMessage.parse(message.content) == message
    assert global_units(times((7, message.content), (9, LogsMessage().content))) == {7: GlobalUnit("order-1", shown)}


def test_ids_that_are_no_text_are_escaped() -> None:
    gtid = b"tx\xff\0".decode("utf-8", "surrogateescape")
    found = global_units(times((7, LogsMessage(transaction=(gtid, 1)).content)))
    assert found[7].gtid == r"tx\xff\x00"


def test_a_message_of_an_earlier_version_names_none() -> None:
    assert global_units(times((7, b'{"published":[["order-1",[2]]]}'))) == {}


@pytest.mark.parametrize(
    "content", [b'{"global":["a"]}', b'{"global":["a","1"]}', b'{"global":[1,1]}', b'{"global":7}']
)
def test_another_form_is_refused(content: bytes) -> None:
    with pytest.raises(EngineFault) as raised:
        LogsMessage.parse(content)
    assert raised.value.kind is FaultKind.LOG_UNREADABLE
