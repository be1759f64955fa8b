"""The network with a length: what comes out is what went in, in order, and never before its time."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from time import perf_counter

import pytest

from bench.delay import DelayLine, DelayProxy
from server.processes.ports import free_port

SHORT_S = 0.002
PATIENCE_S = 20.0


class HastyClock:
    """Moves by its pauses only, each of which ends when half of it is over, but for the last bit."""

    def __init__(self) -> None:
        self.at = 0.0
        self.pauses = 0

    def now(self) -> float:
        return self.at

    def pause(self, seconds: float) -> None:
        self.pauses += 1
        self.at += seconds if seconds < 0.01 else seconds / 2


@contextmanager
def joined(delay_s: float = SHORT_S) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of one connection that leads through a proxy: who connected, and who was connected to."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.settimeout(PATIENCE_S)
        proxy = stack.enter_context(DelayProxy("127.0.0.1", listener.getsockname()[1], delay_s))
        near = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S))
        far = stack.enter_context(listener.accept()[0])
        far.settimeout(PATIENCE_S)
        yield near, far


def everything(one: socket.socket) -> bytes:
    """What arrives until the end."""
    parts = []
    while part := one.recv(65536):
        parts.append(part)
    return b"".join(parts)


def send_for_ever(one: socket.socket) -> None:
    while True:
        one.sendall(b"x" * 65536)


def sent_in_pieces(one: socket.socket, data: bytes, seed: int) -> None:
    """Pieces of all sizes, and then the end."""
    sizes, at = random.Random(seed), 0
    while at < len(data):
        size = sizes.choice([1, 7, 1000, 65536, 300_000])
        one.sendall(data[at : at + size])
        at += size
    one.shutdown(socket.SHUT_WR)


def test_a_chunk_comes_out_when_its_time_has_come_and_not_before() -> None:
    clock = HastyClock()
    line = DelayLine(1.0, now=clock.now, pause=clock.pause)
    line.put(b"first")
    clock.at = 0.25
    line.put(b"second")
    assert (line.take_chunk(), clock.at) == (b"first", pytest.approx(1.0))
    assert (line.take_chunk(), clock.at) == (b"second", pytest.approx(1.25))


def test_chunks_that_went_in_together_come_out_together() -> None:
    clock = HastyClock()
    line = DelayLine(1.0, now=clock.now, pause=clock.pause)
    for number in range(100):
        line.put(b"%d" % number)
    assert line.take_chunk() == b"0"
    pauses = clock.pauses
    assert [line.take_chunk() for _ in range(99)] == [b"%d" % number for number in range(1, 100)]
    assert clock.pauses == pauses
    assert clock.at == pytest.approx(1.0)


def test_what_is_late_already_does_not_wait() -> None:
    clock = HastyClock()
    line = DelayLine(1.0, now=clock.now, pause=clock.pause)
    line.put(b"x")
    clock.at = 5.0
    assert (line.take_chunk(), clock.pauses) == (b"x", 0)


def test_bytes_arrive_unchanged_and_in_order_in_both_directions_at_once() -> None:
    there, back = (random.Random(seed).randbytes(3_000_000) for seed in (1, 2))
    with joined() as (near, far), ThreadPoolExecutor(4) as pool:
        sending = [pool.submit(sent_in_pieces, near, there, 3), pool.submit(sent_in_pieces, far, back, 4)]
        arrived = [pool.submit(everything, far), pool.submit(everything, near)]
        assert arrived[0].result(PATIENCE_S) == there
        assert arrived[1].result(PATIENCE_S) == back
        assert [one.result() for one in sending] == [None, None]


@pytest.mark.parametrize("delay_s", [0.001, 0.03])
def test_nothing_arrives_before_its_time(delay_s: float) -> None:
    with joined(delay_s) as ends:
        for sender, receiver in (ends, ends[::-1]):
            for number in range(5):
                began = perf_counter()
                sender.sendall(bytes([number]))
                assert receiver.recv(1) == bytes([number])
                assert perf_counter() - began >= delay_s


def test_a_round_trip_takes_both_ways() -> None:
    with joined(0.02) as (near, far):
        began = perf_counter()
        near.sendall(b"?")
        far.sendall(far.recv(1).replace(b"?", b"!"))
        assert near.recv(1) == b"!"
        assert perf_counter() - began >= 0.04


@pytest.mark.parametrize("connected", [True, False])
def test_closing_one_side_closes_the_other_behind_what_was_sent(connected: bool) -> None:
    with joined() as ends:
        closing, other = ends if connected else ends[::-1]
        closing.sendall(b"the last words")
        closing.close()
        assert everything(other) == b"the last words"


def test_who_sends_no_more_may_still_receive() -> None:
    with joined() as (near, far):
        near.shutdown(socket.SHUT_WR)
        assert far.recv(1) == b""
        far.sendall(b"an answer")
        far.close()
        assert everything(near) == b"an answer"


def test_a_receiver_that_is_gone_ends_what_is_sent_to_it() -> None:
    with joined() as (near, far):
        far.close()
        with pytest.raises(OSError, match=r"reset|pipe|closed"):
            send_for_ever(near)


def test_where_nobody_listens_a_connection_ends_at_once() -> None:
    with (
        DelayProxy("127.0.0.1", free_port(), SHORT_S) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S) as near,
    ):
        assert everything(near) == b""


def test_closing_the_proxy_ends_its_connections_and_takes_no_more() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = DelayProxy("127.0.0.1", listener.getsockname()[1], SHORT_S)
        with socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S) as near:
            near.sendall(b"x")
            with listener.accept()[0] as far:
                assert far.recv(1) == b"x"
                proxy.close()
                assert everything(near) == everything(far) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S)
