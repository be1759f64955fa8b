"""Settings of the engine process: environment PENSTOCK_* or penstock.toml in PENSTOCK_HOME."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from engine.model.target import PARTS_FROM_ROWS
from engine.platform.network import is_loopback


class EngineSettingsError(ValueError):
    """A setting is invalid; the message names it and the allowed values, and never contains a secret."""


class EngineSettings(BaseSettings):
    """Sizes are in bytes unless the name says otherwise; times in milliseconds or seconds, by their suffix."""

    model_config = SettingsConfigDict(env_prefix="PENSTOCK_", extra="ignore")

    home: Path = Field(default=Path.home() / ".penstock", description="Data folder: queues and staging files.")
    url: str = Field(default="http://127.0.0.1:8470", description="The server's address.")
    engine_token: SecretStr = Field(default=SecretStr(""), description="Token with which the engine registers.")
    engine_name: str = Field(default="engine", description="Name shown for this engine.")
    spark_master: str = Field(default="local[2]", description="Spark master; local[n] runs on this machine.")
    duckdb_memory_mb: int = Field(
        default=1024, ge=64, description="Memory limit of each DuckDB target, in MiB; queries have their own."
    )
    duckdb_threads: int = Field(default=2, ge=1, description="Threads of each DuckDB target.")
    query_memory_mb: int = Field(
        default=512,
        ge=64,
        description="Memory in MiB of each process that runs a query; one for each running query, and two idle ones for each target.",
    )
    queries_at_once: int | None = Field(
        default=None,
        ge=1,
        le=256,
        description="Concurrent queries on this engine. Default: the number of processors, at least two; for a PostgreSQL target on the"
        " engine's machine one fewer, at least one. Further queries wait, up to their own time limit.",
    )
    read_points: int = Field(default=8, ge=0, le=64, description="Most read points on this engine at once.")
    read_point_ttl_s: float = Field(
        default=3600.0, gt=0, description="Longest time for which a read point may be kept."
    )
    read_point_bytes: int = Field(
        default=8 << 30,
        ge=1 << 20,
        description="A read point ends when its target has grown by this much since it was created: a DuckDB target's file, or the"
        " log of a PostgreSQL target.",
    )
    piece_bytes: int = Field(
        default=128 * 1024 * 1024,
        ge=64 * 1024,
        description="Bytes of log that one task works on; larger batches are divided into such pieces, open transactions into pieces of"
        " a fourth of that.",
    )
    parts_from_rows: int = Field(
        default=PARTS_FROM_ROWS,
        ge=1,
        description="Net rows from which a batch is written in parts, where its visibility is `relaxed`.",
    )
    copy_chunk_bytes: int = Field(
        default=32 * 1024 * 1024, ge=1 << 20, description="Bytes of a table that one copy task reads."
    )
    copy_stretch_bytes: int = Field(
        default=256 * 1024 * 1024,
        ge=1 << 16,
        description="Copy chunk size: larger tables are copied in chunks of this many bytes along their key, and continue with the next"
        " chunk after a crash.",
    )
    snapshot_timeout_s: float = Field(
        default=60.0, gt=0, description="How long a copy or cut waits for open transactions."
    )
    snapshots: Path | None = Field(
        default=None,
        description="Folder of snapshots as files, with one folder for each subscription; by default `snapshots` in the data folder.",
    )
    guard_interval_s: float = Field(
        default=3.0,
        gt=0,
        description="How often the source is checked: the log that it retains, and the tables that it sends.",
    )
    guard_patience_s: float = Field(
        default=60.0,
        ge=0,
        description="How long the log that the source retains must not have decreased before the guard drops the reader (on PostgreSQL,"
        " the slot).",
    )
    sql_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port of the SQL endpoint, which speaks PostgreSQL's protocol; without it, there is none. 0 takes a free one.",
    )
    sql_host: str = Field(
        default="127.0.0.1",
        description="Address of the SQL endpoint. Other than loopback addresses need `sql_tls_certificate`.",
    )
    sql_tls_certificate: Path | None = Field(
        default=None,
        description="Certificate chain of the SQL endpoint in PEM. With it, connections have to be encrypted.",
    )
    sql_tls_key: Path | None = Field(
        default=None, description="Private key of that certificate in PEM, if it is in another file."
    )
    sql_sessions: int = Field(default=200, ge=1, description="Most sessions of the SQL endpoint at once.")
    flight_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port on which the SQL endpoint speaks Arrow Flight SQL; without it, it does not. Address, certificate and the most"
        " statements at once are those of `sql_host`, `sql_tls_certificate`, `sql_tls_key` and `sql_sessions`. 0 takes a free one.",
    )
    position_write_s: float = Field(
        default=10.0, gt=0, description="How often, at most, a position without changes is written to the target."
    )

    @model_validator(mode="after")
    def _sql_endpoint_is_safe(self) -> EngineSettings:
        is_open = self.sql_port is not None or self.flight_port is not None
        if is_open and self.sql_tls_certificate is None and not is_loopback(self.sql_host):
            raise ValueError("PENSTOCK_SQL_HOST other than a loopback address needs PENSTOCK_SQL_TLS_CERTIFICATE")
        return self

    @property
    def query_places(self) -> int:
        """Number of concurrent queries. More than the number of processors would delay replication on the same machine."""
        return self.queries_at_once or max(2, os.cpu_count() or 0)

    @property
    def unyielding_places(self) -> int:
        """How many of them a server on this machine may execute. It has replication's priority, so one processor is left to replication."""
        return self.queries_at_once or max(1, (os.cpu_count() or 0) - 1)

    @property
    def queue_folder(self) -> Path:
        return self.home / "queue"

    @property
    def cycles_folder(self) -> Path:
        return self.home / "cycles"

    @property
    def snapshots_folder(self) -> Path:
        return (self.snapshots or self.home / "snapshots").expanduser().absolute()

    @property
    def staging_folder(self) -> Path:
        return self.home / "staging"


def load_settings() -> EngineSettings:
    """Load the settings of this process, and create the data folder if it is missing.

    Raises:
        EngineSettingsError: a value is invalid, the token is missing, or the data folder cannot be used.
    """
    try:
        settings = EngineSettings()
    except ValidationError as error:
        items = error.errors(include_input=False, include_url=False)
        wrong = [f"PENSTOCK_{'_'.join(map(str, item['loc'])).upper()}: {item['msg']}" for item in items]
        raise EngineSettingsError("; ".join(wrong)) from None
    if not settings.engine_token.get_secret_value():
        raise EngineSettingsError("PENSTOCK_ENGINE_TOKEN is missing; set it to the token that the server expects")
    if not settings.url.startswith(("http://", "https://")):
        raise EngineSettingsError("PENSTOCK_URL: write http://HOST:PORT of the server")
    try:
        settings.home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        trouble = error.strerror or type(error).__name__
    else:
        if os.access(settings.home, os.W_OK | os.X_OK):
            return settings
        trouble = "it is not writable for this user"
    raise EngineSettingsError(
        f"the data folder {settings.home} cannot be used ({trouble}); name another with PENSTOCK_HOME"
    )
