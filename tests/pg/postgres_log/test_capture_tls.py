"""A source that is only reached through TLS: the stream and copies go through libpq there, and bring the same."""

from __future__ import annotations

import datetime
import ipaddress
import os
import select
import time
from collections.abc import Iterator

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.source import LogStream
from engine.model.subscription import ConnectionSpec, TableSpec
from engine.sources.postgres.connect import Connector
from engine.sources.postgres_log import slots
from engine.sources.postgres_log.source import PostgresSource
from engine.sources.postgres_log.stream import open_stream
from server.demo.binaries import PostgresMissingError, system
from server.demo.embedded import EmbeddedPostgres, server_folder

pytestmark = [pytest.mark.pg, pytest.mark.pg15]

NAME = TableName("public", "t")
TABLE = TableSpec(TableId("t1"), NAME, NAME)


def certificate() -> tuple[bytes, bytes]:
    """A self-signed certificate for 127.0.0.1 and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36500))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM), private


@pytest.fixture
def cluster() -> Iterator[EmbeddedPostgres]:
    try:
        installation = system(15)
    except PostgresMissingError as missing:
        pytest.skip(f"{missing}; needed for TLS (apt-get install postgresql-15)")
    cluster = EmbeddedPostgres(server_folder("penstock-test-tls-"), installation=installation)
    try:
        cluster.start()
        owner = cluster.data.stat()
        for name, content in zip(("server.crt", "server.key"), certificate(), strict=True):
            path = cluster.data / name
            path.write_bytes(content)
            path.chmod(0o600)
            os.chown(path, owner.st_uid, owner.st_gid)
        cluster.execute("ALTER SYSTEM SET ssl = on")
        hba = cluster.data / "pg_hba.conf"
        hba.write_text(hba.read_text().replace("host ", "hostssl "))
        cluster.restart()
        yield cluster
    finally:
        cluster.destroy()


def drain(stream: LogStream) -> None:
    for _ in range(200):
        stream.read(0.05)


def test_stream_and_copy_through_tls(cluster: EmbeddedPostgres) -> None:
    settings = {"host": cluster.host, "port": cluster.port, "database": "postgres", "user": cluster.user}
    trusted = {"sslmode": "verify-ca", "sslrootcert": str(cluster.data / "server.crt")}
    plain = PostgresSource(ConnectionSpec("shop", "postgres", {**settings, "sslmode": "disable"}))
    with pytest.raises(EngineFault) as raised:
        plain.log.current()
    assert raised.value.kind is FaultKind.SOURCE_AUTHENTICATION

    source = PostgresSource(ConnectionSpec("shop", "postgres", {**settings, **trusted}))
    try:
        cluster.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        cluster.execute("INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 30000) i")
        source.sent_tables.prepare([TABLE], "shop_1")
        schema = source.describe([TABLE])[NAME]
        with source.reader.create("shop_1") as snapshot:
            start = snapshot.position
            chunks = source.copies.splits(schema, TABLE, 1 << 20)
            pieces = [piece for chunk in chunks for piece in source.copies.read_split(chunk, snapshot.name)]
        assert len(set(b"".join(pieces).splitlines())) == 30000
        with pytest.raises(EngineFault) as raised:
            list(source.copies.read_split(chunks[0], snapshot.name))
        assert raised.value.kind is FaultKind.COPY_LOST

        stream = source.log.open_stream("shop_1", start, "penstock-shop-1")
        with pytest.raises(EngineFault) as raised:
            source.log.open_stream("shop_1", start, "penstock-shop-2")
        assert raised.value.kind is FaultKind.SLOT_IN_USE
        cluster.execute("UPDATE t SET v = repeat('y', 100)")
        cluster.execute("INSERT INTO t VALUES (0, repeat('z', 20000000))")
        now = source.log.now()
        inserted = updated = 0
        end = start
        deadline = time.monotonic() + 60
        while end < now:
            assert time.monotonic() < deadline
            stream.ask_position()
            chunk = stream.read(0.1)
            if chunk is not None:
                types = chunk.data[chunk.offsets[:-1]].tobytes()
                inserted, updated = inserted + types.count(b"I"), updated + types.count(b"U")
                end = chunk.wal_end
        assert (updated, inserted) == (30000, 1)
        source.reader.end_other("shop_1", "penstock-shop-1")
        with pytest.raises(EngineFault) as raised:
            drain(stream)
        assert raised.value.kind is FaultKind.SOURCE_UNREACHABLE
        stream.close()
    finally:
        source.close()


def test_a_session_through_tls_that_nobody_reads_is_kept(cluster: EmbeddedPostgres) -> None:
    cluster.execute("ALTER SYSTEM SET wal_sender_timeout = '1s'")
    cluster.execute("SELECT pg_reload_conf()")
    settings = {"host": cluster.host, "port": cluster.port, "database": "postgres", "user": cluster.user}
    trusted = {"sslmode": "verify-ca", "sslrootcert": str(cluster.data / "server.crt")}
    source = PostgresSource(ConnectionSpec("shop", "postgres", {**settings, **trusted}))
    try:
        cluster.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        source.sent_tables.prepare([TABLE], "shop_1")
        with source.reader.create("shop_1") as snapshot:
            start = snapshot.position
        stream = source.log.open_stream("shop_1", start, "penstock-shop-1")
        sending = "SELECT pid FROM pg_stat_replication"
        before = cluster.execute(sending)
        cluster.execute("INSERT INTO t SELECT i, repeat('z', 1000000) FROM generate_series(1, 40) i")
        cluster.execute("SELECT pg_sleep(4)")
        assert cluster.execute(sending) == before
        now, end, inserted = source.log.now(), start, 0
        deadline = time.monotonic() + 60
        while end < now:
            assert time.monotonic() < deadline
            stream.ask_position()
            chunk = stream.read(0.1)
            if chunk is not None:
                inserted += chunk.data[chunk.offsets[:-1]].tobytes().count(b"I")
                end = chunk.wal_end
        assert inserted == 40
        assert cluster.execute(sending) == before
        stream.close()
    finally:
        source.close()


def test_all_that_made_the_descriptor_readable_is_read_without_a_wait(cluster: EmbeddedPostgres) -> None:
    settings = {"host": cluster.host, "port": cluster.port, "database": "postgres", "user": cluster.user}
    trusted = {"sslmode": "verify-ca", "sslrootcert": str(cluster.data / "server.crt")}
    connector = Connector(ConnectionSpec("shop", "postgres", {**settings, **trusted}))
    cluster.execute("CREATE TABLE t (v text)")
    cluster.execute("ALTER TABLE t ALTER v SET STORAGE EXTERNAL")
    cluster.execute("CREATE PUBLICATION p FOR TABLE t")
    try:
        with slots.lasting(connector, "shop_1", two_phase=True) as snapshot:
            start = snapshot.position
        stream = open_stream(connector, "shop_1", start, "penstock-shop-1", ("p",), two_phase=True)
        for turn, size in enumerate((1, 100, 8000, 16_000, 17_000, 33_000, 70_000, 300_000, 20_000_000), 1):
            count = 1 if size > 100_000 else 50
            cluster.execute(f"INSERT INTO t SELECT repeat('x', {size} + n) FROM generate_series(1, {count}) AS n")
            types = b""
            # The source sends nothing by itself for half of wal_sender_timeout, 60 s: what is left unread here would stay so.
            while b"C" not in types:
                assert select.select([stream], [], [], 10.0)[0], (turn, size, types)
                while (chunk := stream.read(0.0)) is not None:
                    types += chunk.data[chunk.offsets[:-1]].tobytes()
            assert types.count(b"I") == count
        stream.close()
    finally:
        connector.close()
