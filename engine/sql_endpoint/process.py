"""The endpoint's process: it ends with the engine, and the engine starts it again if it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import sys
from multiprocessing.connection import Connection

import pyarrow as pa
import structlog

from engine.platform.child_processes import die_with_parent, die_with_peer, name_process
from engine.platform.logs import configure_logs
from engine.sql_endpoint.answers import Answers
from engine.sql_endpoint.deliveries import Deliveries
from engine.sql_endpoint.flight.server import FlightSqlServer
from engine.sql_endpoint.postgres.listener import Listener
from engine.sql_endpoint.server_api import ServerApi
from engine.sql_endpoint.settings import EndpointSettings

log = structlog.get_logger(__name__)

_NICE = 10
"""As query processes: what it sends never takes a processor from replication."""
CANNOT_LISTEN = 78
"""Exit code if the address cannot be used or the certificate cannot be read (EX_CONFIG of sysexits.h): another start would not help."""


def main(control: Connection, settings: EndpointSettings) -> None:
    """Serve clients until the engine is gone."""
    die_with_parent()
    die_with_peer(control)
    name_process("penstock-sql")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    configure_logs()
    asyncio.run(_serve(control, settings))


async def _serve(control: Connection, settings: EndpointSettings) -> None:
    server = ServerApi(settings.url, settings.engine_token, settings.endpoint)
    answers = Answers(server, Deliveries(control))
    port = settings.port
    try:
        if port is not None:
            listening = await _postgres(server, answers, settings, port)
            _report_port(control, settings, "postgres", listening.sockets[0].getsockname()[1])
        port = settings.flight_port
        if port is not None:
            flight = _flight(server, answers, settings, port)
            _report_port(control, settings, "flight", flight.port)
    except (OSError, ssl.SSLError, pa.ArrowException) as error:
        log.error("sql_endpoint_cannot_listen", host=settings.host, port=port, error=str(error))
        sys.exit(CANNOT_LISTEN)
    await asyncio.Event().wait()


async def _postgres(server: ServerApi, answers: Answers, settings: EndpointSettings, port: int) -> asyncio.Server:
    """Serves PostgreSQL's protocol as long as what is returned exists."""
    tls, certificate = _tls(settings)
    listener = Listener(server, answers, tls, certificate, settings.sessions)
    return await listener.listen(settings.host, port)


def _flight(server: ServerApi, answers: Answers, settings: EndpointSettings, port: int) -> FlightSqlServer:
    """Serves Arrow Flight SQL as long as what is returned exists."""
    certificate = settings.tls_certificate
    tls = None if certificate is None else (certificate, settings.tls_key)
    return FlightSqlServer(server, answers, (settings.host, port), tls, settings.sessions)


def _report_port(control: Connection, settings: EndpointSettings, protocol: str, port: int) -> None:
    control.send_bytes(json.dumps({"protocol": protocol, "port": port}).encode())
    is_encrypted = settings.tls_certificate is not None
    log.info("sql_endpoint_listens", host=settings.host, port=port, tls=is_encrypted, protocol=protocol)


def _tls(settings: EndpointSettings) -> tuple[ssl.SSLContext | None, bytes | None]:
    if settings.tls_certificate is None:
        return None, None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    return context, settings.tls_certificate.read_bytes()
