"""Who calls: the token of each call, as bearer token or as password of Basic, and the login that makes a bearer token of a password."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyarrow import flight

from engine.sql_endpoint.flight.errors import error_of, refused
from engine.sql_endpoint.server_api import Login, ProblemError

_KNOWN_S = 5.0
"""Seconds for which a token that was accepted is not asked for again; a revoked one is accepted no longer than that."""
_MOST_KNOWN = 1000
"""Tokens that are remembered so; beyond that, the one that was accepted first is asked for again. Not measured."""
_ANYBODY = "anybody"
"""Whom the server takes every client for if it runs without authentication."""
_REMEDY = "Send the token as 'Authorization: Bearer', or as the password of the user of its name."

Headers = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a call brings. `user`: None with a bearer token. Without anything, both are empty."""

    user: str | None
    token: str

    def __repr__(self) -> str:
        return f"Credentials({self.user!r})"


def credentials(headers: Headers) -> Credentials:
    """The credentials in a call's headers. Raises FlightUnauthenticatedError if they cannot be read."""
    given = [value for name, values in headers.items() if name.lower() == "authorization" for value in values]
    if not given:
        return Credentials(None, "")
    kind, _, rest = str(given[0]).strip().partition(" ")
    if kind.lower() == "bearer":
        return Credentials(None, rest.strip())
    if kind.lower() == "basic":
        try:
            # Some clients leave the padding out.
            text = rest.strip()
            user, found, token = base64.b64decode(text + "=" * (-len(text) % 4), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            user, found, token = "", "", ""
        if found:
            return Credentials(user, token)
    raise refused("unauthenticated", "the header 'Authorization' is neither Bearer nor Basic", _REMEDY)


class Logins:
    """Finds the token of a call. For any thread."""

    def __init__(self, find: Callable[[str], Login], monotonic: Callable[[], float] = time.monotonic) -> None:
        """`find`: the login of a token by its SHA-256 in hexadecimal digits; raises ProblemError."""
        self._find = find
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[float, Login]] = OrderedDict()

    def identified(self, given: Credentials) -> tuple[str, Login]:
        """Who calls: the digest of the token, and its login. Raises a Flight error if the token is not valid, or not the user's."""
        digest = hashlib.sha256(given.token.encode()).hexdigest()
        login = self._login(digest)
        without_authentication = login.scram is None and login.name == _ANYBODY
        is_own = given.user is None or hmac.compare_digest(given.user.encode(), login.name.encode())
        if not is_own and not without_authentication:
            raise refused("unauthenticated", "the token is not that of the user", _REMEDY)
        return digest, login

    def _login(self, digest: str) -> Login:
        with self._lock:
            until, login = self._known.get(digest, (0.0, None))
        if login is not None and self._monotonic() < until:
            return login
        asked = self._monotonic()
        try:
            login = self._find(digest)
        except ProblemError as error:
            with self._lock:
                self._known.pop(digest, None)
            if error.problem.get("code") in {"not_found", "token_without_verifier"}:
                raise refused("unauthenticated", "no valid token", _REMEDY) from None
            raise error_of(error.problem) from None
        with self._lock:
            self._known[digest] = asked + _KNOWN_S, login
            self._known.move_to_end(digest)
            while len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        return login


class Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """A call whose client is known. `identity`: the digest of its token; `login`: the name of that token and its run-time parameters;
    `headers`: by name in lower case."""

    def __init__(self, identity: str, login: Login, headers: Mapping[str, str], bearer: str | None) -> None:
        self.identity = identity
        self.user = login.name
        self.settings = login.settings
        self.headers = headers
        self._bearer = bearer

    def sending_headers(self) -> dict[str, str]:
        return {} if self._bearer is None else {"authorization": f"Bearer {self._bearer}"}


class CallerFactory(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets only calls with a valid token pass."""

    NAME = "caller"

    def __init__(self, logins: Logins) -> None:
        super().__init__()
        self._logins = logins

    def start_call(self, info: flight.CallInfo, headers: Headers) -> Caller:
        """Raises a Flight error."""
        given = credentials(headers)
        identity, login = self._logins.identified(given)
        shown = {name.lower(): str(values[0]) for name, values in headers.items() if values}
        is_login = info.method == flight.FlightMethod.HANDSHAKE and given.user is not None
        return Caller(identity, login, shown, given.token if is_login else None)


class HeaderLogin(flight.ServerAuthHandler):  # type: ignore[misc]
    """The handshake of a login by header: the middleware has done it already."""

    def authenticate(self, outgoing: object, incoming: object) -> None:
        del outgoing, incoming

    def is_valid(self, token: bytes) -> bytes:
        del token
        return b""
