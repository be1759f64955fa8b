"""Opens a PostgreSQL database as a target, with the settings of the engine."""

from __future__ import annotations

from engine.model.subscription import ConnectionSpec
from engine.net.copy_text import decode_copy_text
from engine.platform.failpoints import Failpoint, hit
from engine.platform.settings import EngineSettings
from engine.targets.postgres.target import PostgresTarget


def open_connection(connection: ConnectionSpec, settings: EngineSettings) -> PostgresTarget:
    return PostgresTarget(
        connection,
        decode_copy_text,
        lambda passage: hit(Failpoint(passage.value)),
        parts_from_rows=settings.parts_from_rows,
        query_memory=settings.query_memory_mb << 20,
    )
