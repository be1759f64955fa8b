"""SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, RFC 7677): verifiers of passwords, and the server's part of a login. Pure.

Of our own, since the library scramp (1.5) refuses the empty user name that libpq sends: PostgreSQL has it from the startup packet.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

PLAIN, PLUS = "SCRAM-SHA-256", "SCRAM-SHA-256-PLUS"
_ITERATIONS = 4096
"""PostgreSQL's default. Tokens are long and random, so more would protect nothing."""
_BINDING = "tls-server-end-point"


class LoginRefusedError(Exception):
    """The proof is wrong, or a message is malformed. The client is not given the difference."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """What a server keeps in place of a password."""

    iterations: int
    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def of(cls, password: str) -> Verifier:
        """A verifier with a new salt. `password`: ASCII, which SASLprep leaves as it is."""
        salt = secrets.token_bytes(16)
        salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, _ITERATIONS)
        stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
        return cls(_ITERATIONS, salt, stored_key, hmac.digest(salted, b"Server Key", "sha256"))

    @classmethod
    def mock(cls, user: str, key: bytes) -> Verifier:
        """A verifier that no password fits, always with the same salt for a user, so that clients cannot find out who exists."""
        salt = hmac.digest(key, user.encode(), "sha256")[:16]
        return cls(_ITERATIONS, salt, secrets.token_bytes(32), secrets.token_bytes(32))

    @classmethod
    def parse(cls, text: str) -> Verifier:
        """From the text form. Raises ValueError."""
        mechanism, rest, keys = text.split("$")
        iterations, salt = rest.split(":")
        stored_key, server_key = keys.split(":")
        if mechanism != PLAIN:
            raise ValueError(mechanism)
        return cls(int(iterations), *(base64.b64decode(part, validate=True) for part in (salt, stored_key, server_key)))

    def __str__(self) -> str:
        """The text form of PostgreSQL's `pg_authid`."""
        salt, stored_key, server_key = map(_encoded, (self.salt, self.stored_key, self.server_key))
        return f"{PLAIN}${self.iterations}:{salt}${stored_key}:{server_key}"


class ServerExchange:
    """One login: `first` with the client's first message, then `final`."""

    def __init__(self, verifier: Verifier, mechanism: str, binding: bytes | None, *, nonce: str | None = None) -> None:
        """`binding`: channel binding data of the connection, where it has them; then PLUS was offered too."""
        self._verifier = verifier
        self._mechanism = mechanism
        self._binding = binding
        self._nonce = nonce or base64.b64encode(secrets.token_bytes(18)).decode()
        self._header = ""
        self._client_first = ""
        self._server_first = ""

    def first(self, message: str) -> str:
        """The server's first message. Raises LoginRefusedError."""
        flag, _, rest = message.partition(",")
        identity, _, self._client_first = rest.partition(",")
        self._header = f"{flag},{identity},"
        if flag != (f"p={_BINDING}" if self._mechanism == PLUS else flag) or not self._flag_fits(flag):
            raise LoginRefusedError
        nonce = _fields(self._client_first).get("r", "")
        if not nonce or self._client_first.startswith("m="):
            raise LoginRefusedError
        self._nonce = nonce + self._nonce
        self._server_first = f"r={self._nonce},s={_encoded(self._verifier.salt)},i={self._verifier.iterations}"
        return self._server_first

    def final(self, message: str) -> str:
        """The server's final message, if the client has proved that it knows the password. Raises LoginRefusedError."""
        without_proof, _, proof = message.rpartition(",p=")
        fields = _fields(without_proof)
        bound = (self._binding or b"") if self._mechanism == PLUS else b""
        expected = _encoded(self._header.encode() + bound)
        if not hmac.compare_digest(fields.get("c", "").encode(), expected.encode()) or fields.get("r") != self._nonce:
            raise LoginRefusedError
        signed = f"{self._client_first},{self._server_first},{without_proof}".encode()
        signature = hmac.digest(self._verifier.stored_key, signed, "sha256")
        try:
            client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof, validate=True), signature, strict=True))
        except (binascii.Error, ValueError):
            raise LoginRefusedError from None
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), self._verifier.stored_key):
            raise LoginRefusedError
        return f"v={_encoded(hmac.digest(self._verifier.server_key, signed, 'sha256'))}"

    def _flag_fits(self, flag: str) -> bool:
        # "y": the client could bind the channel and believes that the server cannot. If PLUS was offered, someone removed the offer.
        return flag == "n" or (flag == "y" and self._binding is None) or self._mechanism == PLUS


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _fields(message: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.split(",") if part[1:2] == "="}
