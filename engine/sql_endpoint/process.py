"""The endpoint's process: it ends with the engine, and the engine starts it again if it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import ssl
import sys
from multiprocessing.connection import Connection

import structlog

from engine.platform.child_processes import die_with_parent, die_with_peer, name_process
from engine.sql_endpoint.answers import Answers
from engine.sql_endpoint.deliveries import Deliveries
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
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
    asyncio.run(_serve(control, settings))


async def _serve(control: Connection, settings: EndpointSettings) -> None:
    server = ServerApi(settings.url, settings.engine_token, settings.endpoint)
    answers = Answers(server, Deliveries(control))
    try:
        tls, certificate = _tls(settings)
        listener = Listener(server, answers, tls, certificate, settings.sessions)
        listening = await listener.listen(settings.host, settings.port)
    except (OSError, ssl.SSLError) as error:
        log.error("sql_endpoint_cannot_listen", host=settings.host, port=settings.port, error=str(error))
        sys.exit(CANNOT_LISTEN)
    address = listening.sockets[0].getsockname()
    control.send_bytes(json.dumps({"port": address[1]}).encode())
    log.info("sql_endpoint_listens", host=address[0], port=address[1], tls=tls is not None)
    await listening.serve_forever()


def _tls(settings: EndpointSettings) -> tuple[ssl.SSLContext | None, bytes | None]:
    if settings.tls_certificate is None:
        return None, None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    return context, settings.tls_certificate.read_bytes()
