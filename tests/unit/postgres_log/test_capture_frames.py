"""Cutting the protocol's byte stream: any split of the bytes gives the same records."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.fault import EngineFault, FaultKind
from engine.model.position import Lsn
from engine.model.subscription import OriginFilter
from engine.sources.postgres.frames import MALFORMED, cut, error_fields
from engine.sources.postgres.transport import Inbox
from engine.sources.postgres_log.position import without_page_header
from engine.sources.postgres_log.stream import start_command
from tests.unit.postgres_log.replication_wire import Pieces, copy_data, keepalive, xlog


@settings(max_examples=80, deadline=None)
@given(
    messages=st.lists(
        st.one_of(
            st.tuples(st.just("w"), st.binary(min_size=1, max_size=90), st.integers(0, 2**63 - 1)),
            st.tuples(st.just("k"), st.just(b""), st.integers(0, 2**63 - 1)),
        ),
        max_size=15,
    ),
    sizes=st.lists(st.integers(1, 60), max_size=40),
    buffer_bytes=st.integers(16, 200),
    most_bytes=st.integers(1, 200),
)
def test_however_the_bytes_are_split_the_records_are_the_same(
    messages: list[tuple[str, bytes, int]], sizes: list[int], buffer_bytes: int, most_bytes: int
) -> None:
    stream = b"".join(xlog(record, at) if kind == "w" else keepalive(at) for kind, record, at in messages)
    transport = Pieces(stream, list(sizes))
    inbox = Inbox(buffer_bytes)
    records: list[bytes] = []
    highest = 0
    for _ in range(len(stream) + 10):
        inbox.fill(transport)
        frames = cut(inbox.buffer, inbox.filled, most_bytes)
        assert frames.other == 0
        assert len(frames.data) <= most_bytes or len(frames.offsets) == 2
        inbox.drop(frames.consumed)
        data, borders = frames.data.tobytes(), frames.offsets.tolist()
        records += [data[a:b] for a, b in pairwise(borders)]
        highest = max(highest, frames.wal_end)
    assert records == [record for kind, record, _ in messages if kind == "w"]
    assert highest == max((at for *_, at in messages), default=0)
    assert inbox.filled == 0


def test_other_messages_and_nonsense_stop_the_cut() -> None:
    def cut_bytes(data: bytes) -> tuple[int, int, int]:
        frames = cut(np.frombuffer(data, np.uint8).copy(), len(data), 1000)
        return len(frames.offsets) - 1, frames.consumed, frames.other

    first = xlog(b"B", 5)
    notice = b"N" + struct.pack(">I", 5) + b"\0"
    assert cut_bytes(first + notice) == (1, len(first), ord("N"))
    assert cut_bytes(first + notice[:3]) == (1, len(first), 0)
    assert cut_bytes(notice) == (0, 0, ord("N"))
    for nonsense in (copy_data(b"z12"), copy_data(b"k12"), b"d\0\0\0\1", copy_data(b"w" + bytes(24))):
        assert cut_bytes(first + nonsense) == (1, len(first), MALFORMED)


def test_a_keepalive_may_ask_for_an_answer() -> None:
    data = np.frombuffer(keepalive(3) + keepalive(4, ask=True) + xlog(b"C", 2), np.uint8)
    frames = cut(data, len(data), 1000)
    assert (frames.answer_asked, frames.wal_end, frames.sent_us) == (True, 4, 7)


def test_error_fields_are_read_by_letter() -> None:
    assert error_fields(b"SFEHLER\0VERROR\0C42704\0Mslot\0\0") == {
        "S": "FEHLER",
        "V": "ERROR",
        "C": "42704",
        "M": "slot",
    }


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (16 * 2**20 * 3 + 40, 16 * 2**20 * 3),
        (8192 * 5 + 24, 8192 * 5),
        (8192 * 5 + 40, 8192 * 5 + 40),
        (16 * 2**20 * 3 + 24, 16 * 2**20 * 3),
        (8192 * 5 + 32, 8192 * 5 + 32),
        (8192, 8192),
    ],
)
def test_a_position_behind_a_page_header_is_set_back(position: int, expected: int) -> None:
    assert without_page_header(Lsn(position), 16 * 2**20, 8192) == Lsn(expected)


@pytest.mark.parametrize(("version", "protocol"), [(140010, 2), (150001, 3), (160000, 4), (180004, 4)])
def test_streaming_starts_with_the_servers_highest_protocol(version: int, protocol: int) -> None:
    command = start_command("shop_1", Lsn.parse("0/16B3748"), ("shop_1", "shop_1_ins"), version)
    assert command.startswith('START_REPLICATION SLOT "shop_1" LOGICAL 0/16B3748 (')
    assert f"proto_version '{protocol}'" in command
    assert "streaming 'on', messages 'true'" in command
    assert """publication_names '"shop_1","shop_1_ins"'""" in command
    assert "origin" not in command


def test_streaming_leaves_out_what_replication_wrote_where_the_server_can_tell() -> None:
    def command(version: int) -> str:
        return start_command("shop_1", Lsn(0), ("shop_1",), version, OriginFilter.NONE)

    assert command(160000).endswith(", origin 'none')")
    with pytest.raises(EngineFault) as refused:
        command(150012)
    assert refused.value.kind is FaultKind.ORIGIN_UNSUPPORTED
