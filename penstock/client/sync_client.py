"""The blocking client."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import httpx

from penstock.client.answers import Result
from penstock.client.commit_position import LogEnd, check_source, read_log_end
from penstock.client.exchange import BodyLost, Exchange, Pause, Reply, Send
from penstock.client.receipts import Receipt
from penstock.client.requests import DEFAULT_TIMEOUT_S, Requests, http_options

if TYPE_CHECKING:
    from penstock.client.commit_position import SyncSource

T = TypeVar("T")


class Client:
    """A Penstock server, and one of its subscriptions. Thread-safe.

    Times are in seconds, positions text like `0/16B3748`. Every method raises `PenstockError`: `ProblemError` if the server answers with a
    problem, `ServerUnreachable` if none answers within the deadline, until which lost connections are retried.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        subscription: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`url`, `token`: by default those of PENSTOCK_URL and PENSTOCK_TOKEN, then the address of a server on this machine.

        `subscription`: by default the only one of the server. `transport`: for instance an httpx.HTTPTransport with
        certificates or a proxy. Raises ValueError if the address is invalid, or the token contains what no token does.
        """
        self._requests = Requests(url, subscription)
        self._http = httpx.Client(transport=transport, **http_options(self._requests.url, token))

    def __repr__(self) -> str:
        return f"Client{self._requests!r}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the server."""
        self._http.close()

    def wait(
        self,
        position: str | None = None,
        tables: Sequence[str] | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> Receipt:
        """Wait until everything committed on the source up to `position` is visible on the target.

        `position` None: up to now. `tables`: the only ones to wait for, like `public.orders`; None: each that is not
        paused or parked. `timeout`: at most 600.

        Raises:
            FreshnessTimeout: it is not visible at the deadline.
            FreshnessUnreachable: it cannot become visible.
            Unavailable: engine or source are unavailable.
        """
        return self._run(self._requests.wait(position, tables, timeout))

    def query(
        self,
        sql: str,
        freshness: str = "any",
        timeout: float = DEFAULT_TIMEOUT_S,
        *,
        time_limit: float = DEFAULT_TIMEOUT_S,
        max_rows: int | None = None,
        read_point: str | None = None,
    ) -> Result:
        """Run one SELECT on the target, and return all its rows.

        `freshness`: `latest`, everything committed before the request is in the rows; a position, everything up to there; `any`, they
        are as they are. In each case the rows contain what `read_your_writes` and `at_least` demand. `timeout`: for that wait, at
        most 600; `time_limit`: for the statement and its rows. A connection that is lost before the first row is retried.
        `read_point`: the name of a read point; the rows are those of its position, also where `read_your_writes` and `at_least` demand
        a later one, and `freshness` stays `any`.

        Raises:
            FreshnessTimeout, FreshnessUnreachable, Unavailable: as of `wait`, for the tables of the statement.
            QueryRefused, QueryTimeout: the statement is refused, or reaches its limit.
            AnswerCut: there are more than `max_rows` rows.
            AnswerBrokenOff: the rows ended before their end.
            ImportError: pyarrow is missing.
        """
        for source in self._requests.floor.sources:
            self._requests.note(_log_end(source), last=False)
        return self._run(self._requests.query(sql, freshness, timeout, time_limit, max_rows, read_point))

    def at_least(self, position: str | None) -> None:
        """Make the queries of this thread or task that follow wait for `position`, in addition to what they wait for already.

        None: forget that, for instance when a thread begins the request of another user. Raises ValueError if it is no
        position.
        """
        self._requests.at_least(position)

    @contextmanager
    def read_your_writes(self, source: SyncSource) -> Iterator[None]:
        """Make queries of this thread or task, within the block and after it, wait for what `source` commits within it.

        `source`: a psycopg Connection, or an Engine, Connection or Session of SQLAlchemy, to the database that is replicated. The
        position is read from it before each query within the block, and at its end; if that fails, the next query waits for
        everything committed.

        Raises:
            TransactionOpen: at the end of the block, the transaction has written and is not committed.
            TypeError: `source` is something else.
        """
        check_source(source)
        self._requests.open_block(source)
        failed = True
        try:
            yield
            failed = False
        finally:
            self._requests.close_block()
            end = None
            try:
                end = _log_end(source)
            finally:
                self._requests.note(end, last=True, failed=failed)

    def _run(self, exchange: Exchange[T]) -> T:
        try:
            action = next(exchange)
            while True:
                if isinstance(action, Pause):
                    time.sleep(action.seconds)
                    action = next(exchange)
                    continue
                lost: httpx.RequestError | None = None
                try:
                    reply = self._send(action)
                except httpx.RequestError as error:
                    lost = error
                action = exchange.send(reply) if lost is None else exchange.throw(lost)
        except StopIteration as end:
            found: T = end.value
            return found

    def _send(self, send: Send) -> Reply:
        headers = {"Accept": send.accept}
        with self._http.stream(
            send.method, send.path, json=send.body, headers=headers, timeout=send.timeout
        ) as response:
            body = bytearray()
            try:
                for piece in response.iter_bytes():
                    body += piece
            except httpx.RequestError as error:
                raise BodyLost(str(error)) if body else error from None
            return Reply(response.status_code, response.headers, bytes(body))


def _log_end(source: object) -> LogEnd | None:
    """The end of the source's log; None if it cannot be read, whatever the driver raises."""
    try:
        return read_log_end(source)
    except Exception:  # noqa: BLE001, RUF100 - the block is about the user's transaction, which has ended
        return None
