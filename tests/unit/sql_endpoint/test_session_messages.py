"""Sessions with any messages: a client can end its own session, and nothing else."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sql_endpoint.answers import Answer, AnswerError, Client
from engine.sql_endpoint.postgres import messages
from engine.sql_endpoint.postgres.messages import ProtocolError
from engine.sql_endpoint.postgres.parameters import SessionParameters
from engine.sql_endpoint.postgres.session import Session

_ROWS = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]})


class FakeAnswers:
    """Answers every statement that begins with SELECT with three rows, whose types `columns` decides."""

    def __init__(self) -> None:
        self.rows = _ROWS
        self.asked: list[tuple[str, tuple[str | None, ...]]] = []

    async def ask(self, _client: Client, sql: str, values: Any, _freshness: Any, _timeout_ms: int) -> Answer:
        self.asked.append((sql, tuple(values)))
        if not sql.lstrip().upper().startswith("SELECT"):
            raise AnswerError({"code": "query_not_a_read", "detail": "only reads"})
        return Answer("0/1", None, "target", None, self.rows)

    async def describe(self, client: Client, sql: str, _count: int, _requirement: Any) -> Answer:
        return await self.ask(client, sql, (), None, 0)


def _served(data: bytes, answers: FakeAnswers | None = None) -> tuple[bytes, bool]:
    """What the session sends, and whether it ended by a violation of the protocol."""
    sent = bytearray()

    async def drain() -> None:
        return

    async def run() -> bool:
        reader = asyncio.StreamReader(limit=1 << 20)
        reader.feed_data(data)
        reader.feed_eof()
        session = Session(answers or FakeAnswers(), Client("shop"), SessionParameters(), sent.extend, drain)  # type: ignore[arg-type]
        try:
            await session.serve(reader)
        except asyncio.IncompleteReadError:
            return False
        except ProtocolError:
            return True
        return False

    violated = asyncio.run(run())
    return bytes(sent), violated


def _kinds(sent: bytes) -> str:
    kinds, at = [], 0
    while at < len(sent):
        kinds.append(sent[at : at + 1].decode())
        at += 1 + int.from_bytes(sent[at + 1 : at + 5], "big")
    assert at == len(sent)
    return "".join(kinds)


def _message(kind: str, body: bytes = b"") -> bytes:
    return messages.message(kind.encode(), body)


def _parse(name: str, sql: str, oids: tuple[int, ...] = ()) -> bytes:
    counted = struct.pack(">h", len(oids)) + b"".join(struct.pack(">i", oid) for oid in oids)
    return _message("P", name.encode() + b"\0" + sql.encode() + b"\0" + counted)


def _bind(portal: str, name: str, values: tuple[bytes | None, ...] = (), forms: tuple[int, ...] = ()) -> bytes:
    body = portal.encode() + b"\0" + name.encode() + b"\0" + struct.pack(">h", len(forms))
    body += b"".join(struct.pack(">h", form) for form in forms) + struct.pack(">h", len(values))
    for value in values:
        body += struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
    return _message("B", body + struct.pack(">h", 0))


def _execute(portal: str, most: int = 0) -> bytes:
    return _message("E", portal.encode() + b"\0" + struct.pack(">i", most))


_SYNC = _message("S")
_VALUES = st.lists(st.sampled_from([None, b"", b"7", b"\0\0\0\7"]), max_size=2)
_WELL_FORMED = st.one_of(
    st.sampled_from(["SELECT 1", "", ";", "BEGIN", "COMMIT", "ROLLBACK", "SET a.b = 1", "SHOW x", "DELETE", "FETCH 2 FROM c", "CLOSE ALL"])
    .map(lambda sql: _message("Q", sql.encode() + b"\0")),
    st.sampled_from(["SELECT $1", "SELECT $2::int", "DECLARE c CURSOR FOR SELECT 1", "SELECT $0", "SELECT $999999999", ""])
    .map(lambda sql: _parse("s", sql)),
    st.tuples(st.sampled_from(["", "p"]), _VALUES, st.lists(st.sampled_from([0, 1, 2]), max_size=3))
    .map(lambda bound: _bind(bound[0], "s", tuple(bound[1]), tuple(bound[2]))),
    st.sampled_from([b"Ss\0", b"P\0", b"Pp\0", b"Pc\0"]).map(lambda body: _message("D", body)),
    st.tuples(st.sampled_from(["", "p", "c"]), st.integers(0, 4)).map(lambda run: _execute(*run)),
    st.sampled_from([b"Ss\0", b"Pp\0", b"P\0"]).map(lambda body: _message("C", body)),
    st.sampled_from([_SYNC, _message("H"), _message("X"), _message("d", b"x")]),
)  # fmt: skip
_ANY = st.one_of(
    _WELL_FORMED,
    st.tuples(st.sampled_from("QPBDECSHXdf"), st.binary(max_size=30)).map(lambda m: _message(*m)),
    st.binary(max_size=8),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_ANY, max_size=25))
def test_any_messages_end_in_answers_or_in_a_violation(sent: list[bytes]) -> None:
    answered, _ = _served(b"".join(sent))
    assert _kinds(answered)[0] == "Z"


@settings(max_examples=200, deadline=None)
@given(st.lists(_WELL_FORMED, max_size=25))
def test_every_sync_and_every_query_is_answered_once(sent: list[bytes]) -> None:
    data = [each for each in sent if each[:1] != b"X"]
    answered, violated = _served(b"".join(data) + _SYNC)
    assert not violated
    kinds = _kinds(answered)
    assert kinds.endswith("Z")
    # Between an error in the extended protocol and the next Sync, queries are skipped.
    syncs, queries = (sum(each[:1] == kind for each in [*data, _SYNC]) for kind in (b"S", b"Q"))
    assert 1 + syncs <= kinds.count("Z") <= 1 + syncs + queries


def test_rows_in_parts() -> None:
    data = _parse("", "SELECT 1") + _bind("", "") + _execute("", 2) + _execute("", 2) + _execute("", 2) + _SYNC
    answered, _ = _served(data)
    assert _kinds(answered) == "Z12DDsDCCZ"


def test_rows_of_other_types_than_described_are_refused() -> None:
    answers = FakeAnswers()
    described = _parse("s", "SELECT 1") + _message("D", b"Ss\0")
    answered, _ = _served(described + _bind("", "s") + _execute("") + _SYNC, answers)
    assert _kinds(answered) == "Z1tT2DDDCZ"

    class Changing(FakeAnswers):
        async def describe(self, client: Client, sql: str, count: int, requirement: Any) -> Answer:
            found = await super().describe(client, sql, count, requirement)
            self.rows = pa.table({"a": ["x"], "b": ["y"]})
            return found

    answered, _ = _served(described + _bind("", "s") + _execute("") + _SYNC, Changing())
    assert _kinds(answered) == "Z1tT2EZ"
    assert b"0A000" in answered


def test_declared_types_of_parameters_become_casts() -> None:
    answers = FakeAnswers()
    sql = "SELECT $1, $2, '$1'"
    _served(_parse("", sql, (23, 0)) + _bind("", "", (b"\0\0\0\7", b"x"), (1, 0)) + _execute("") + _SYNC, answers)
    assert answers.asked == [("SELECT CAST($1 AS INTEGER), $2, '$1'", ("7", "x"))]


def test_declared_types_count_also_before_parameters_are_bound() -> None:
    answers = FakeAnswers()
    _served(_parse("s", "SELECT 1 = ANY ($1)", (1016,)) + _message("D", b"Ss\0") + _SYNC, answers)
    _served(_parse("", "SELECT 1 = ANY ($1)", (1016,)) + _bind("", "", (b"{7,NULL}",)) + _execute("") + _SYNC, answers)
    asked = "SELECT 1 = ANY (CAST($1 AS BIGINT[]))"
    assert answers.asked == [(asked, ()), (asked, ("{7,NULL}",))]


def test_the_hint_for_a_role_names_the_command() -> None:
    for sql in ("ALTER ROLE dashboard SET penstock.freshness = latest", "alter user x reset all"):
        answered, _ = _served(_message("Q", sql.encode() + b"\0"))
        assert _kinds(answered) == "ZEZ"
        assert b"penstock token configure NAME --set" in answered
