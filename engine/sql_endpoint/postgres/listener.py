"""Connections of clients: TLS, login and cancel requests, then a session for each."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import secrets
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from engine.platform.scram import PLAIN, PLUS, LoginRefusedError, ServerExchange, Verifier
from engine.sql_endpoint.answers import Answers, Client
from engine.sql_endpoint.postgres import messages, parameters
from engine.sql_endpoint.postgres.errors import SqlError
from engine.sql_endpoint.postgres.messages import Fields, ProtocolError
from engine.sql_endpoint.postgres.parameters import SessionParameters
from engine.sql_endpoint.postgres.session import Session
from engine.sql_endpoint.server_api import ProblemError, ServerApi

log = structlog.get_logger(__name__)

_LOGIN_S = 30.0
"""Seconds in which a client has to log in."""
_BUFFERED_BYTES = 1 << 20
"""Bytes that wait for a slow client before reading for it pauses."""
# Kinds of authentication messages (PostgreSQL's manual, "Message Formats").
_SASL, _SASL_CONTINUE, _SASL_FINAL = 10, 11, 12
_WORD = {"not_found": "28P01", "token_without_verifier": "28P01", "server_unavailable": "57P03"}


@dataclass(slots=True)
class _Open:
    session: Session
    secret: int


class Listener:
    """Serves clients. One for a process."""

    def __init__(
        self, server: ServerApi, answers: Answers, tls: ssl.SSLContext | None, certificate: bytes | None, most: int
    ) -> None:
        """`certificate`: the PEM of `tls`, for channel binding. `most`: sessions at once."""
        self._server = server
        self._answers = answers
        self._tls = tls
        self._certificate = certificate
        self._most = most
        self._open: dict[int, _Open] = {}
        self._count = 0
        self._number = 0

    async def listen(self, host: str, port: int) -> asyncio.Server:
        """Raises OSError if the address cannot be used."""
        return await asyncio.start_server(self._connected, host, port, limit=messages.MOST_MESSAGE_BYTES)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=_BUFFERED_BYTES)
        self._count += 1
        try:
            await _Connection(self, reader, writer).serve()
        except (ProtocolError, SqlError) as error:
            failure = error if isinstance(error, SqlError) else SqlError("08P01", str(error), fatal=True)
            with contextlib.suppress(OSError):
                writer.write(messages.error_response(failure.fields()))
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError, ssl.SSLError, TimeoutError):
            pass
        except Exception as error:  # of one client; the others are not concerned
            log.exception("sql_session_failed", error=type(error).__name__)
        finally:
            self._count -= 1
            writer.close()


class _Connection:
    """One client from its first byte on."""

    def __init__(self, owner: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._owner = owner
        self._reader = reader
        self._writer = writer
        self._encrypted = False

    async def serve(self) -> None:
        async with asyncio.timeout(_LOGIN_S):
            started = await self._startup()
            if started is None:
                return
            session, number = await self._logged_in(started)
        try:
            await session.serve(self._reader)
        finally:
            del self._owner._open[number]

    async def _startup(self) -> dict[str, str] | None:
        """The parameters of the startup packet; None after a cancel request."""
        while True:
            code, fields = await messages.read_startup(self._reader)
            if code == messages.SSL_REQUEST:
                await self._encrypt()
            elif code == messages.GSS_REQUEST:
                self._writer.write(b"N")
                await self._writer.drain()
            elif code == messages.CANCEL_REQUEST:
                self._cancel(fields)
                return None
            elif code >> 16 == messages.PROTOCOL_3:
                return self._negotiated(code, fields)
            else:
                raise ProtocolError(f"protocol version {code >> 16}.{code & 0xFFFF} is not spoken here, 3.0 is")

    def _negotiated(self, code: int, fields: Fields) -> dict[str, str]:
        given = messages.parameters_of(fields)
        unknown = [name for name in given if name.startswith("_pq_.")]
        if code & 0xFFFF or unknown:
            self._writer.write(messages.negotiate_version(unknown))
        return given

    async def _encrypt(self) -> None:
        owner = self._owner
        if owner._tls is None or self._encrypted:
            self._writer.write(b"N")
            await self._writer.drain()
            return
        if self._reader._buffer:  # type: ignore[attr-defined]
            # Bytes before the handshake would pass for encrypted ones (CVE-2021-23214).
            raise ProtocolError("data before the TLS handshake")
        self._writer.write(b"S")
        await self._writer.drain()
        await self._writer.start_tls(owner._tls)
        self._encrypted = True

    def _cancel(self, fields: Fields) -> None:
        number, secret = fields.int32(), fields.int32()
        found = self._owner._open.get(number)
        if found is not None and hmac.compare_digest(struct.pack(">i", secret), struct.pack(">i", found.secret)):
            found.session.cancel()

    async def _logged_in(self, given: dict[str, str]) -> tuple[Session, int]:
        owner = self._owner
        user = given.get("user", "")
        if not user:
            raise SqlError("28000", "no user name in the startup packet", fatal=True)
        if owner._count > owner._most:
            raise SqlError("53300", f"there are {owner._most} sessions, which is the most", fatal=True)
        if owner._tls is not None and not self._encrypted:
            raise SqlError(
                "28000", "this endpoint accepts encrypted connections only", hint="Set sslmode=require.", fatal=True
            )
        verifier, settings = await self._login(user)
        if verifier is not None:
            await self._authenticate(user, verifier)
        values = SessionParameters()
        try:
            values.start(given, settings)
        except SqlError as error:
            error.fatal = True
            raise
        values.note("session_authorization", user)
        owner._number = owner._number % 0x7FFFFFFF + 1
        number, secret = owner._number, int.from_bytes(secrets.token_bytes(4), "big", signed=True)
        client = Client(given.get("database") or user, user, number, values.changed)
        session = Session(owner._answers, client, values, self._writer.write, self._writer.drain)
        owner._open[number] = _Open(session, secret)
        self._writer.write(messages.authentication(0))
        for name in parameters.REPORTED:
            self._writer.write(messages.parameter_status(name, values.values[name]))
        self._writer.write(messages.backend_key_data(number, secret))
        return session, number

    async def _login(self, user: str) -> tuple[Verifier | None, Mapping[str, str]]:
        """The verifier of the user's password; None: no password is needed. And the settings with which its sessions begin."""
        try:
            login = await self._owner._server.login(user=user)
            return None if login.scram is None else Verifier.parse(login.scram), login.settings
        except ProblemError as error:
            code = str(error.problem.get("code"))
            if code == "not_found":
                # As PostgreSQL does, an unknown user is asked for a password too, so that names cannot be tried out.
                return Verifier.mock(user, _MOCK_KEY), {}
            state = _WORD.get(code, "57P03")
            detail, hint = error.problem.get("detail"), error.problem.get("remedy")
            raise SqlError(state, str(detail), hint=None if hint is None else str(hint), fatal=True) from None

    async def _authenticate(self, user: str, verifier: Verifier) -> None:
        binding = None
        if self._encrypted and self._owner._certificate is not None:
            binding = _end_point(self._owner._certificate)
        names = [PLAIN] if binding is None else [PLUS, PLAIN]
        self._writer.write(messages.authentication(_SASL, b"".join(map(messages.text, names)) + b"\0"))
        await self._writer.drain()
        fields = await self._password()
        mechanism, size = fields.text(), fields.int32()
        first = fields.raw(size)
        if mechanism not in names:
            raise ProtocolError(f"the mechanism {mechanism} was not offered")
        exchange = ServerExchange(verifier, mechanism, binding)
        try:
            self._writer.write(messages.authentication(_SASL_CONTINUE, exchange.first(first.decode()).encode()))
            await self._writer.drain()
            fields = await self._password()
            self._writer.write(messages.authentication(_SASL_FINAL, exchange.final(fields.rest().decode()).encode()))
        except (LoginRefusedError, UnicodeDecodeError):
            hint = "The user is the name of a token, and the password its text."
            raise SqlError(
                "28P01", f'password authentication failed for user "{user}"', hint=hint, fatal=True
            ) from None

    async def _password(self) -> Fields:
        kind, fields = await messages.read_message(self._reader)
        if kind != b"p":
            raise ProtocolError("a password message was expected")
        return fields


_MOCK_KEY = secrets.token_bytes(32)


def _end_point(certificate: bytes) -> bytes:
    """Channel binding data of RFC 5929: the certificate's hash, by the hash of its signature, SHA-256 in place of MD5 and SHA-1."""
    parsed = x509.load_pem_x509_certificate(certificate)
    used = parsed.signature_hash_algorithm
    name = "sha256" if used is None or used.name in {"md5", "sha1"} else used.name
    return hashlib.new(name, parsed.public_bytes(Encoding.DER)).digest()
