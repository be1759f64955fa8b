"""What is sent and not yet read, in the kernel's table of connections."""

from __future__ import annotations

from bench.capture import queued_bytes

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def _line(number: int, local: int, remote: int, sent: int, received: int) -> str:
    return f"   {number}: 0100007F:{local:04X} 0100007F:{remote:04X} 01 {sent:08X}:{received:08X} 00:00000000 00000000  99 0 1\n"


def test_both_ends_of_a_connection_count_and_others_do_not() -> None:
    table = HEAD + _line(0, 5432, 40000, 7, 0) + _line(1, 40000, 5432, 0, 300) + _line(2, 5432, 40001, 9000, 0)
    assert queued_bytes(table, 5432, 40000) == 307
    assert queued_bytes(table, 5432, 40002) == 0
    assert queued_bytes(HEAD, 5432, 40000) == 0
