"""Protocol buffers of Flight SQL, read and written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.sql_endpoint.flight import commands
from engine.sql_endpoint.flight.commands import (
    GetDbSchemas,
    GetForeignKeys,
    GetPrimaryKeys,
    GetSqlInfo,
    GetTables,
    PreparedQuery,
    StatementQuery,
    StatementTicket,
    Unknown,
    Update,
    command_of,
)
from engine.sql_endpoint.flight.protobuf import Fields, MalformedMessageError, encoded, packed_any, unpacked_any

SQL = "arrow.flight.protocol.sql."
SELECT = bytes.fromhex(
    "0a43747970652e676f6f676c65617069732e636f6d2f6172726f772e666c696768742e70726f746f636f6c2e73716c2e436f6d6d616e6453746174656d656e745175657279"
    "120a0a0853454c4543542031"
)
"""CommandStatementQuery of SELECT 1, as Google's library encodes it."""


def test_a_statement_as_other_libraries_encode_it() -> None:
    assert command_of(SELECT) == StatementQuery("SELECT 1")
    assert packed_any(SQL + "CommandStatementQuery", encoded({1: b"SELECT 1"})) == SELECT


@pytest.mark.parametrize(
    ("name", "fields", "command"),
    [
        ("TicketStatementQuery", {1: b"\xff\x00"}, StatementTicket(b"\xff\x00")),
        ("CommandPreparedStatementQuery", {1: b"h"}, PreparedQuery(b"h")),
        ("CommandGetSqlInfo", {1: b"\x00\xac\x02"}, GetSqlInfo((0, 300))),
        ("CommandGetSqlInfo", {1: 300}, GetSqlInfo((300,))),
        ("CommandGetDbSchemas", {}, GetDbSchemas(None, None)),
        ("CommandGetDbSchemas", {1: b"", 2: b"p%"}, GetDbSchemas("", "p%")),
        ("CommandGetTables", {3: b"o_", 4: b"TABLE", 5: 1}, GetTables(None, None, "o_", ("TABLE",), True)),
        ("CommandGetPrimaryKeys", {3: b"orders"}, GetPrimaryKeys(None, None, "orders")),
        ("CommandGetPrimaryKeys", {1: b"", 2: b"public", 3: b"o"}, GetPrimaryKeys("", "public", "o")),
        ("CommandGetCrossReference", {}, GetForeignKeys()),
        ("CommandStatementUpdate", {1: b"DELETE"}, Update()),
        ("CommandStatementIngest", {}, Update()),
        ("CommandStatementSubstraitPlan", {}, Unknown("CommandStatementSubstraitPlan")),
    ],
)
def test_commands(name: str, fields: dict[int, int | bytes], command: commands.Command) -> None:
    assert command_of(packed_any(SQL + name, encoded(fields))) == command


def test_text_that_is_no_message_is_a_statement() -> None:
    assert command_of("\n SELECT 'ä'".encode()) == StatementQuery("\n SELECT 'ä'")


@pytest.mark.parametrize(
    "message", [b"", b"  ", b"\xff\xfe", b"\x00\x01", packed_any(SQL + "CommandStatementQuery", b"\x0a\x09")]
)
def test_what_is_neither_is_an_error(message: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        command_of(message)


def test_an_action_with_the_message_of_another_is_an_error() -> None:
    body = packed_any(SQL + "ActionCreatePreparedStatementRequest", encoded({1: b"SELECT 1"}))
    assert commands.action_body(body, "ActionCreatePreparedStatementRequest").text(1) == "SELECT 1"
    with pytest.raises(MalformedMessageError, match="ActionCancelQueryRequest"):
        commands.action_body(body, "ActionCancelQueryRequest")


def test_the_tickets_of_a_flight_info() -> None:
    endpoint = encoded({1: encoded({1: b"ticket"})})
    assert commands.tickets_of(commands.flight_info_of(encoded({1: encoded({2: b"d", 3: endpoint})}))) == [b"ticket"]


@given(st.dictionaries(st.integers(1, 2**29 - 1), st.one_of(st.binary(max_size=300), st.integers(0, 2**64 - 1))))
def test_what_is_written_is_read(fields: dict[int, int | bytes]) -> None:
    found = Fields(encoded(fields))
    for number, value in fields.items():
        assert (found.raw(number) if isinstance(value, bytes) else found.integers(number)[0]) == value


@given(st.text(), st.binary(max_size=100))
def test_any_message_is_unpacked_as_it_was_packed(name: str, body: bytes) -> None:
    assert unpacked_any(packed_any(name, body)) == (name, body)


@given(st.binary(max_size=200))
def test_bytes_at_random_are_a_command_or_malformed(message: bytes) -> None:
    try:
        command_of(message)
    except MalformedMessageError:
        return
    assert message


@given(st.binary(min_size=1, max_size=60), st.data())
def test_a_cut_message_is_malformed(body: bytes, data: st.DataObject) -> None:
    whole = packed_any("x", body)
    cut = data.draw(st.integers(len(whole) - len(body) - 1, len(whole) - 1))
    with pytest.raises(MalformedMessageError):
        unpacked_any(whole[:cut])


@pytest.mark.parametrize(
    "message", [b"\x08" + b"\xff" * 9 + b"\x7f", b"\x08" + b"\xff" * 11, b"\x00\x01", b"\x0b", b"\x0d\x01"]
)
def test_wrong_wire_formats_are_malformed(message: bytes) -> None:
    """More than 64 bits, a number without end, field 0, a group, a cut fixed32."""
    with pytest.raises(MalformedMessageError):
        Fields(message)
