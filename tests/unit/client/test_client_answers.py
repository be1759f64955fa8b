"""What the client makes of answers: rows whole or an error, problems as typed exceptions, and no token in any of them."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from penstock import client as api
from penstock.client.answers import read_result

TOKEN = "secret-token-of-this-test"
_ARROW = "application/vnd.apache.arrow.stream"
END_AS_VALUE = 0xFFFFFFFF
"""An integer of which the bytes are those of the marker at the end of a stream."""
RECEIPT = {
    "position": "0/30",
    "applied": "0/40",
    "tables": [{"schema": "public", "name": "orders", "state": "live"}],
    "left_out": [{"schema": "public", "name": "old", "state": "paused", "reason": "its desired_state is 'paused'"}],
    "exceptions": [{"schema": "public", "name": "log", "kind": "insert_only", "rows": None}],
    "now_ms": 1.0,
    "on_arrival": False,
    "sealed_at": None,
    "committed_at": "2026-01-02T03:04:05Z",
    "structure": "0/40",
    "structure_at": None,
    "consistency": "snapshots",
    "member_of_a_later_version": 1,
}


def arrow(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return sink.getvalue()


def rows_answer(body: bytes) -> httpx.Response:
    return httpx.Response(200, content=body, headers={"Content-Type": _ARROW, "Penstock-Position": "0/40"})


def client(answer: Callable[[httpx.Request], httpx.Response]) -> api.Client:
    return api.Client("http://penstock.test", TOKEN, subscription="shop", transport=httpx.MockTransport(answer))


def problem(status: int, code: str, **more: Any) -> httpx.Response:
    body = {"status": status, "code": code, "detail": "what happened", "remedy": "what to do", **more}
    return httpx.Response(status, json=body, headers={"Content-Type": "application/problem+json"})


TABLE = pa.table({"id": pa.array([END_AS_VALUE] * 3, pa.int64()), "note": ["a", None, ""]})


def test_rows_come_in_each_form() -> None:
    table = TABLE.replace_schema_metadata({"penstock.receipt": json.dumps(RECEIPT), "other": "kept"})
    with client(lambda _: rows_answer(arrow(table))) as found:
        result = found.query("select 1")
    assert result.rows() == [(END_AS_VALUE, "a"), (END_AS_VALUE, None), (END_AS_VALUE, "")]
    assert result.arrow().equals(TABLE)
    assert result.arrow().schema.metadata == {b"other": b"kept"}
    assert list(result.pandas()["id"]) == [END_AS_VALUE] * 3
    assert (len(result), result.position) == (3, "0/40")
    assert result.receipt is not None
    assert result.receipt.tables == (api.TableState("public", "orders", "live"),)
    assert result.receipt.consistency == "snapshots"
    assert result.receipt.left_out[0].reason == "its desired_state is 'paused'"
    assert result.receipt.exceptions == (api.TableException("public", "log", "insert_only"),)
    assert result.receipt.committed_at is not None
    assert result.receipt.committed_at.tzinfo is not None


def test_no_rows_are_an_answer() -> None:
    assert read_result(arrow(TABLE.slice(0, 0)), "0/40").rows() == []


def test_a_stream_that_is_cut_anywhere_never_gives_fewer_rows() -> None:
    whole = arrow(TABLE)
    for length in range(len(whole)):
        with pytest.raises(api.AnswerBrokenOff):
            read_result(whole[:length], "0/40")


class _Breaks(httpx.SyncByteStream):
    """A body whose connection is lost after its first bytes."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        yield self._body
        raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")


