"""Catalog of source and target kinds. A new kind is a folder and an entry here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.model.fault import EngineFault, FaultKind
from engine.model.source import Source
from engine.model.subscription import ConnectionSpec, SubscriptionSpec
from engine.model.target import Target
from engine.net.copy_text import decode_copy_text
from engine.platform.failpoints import Failpoint, hit
from engine.platform.settings import EngineSettings
from engine.postgres.sessions import is_on_this_machine
from engine.sources.postgres_log import frames
from engine.sources.postgres_log.source import PostgresSource
from engine.targets.duckdb.target import open_target as open_duckdb
from engine.targets.postgres import PostgresTarget

SOURCES: dict[tuple[str, str], Callable[[ConnectionSpec], Source]] = {("postgres", "postgres_log"): PostgresSource}
"""By kind of connection and of capture. The first line of a kind of connection is its usual capture."""
SOURCE_KERNELS: tuple[Callable[[], None], ...] = (frames.warm,)
"""Compile the numba kernels of the kinds of source; each may be called at any time."""
TARGETS: dict[str, Callable[[ConnectionSpec, EngineSettings], Target]] = {
    "duckdb": lambda connection, settings: open_duckdb(
        replace(
            connection,
            settings={
                "memory_limit": f"{settings.duckdb_memory_mb}MiB",
                "threads": settings.duckdb_threads,
                "query_memory": settings.query_memory_mb << 20,
                **connection.settings,
            },
        ),
        settings.home,
        decode_copy_text,
    ),
    "postgres": lambda connection, settings: PostgresTarget(
        connection,
        decode_copy_text,
        lambda passage: hit(Failpoint(passage.value)),
        parts_from_rows=settings.parts_from_rows,
        query_memory=settings.query_memory_mb << 20,
    ),
}
_MAPPINGS = {"postgres": "source"}
"""`TableSpec.map_others_as` by kind of target, for targets whose columns are not held by their type."""
_COMPUTES_HERE: dict[str, Callable[[ConnectionSpec], bool]] = {"postgres": is_on_this_machine}
"""By kind of target: whether a separate server on this machine executes its queries."""


def open_source(connection: ConnectionSpec) -> Source:
    """Open a source by its kind. Task descriptors name this function as text: `engine.connectors:open_source`."""
    captures = {capture: opener for (kind, capture), opener in SOURCES.items() if kind == connection.kind}
    capture = connection.capture.kind if connection.capture is not None else next(iter(captures), "")
    if capture not in captures:
        what = f"no source of kind {connection.kind!r} exists"
        if captures:
            what = f"a source of kind {connection.kind!r} cannot be captured by {capture!r}: {', '.join(captures)}"
        raise EngineFault(FaultKind.SOURCE_UNREACHABLE, connection.name, what)
    return captures[capture](connection)


def open_target(connection: ConnectionSpec, settings: EngineSettings) -> Target:
    """Open a target by its kind."""
    opener = TARGETS.get(connection.kind)
    if opener is None:
        raise EngineFault(
            FaultKind.TARGET_UNAVAILABLE, connection.name, f"no target of kind {connection.kind!r} exists"
        )
    return opener(connection, settings)


def is_unyielding(connection: ConnectionSpec) -> bool:
    """Whether a server on this machine executes this target's queries, at the same process priority as replication."""
    computes_here = _COMPUTES_HERE.get(connection.kind)
    return computes_here is not None and computes_here(connection)


def as_held(spec: SubscriptionSpec) -> SubscriptionSpec:
    """The subscription with its tables' `map_others_as` set for its kind of target."""
    mapping = _MAPPINGS.get(spec.target.kind)
    return replace(spec, tables=tuple(replace(table, map_others_as=mapping) for table in spec.tables))
