"""What both clients do: their settings, the requests of waits and queries, and what the reads of a thread or task wait for."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any
from urllib.parse import quote

import httpx

from penstock.client.answers import Result, read_result, required
from penstock.client.commit_position import LogEnd, TransactionOpen
from penstock.client.errors import NotPenstock, PenstockError
from penstock.client.exchange import Exchange, Reply, Send, persistent
from penstock.client.receipts import Receipt, parse_receipt

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_S = 30.0
_DEFAULT_URL = "http://127.0.0.1:8470"
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=4.0)
"""Each wait occupies a connection. The server closes idle ones after 5 s; the client does so before."""
_ARROW = "application/vnd.apache.arrow.stream"
_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def order_of(position: str) -> int:
    """A number that orders the positions of one source. Raises ValueError if it is no position."""
    parts = _LSN.fullmatch(position)
    if parts is not None:
        return (int(parts[1], 16) << 32) + int(parts[2], 16)
    if position.isascii() and position.isdigit():
        return int(position)
    raise ValueError(f"{position!r} is no position; one is like 0/16B3748")


@dataclass(frozen=True, slots=True)
class Floor:
    """What the reads of one thread or task wait for at least.

    `now`: there is a commit of which the position is not known, so that the next read waits for everything committed.
    `sources`: of the blocks that are open, whose positions are read before each read.
    """

    position: str | None = None
    now: bool = False
    sources: tuple[Any, ...] = ()

    def raised(self, position: str) -> Floor:
        """At least this position too. Raises ValueError if it is none."""
        if order_of(position) <= (-1 if self.position is None else order_of(self.position)):
            return self
        return replace(self, position=position)


_NOTHING = Floor()


class Requests:
    """The settings of a client, and its exchanges with the server. The token is kept by the HTTP client only."""

    def __init__(self, url: str | None, subscription: str | None) -> None:
        self.url = _checked_url(url or os.environ.get("PENSTOCK_URL") or _DEFAULT_URL)
        self._subscription = subscription
        # Of each client its own: clients of several servers may be used in one task. Clients are few and live long.
        self._floor: ContextVar[Floor] = ContextVar("penstock_floor", default=_NOTHING)

    def __repr__(self) -> str:
        return f"({self.url!r}, subscription={self._subscription!r})"

    @property
    def floor(self) -> Floor:
        """What the reads of this thread or task wait for."""
        return self._floor.get()

    @floor.setter
    def floor(self, floor: Floor) -> None:
        self._floor.set(floor)

    def wait(self, position: str | None, tables: Sequence[str] | None, timeout: float) -> Exchange[Receipt]:
        """A wait, as the clients document it."""
        deadline = monotonic() + timeout
        named = None if tables is None else [_table(name) for name in tables]
        name = yield from self._chosen(deadline)

        def send(left: float) -> Send:
            body: dict[str, Any] = {"timeout_ms": round(left * 1000)}
            if position is not None:
                body["position"] = position
            if named is not None:
                body["tables"] = named
            return Send("POST", f"/subscriptions/{name}/freshness-waits", body, patience_s=left)

        document = (yield from persistent(send, deadline)).document()
        try:
            receipt = parse_receipt(document["receipt"], document["waited_ms"] / 1000)
        except (KeyError, TypeError, ValueError):
            raise NotPenstock(f"The answer of {self.url} is no receipt. Check the address.") from None
        if position is None:
            self._resolve(receipt)
        return receipt

    def query(
        self,
        sql: str,
        freshness: str,
        timeout: float,
        time_limit: float,
        max_rows: int | None,
        read_point: str | None = None,
    ) -> Exchange[Result]:
        """A query, as the clients document it."""
        required("pyarrow", "pyarrow")  # before the statement runs, not after
        if read_point is not None:
            return (yield from self._query_point(sql, freshness, timeout, time_limit, max_rows, read_point))
        deadline = monotonic() + timeout
        name = yield from self._chosen(deadline)
        if self.floor.now and freshness not in {"any", "latest"}:
            yield from self.wait(None, None, timeout)
        mode, position = self._freshness(freshness)
        while True:

            def send(left: float, mode: str = mode, position: str | None = position) -> Send:
                wanted: dict[str, Any] = {"mode": mode}
                if mode != "any":
                    wanted["timeout_ms"] = round(left * 1000)
                if position is not None:
                    wanted["position"] = position
                body: dict[str, Any] = {"sql": sql, "freshness": wanted, "timeout_ms": round(time_limit * 1000)}
                if max_rows is not None:
                    body["max_rows"] = max_rows
                return Send("POST", f"/subscriptions/{name}/queries", body, _ARROW, left + time_limit)

            result = self._result((yield from persistent(send, deadline, resume=False)))
            if mode != "latest" or result.receipt is None:
                return result
            self._resolve(result.receipt)
            mode, position = "position", self.floor.position
            if position is None or order_of(position) <= order_of(result.receipt.position):
                return result

    def _query_point(
        self, sql: str, freshness: str, timeout: float, time_limit: float, max_rows: int | None, read_point: str
    ) -> Exchange[Result]:
        """A query at a read point, which waits for nothing."""
        if freshness != "any":
            raise ValueError("A read point has its own position; leave freshness out, or the read point.")
        deadline = monotonic() + timeout
        name = yield from self._chosen(deadline)
        body: dict[str, Any] = {"sql": sql, "read_point": read_point, "timeout_ms": round(time_limit * 1000)}
        if max_rows is not None:
            body["max_rows"] = max_rows

        def send(left: float) -> Send:
            return Send("POST", f"/subscriptions/{name}/queries", body, _ARROW, left + time_limit)

        return self._result((yield from persistent(send, deadline, resume=False)))

    def _freshness(self, wanted: str) -> tuple[str, str | None]:
        """Mode and position of a query that is asked for with `wanted`, and that also waits for the floor."""
        floor = self.floor
        if wanted == "latest" or (wanted == "any" and floor.now):
            return "latest", None
        if wanted != "any":
            floor = floor.raised(wanted)
        return ("any", None) if floor.position is None else ("position", floor.position)

    def _resolve(self, receipt: Receipt) -> None:
        """Everything committed was waited for: a commit of unknown position is at or before the receipt's position."""
        if self.floor.now:
            self.floor = replace(self.floor.raised(receipt.position), now=False)

    def at_least(self, position: str | None) -> None:
        """As the clients document it."""
        floor = self.floor
        self.floor = replace(_NOTHING, sources=floor.sources) if position is None else floor.raised(position)

    def open_block(self, source: object) -> None:
        """From here on, reads wait for the commits on this connection too."""
        self.floor = replace(self.floor, sources=(*self.floor.sources, source))

    def close_block(self) -> None:
        """End the innermost block."""
        self.floor = replace(self.floor, sources=self.floor.sources[:-1])

    def note(self, end: LogEnd | None, *, last: bool, failed: bool = False) -> None:
        """Wait for the commits before this end of the log; None: it could not be read, so that their position is unknown.

        `last`: the block ends; `failed`: by an exception, so that what encloses it decides about an open transaction.
        """
        if end is None:
            log.warning("the position after a commit could not be read; the next read waits for everything committed")
        elif not last or not end.uncommitted:
            self.floor = self.floor.raised(end.position)
            return
        elif not failed:
            raise TransactionOpen
        self.floor = replace(self.floor, now=True)

    def _result(self, reply: Reply) -> Result:
        position = reply.headers.get("Penstock-Position")
        kind = reply.headers.get("Content-Type", "").partition(";")[0]
        if position is None or kind != _ARROW:
            raise NotPenstock(
                f"The answer of {self.url} has no rows as Arrow. Check the address, and proxies on the way."
            )
        return read_result(reply.body, position)

    def _chosen(self, deadline: float) -> Exchange[str]:
        """The subscription as a part of a path: the named one, or the only one of the server."""
        if self._subscription is None:
            reply = yield from persistent(lambda left: Send("GET", "/subscriptions", patience_s=left), deadline)
            names = [str(item["name"]) for item in reply.document().get("items", [])]
            if len(names) != 1:
                found = f"there are several: {', '.join(sorted(names))}" if names else "there is none yet"
                raise PenstockError(f"Pass subscription=…, the name of a subscription; {found}.")
            self._subscription = names[0]
        return quote(self._subscription, safe="")


def http_options(url: str, token: str | None) -> dict[str, Any]:
    """Options of an httpx client for the server at `url`, with the token or that of the environment.

    Raises ValueError, without the token in it, if the token cannot be sent.
    """
    token = (token or os.environ.get("PENSTOCK_TOKEN") or "").strip()
    if not all("!" <= character <= "~" for character in token):
        raise ValueError(
            "The token contains a character that no token has. Check PENSTOCK_TOKEN, or the argument token."
        )
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return {"base_url": f"{url}/api/v1", "headers": headers, "limits": _LIMITS, "trust_env": False}


def _checked_url(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"The address of the server is invalid: {error}.") from None
    if parsed.scheme not in {"http", "https"} or not parsed.host or parsed.userinfo:
        raise ValueError("The address of the server is like http://127.0.0.1:8470, without user and password.")
    return url.rstrip("/")


def _table(name: str) -> dict[str, str]:
    schema, dot, table = name.partition(".")
    if not (schema and dot and table):
        raise ValueError(f"{name!r} is no table; one is like public.orders")
    return {"schema": schema, "name": table}