def test_rows_that_break_off_raise_and_are_not_asked_for_again() -> None:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        headers = {"Content-Type": _ARROW, "Penstock-Position": "0/40"}
        return httpx.Response(200, headers=headers, stream=_Breaks(arrow(TABLE)[:300]))

    with client(answer) as found, pytest.raises(api.AnswerBrokenOff):
        found.query("select 1")
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (504, "freshness_timeout", api.FreshnessTimeout),
        (409, "freshness_unreachable", api.FreshnessUnreachable),
        (503, "freshness_unavailable", api.Unavailable),
        (503, "engine_unavailable", api.Unavailable),
        (502, "source_unreachable", api.Unavailable),
        (503, "query_unavailable", api.Unavailable),
        (422, "query_refused", api.QueryRefused),
        (422, "query_not_a_read", api.QueryRefused),
        (504, "query_timeout", api.QueryTimeout),
        (422, "answer_cut", api.AnswerCut),
        (401, "unauthenticated", api.AccessDenied),
        (403, "forbidden", api.AccessDenied),
        (404, "not_found", api.ProblemError),
        (418, "of_a_later_version", api.ProblemError),
    ],
)
def test_problems_are_typed_and_keep_code_detail_and_remedy(
    status: int, code: str, kind: type[api.ProblemError]
) -> None:
    with client(lambda _: problem(status, code)) as found, pytest.raises(api.ProblemError) as caught:
        found.query("select 1")
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.code, error.detail, error.remedy) == (status, code, "what happened", "what to do")
    assert "what happened" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.document) == (kind, error.document)


def test_a_timeout_has_position_progress_and_estimate() -> None:
    more = {"position": "0/30", "applied": "0/20", "estimate_ms": 1500.0, "beyond_source": True}
    with (
        client(lambda _: problem(504, "freshness_timeout", **more)) as found,
        pytest.raises(api.FreshnessTimeout) as caught,
    ):
        found.wait("0/30")
    error = caught.value
    assert (error.position, error.applied, error.estimate, error.beyond_source) == ("0/30", "0/20", 1.5, True)
    assert api.FreshnessTimeout(504, {"code": "freshness_timeout"}).estimate is None
    assert api.Unavailable(503, {"code": "freshness_unavailable", "cause": "no_engine"}).cause == "no_engine"


@pytest.mark.parametrize("status", [200, 301, 404])
def test_what_is_not_penstock_is_named(status: int) -> None:
    with client(lambda _: httpx.Response(status, text="<html>")) as found:
        for call in (found.wait, lambda: found.query("select 1")):
            with pytest.raises(api.NotPenstock):
                call()


def _lost(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


@pytest.mark.parametrize("answer", [_lost, lambda _: problem(401, "unauthenticated"), lambda _: httpx.Response(404)])
def test_no_token_in_texts(answer: Callable[[httpx.Request], httpx.Response]) -> None:
    with client(answer) as found, pytest.raises(api.PenstockError) as caught:
        found.wait(timeout=0)
    shown = [repr(found), str(found), repr(caught.value), repr(vars(caught.value)), repr(found._requests)]
    shown += traceback.format_exception(caught.value)
    assert TOKEN not in "".join(shown)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def test_a_token_that_cannot_be_sent_is_not_shown() -> None:
    with pytest.raises(ValueError, match="PENSTOCK_TOKEN") as caught:
        api.Client("http://penstock.test", f"{TOKEN}\r\nX: 1")
    assert TOKEN not in str(caught.value)


def test_optional_libraries_are_named_when_they_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    result = read_result(arrow(TABLE), "0/40")
    for name, call in (("polars", result.polars), ("pandas", result.pandas)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=f"pip install {name}"):
            call()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with client(_lost) as found, pytest.raises(ImportError, match="pip install pyarrow"):
        found.query("select 1")


def test_rows_come_as_a_polars_frame() -> None:
    polars = pytest.importorskip("polars")
    assert read_result(arrow(TABLE), "0/40").polars().equals(polars.from_arrow(TABLE))


def test_importing_it_imports_neither_drivers_nor_data_frames() -> None:
    heavy = {"pyarrow", "pandas", "polars", "sqlalchemy", "psycopg", "numpy", "server", "engine"}
    code = f"import sys, penstock.client; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
