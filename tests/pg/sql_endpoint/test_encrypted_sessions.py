"""Encrypted sessions: a certificate makes encryption mandatory, and passwords are bound to it."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from engine.platform.settings import EngineSettingsError, load_settings
from engine.sql_endpoint.postgres import messages
from tests.fixtures.channel import ADMIN
from tests.fixtures.service import running_service
from tests.pg.sql_endpoint.conftest import USER, Endpoint

pytestmark = [pytest.mark.pg, pytest.mark.xdist_group("sql_endpoint")]


def _certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "server.crt", folder / "server.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, private


@pytest.fixture(scope="module")
def encrypted(endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """The port of an endpoint with a certificate, and the certificate."""
    folder = tmp_path_factory.mktemp("encrypted")
    certificate, key = _certificate(folder)
    settings = {"sql_port": 0, "sql_tls_certificate": certificate, "sql_tls_key": key}
    with running_service(endpoint.service.database, folder, ["lines"], **settings) as service:
        assert service.engine.sql_endpoint is not None
        port = service.engine.sql_endpoint.wait_for_port(30)
        assert port is not None
        yield port, certificate


def _connect(port: int, **options: Any) -> psycopg.Connection[Any]:
    given = {"host": "localhost", "port": port, "user": USER, "password": ADMIN, "dbname": "shop", **options}
    return psycopg.connect(**given, autocommit=True)


@pytest.mark.parametrize("binding", ["require", "disable"])
def test_a_session_is_encrypted(encrypted: tuple[int, Path], binding: str) -> None:
    port, certificate = encrypted
    options = {"sslmode": "verify-full", "sslrootcert": str(certificate), "channel_binding": binding}
    with _connect(port, **options) as reader:
        assert reader.pgconn.ssl_in_use
        assert reader.execute("SELECT count(*) FROM lines").fetchone() == (100,)


def test_without_encryption_no_password_is_asked_for(encrypted: tuple[int, Path]) -> None:
    with pytest.raises(psycopg.OperationalError, match="encrypted connections only"):
        _connect(encrypted[0], sslmode="disable")


def test_bytes_before_the_handshake_end_the_connection(encrypted: tuple[int, Path]) -> None:
    with socket.create_connection(("127.0.0.1", encrypted[0]), timeout=10) as client:
        client.sendall(struct.pack(">ii", 8, messages.SSL_REQUEST) + b"\x16\x03\x01")
        assert client.recv(1) != b"S"


async def test_an_old_protocol_and_nonsense_are_refused(endpoint: Endpoint) -> None:
    for data in (
        struct.pack(">ii", 8, 2 << 16),
        struct.pack(">i", 4),
        struct.pack(">i", 1 << 30),
        b"GET / HTTP/1.1\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        writer.write(data)
        answered = await asyncio.wait_for(reader.read(), 20)
        assert answered[:1] == b"E"
        writer.close()
        await writer.wait_closed()


def test_an_address_for_others_needs_a_certificate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_ENGINE_TOKEN", "t" * 20)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.setenv("PENSTOCK_SQL_PORT", "5433")
    monkeypatch.setenv("PENSTOCK_SQL_HOST", "0.0.0.0")
    with pytest.raises(EngineSettingsError, match="PENSTOCK_SQL_TLS_CERTIFICATE"):
        load_settings()
    monkeypatch.setenv("PENSTOCK_SQL_TLS_CERTIFICATE", str(tmp_path / "server.crt"))
    assert load_settings().sql_port == 5433
