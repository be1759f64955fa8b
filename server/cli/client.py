"""A small client of the REST interface, for the commands and the demonstration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

Document = dict[str, Any]

_PREFIX = "/api/v1"


class ProblemError(Exception):
    """The server answered with a problem document (RFC 9457)."""

    def __init__(self, status: int, document: Document) -> None:
        super().__init__(f"{status} {document.get('code', '')}: {document.get('detail') or document.get('title', '')}")
        self.status = status
        self.document = document

    @property
    def code(self) -> str:
        return str(self.document.get("code", ""))


class NoServerError(Exception):
    """No HTTP server answered at the address, or an answer was cut short."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"no server answers at {url}: {why}")
        self.url = url
        self.why = why


def segment(name: str) -> str:
    """A name, quoted as one segment of a path."""
    return quote(name, safe="")


class Api:
    """Calls under `/api/v1`. Raises ProblemError and NoServerError. Thread-safe."""

    def __init__(self, url: str, token: str | None, *, timeout_s: float = 30.0) -> None:
        self.url = url.rstrip("/")
        headers = {"Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s, limits=limits, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> httpx.Response:
        """Send one request; answers with a status below 400 are returned."""
        try:
            response = self._http.request(
                method,
                path if path.startswith(("/livez", "/readyz")) else _PREFIX + path,
                json=body,
                params=dict(query or {}),
                headers=dict(headers or {}),
                timeout=timeout_s if timeout_s is not None else httpx.USE_CLIENT_DEFAULT,
            )
        except httpx.TransportError as error:
            raise NoServerError(self.url, str(error) or type(error).__name__) from error
        if response.status_code >= 400:
            raise ProblemError(response.status_code, _problem(response))
        return response

    def stream(
        self, method: str, path: str, body: Document | None, *, headers: Mapping[str, str], timeout_s: float
    ) -> Iterator[bytes]:
        """The body of an answer in chunks as they arrive. Also raises ProblemError if the answer is cut short."""
        begun = False
        try:
            with self._http.stream(method, _PREFIX + path, json=body, headers=headers, timeout=timeout_s) as response:
                if response.status_code >= 400:
                    response.read()
                    raise ProblemError(response.status_code, _problem(response))
                begun = True
                yield from response.iter_bytes()
        except httpx.TransportError as error:
            if begun:
                raise ProblemError(502, _BROKEN_OFF) from error
            raise NoServerError(self.url, str(error) or type(error).__name__) from error

    def get(self, path: str, **query: str | int) -> Document:
        return _document(self.send("GET", path, query=query))

    def put(self, path: str, body: Document) -> Document:
        return _document(self.send("PUT", path, body))

    def patch(self, path: str, body: Document) -> Document:
        return _document(self.send("PATCH", path, body))

    def post(self, path: str, body: Document | None = None, *, timeout_s: float | None = None) -> Document:
        return _document(self.send("POST", path, body if body is not None else {}, timeout_s=timeout_s))

    def delete(self, path: str, **query: str | int) -> Document:
        return _document(self.send("DELETE", path, query=query))

    def find(self, path: str) -> Document | None:
        """GET; None for a 404."""
        try:
            return self.get(path)
        except ProblemError as problem:
            if problem.status == 404:
                return None
            raise

    def items(self, path: str, **query: str | int) -> Iterator[Document]:
        """All items of a paged list."""
        page = dict(query)
        while True:
            document = self.get(path, **page)
            yield from document["items"]
            token = document.get("next_page_token")
            if not token:
                return
            page["page_token"] = token

    def alive(self) -> bool:
        """Whether the server answers `/livez`."""
        try:
            self.send("GET", "/livez", timeout_s=2.0)
        except (NoServerError, ProblemError):
            return False
        return True


_BROKEN_OFF = {
    "title": "The answer broke off",
    "status": 502,
    "code": "answer_broke_off",
    "detail": "What came is not all: there are more rows than max_rows, the query failed or reached a limit, or the connection was lost.",
    "remedy": "Throw away what came. Give the query more time or no max_rows, or ask for less; the server's log names the reason.",
}


def _document(response: httpx.Response) -> Document:
    if response.status_code == 204 or not response.content:
        return {}
    document: Document = response.json()
    return document


def _problem(response: httpx.Response) -> Document:
    try:
        document = response.json()
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    return {
        "title": "The answer is not from Penstock",
        "status": response.status_code,
        "code": "not_penstock",
        "detail": f"HTTP {response.status_code} without a problem document",
        "remedy": "Check the address: something else may listen there, or a proxy answered in its place.",
    }
