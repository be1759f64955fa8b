"""The kinds of source and target. A new kind is a folder and an entry here.

A kind's drivers are imported when it is opened: the server reads these tables too.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

from engine.kinds import ConnectionKind, Imported, SourceKind, TargetKind
from engine.model.fault import EngineFault, FaultKind
from engine.model.masks import MASK_KEY, mark_of
from engine.model.source import Source, SourceTerms
from engine.model.subscription import FOLDER, CaptureSpec, ConnectionSpec, SubscriptionSpec
from engine.model.target import Target
from engine.platform.settings import EngineSettings
from engine.sources.adbc_queries.declaration import ADBC_QUERIES
from engine.sources.duckdb_queries.declaration import DUCKDB_QUERIES
from engine.sources.files_queries.declaration import FILES_QUERIES
from engine.sources.mariadb_queries.declaration import MARIADB_QUERIES
from engine.sources.mariadb_triggers.declaration import MARIADB_TRIGGERS
from engine.sources.odbc_queries.declaration import ODBC_QUERIES
from engine.sources.postgres_log.declaration import POSTGRES_LOG
from engine.sources.postgres_logs.declaration import POSTGRES_LOGS
from engine.sources.postgres_queries.declaration import POSTGRES_QUERIES
from engine.sources.postgres_triggers.declaration import POSTGRES_TRIGGERS
from engine.sources.sqlite_queries.declaration import SQLITE_QUERIES
from engine.sources.sqlite_triggers.declaration import SQLITE_TRIGGERS
from engine.targets.duckdb.declaration import DUCKDB
from engine.targets.postgres.declaration import POSTGRES

SOURCES: dict[tuple[str, str], SourceKind] = {
    (kind.connection.name, kind.name): kind
    for kind in (
        POSTGRES_LOG,
        POSTGRES_TRIGGERS,
        POSTGRES_QUERIES,
        POSTGRES_LOGS,
        MARIADB_TRIGGERS,
        MARIADB_QUERIES,
        SQLITE_TRIGGERS,
        SQLITE_QUERIES,
        DUCKDB_QUERIES,
        FILES_QUERIES,
        ADBC_QUERIES,
        ODBC_QUERIES,
    )
}
"""By kind of connection and of capture. The first one of a kind of connection is its usual capture."""
TARGETS: dict[str, TargetKind] = {kind.connection.name: kind for kind in (POSTGRES, DUCKDB)}
"""By kind of connection."""
CONNECTIONS: dict[str, ConnectionKind] = {
    name: replace(
        connection, captures=tuple(capture for kind, capture in SOURCES if kind == name), target=name in TARGETS
    )
    for name, connection in {
        **{kind.connection.name: kind.connection for kind in SOURCES.values()},
        **{kind.connection.name: kind.connection for kind in TARGETS.values()},
    }.items()
}
"""Every kind of connection, by name."""
OPEN_SNAPSHOT_FILE = Imported("engine.targets.duckdb.snapshot_file:DuckDbSnapshotFile")
"""Creates the DuckDB file of a snapshot in a folder."""
PRELOADED: tuple[str, ...] = (
    *(name for source in SOURCES.values() for name in source.preloaded),
    *(name for target in TARGETS.values() for name in target.preloaded),
)
"""The modules of all kinds, for processes that import them before they are forked or before they begin."""
DEFAULT_CAPTURE = POSTGRES_LOG.name
"""The capture of a stored subscription that names none."""


def import_kinds() -> None:
    """Import the code of every kind, so that its first use does not wait for it. May be called at any time."""
    for name in PRELOADED:
        import_module(name)


def source_kind(connection: ConnectionSpec) -> SourceKind:
    """How the changes of this connection are captured. Raises EngineFault(SOURCE_UNREACHABLE) if it cannot be a source."""
    captures = {capture: found for (kind, capture), found in SOURCES.items() if kind == connection.kind}
    capture = connection.capture.kind if connection.capture is not None else next(iter(captures), "")
    if capture not in captures:
        what = f"no source of kind {connection.kind!r} exists"
        if captures:
            what = f"a source of kind {connection.kind!r} cannot be captured by {capture!r}: {', '.join(captures)}"
        raise EngineFault(FaultKind.SOURCE_UNREACHABLE, connection.name, what)
    return captures[capture]


def by_triggers(connection: ConnectionSpec) -> ConnectionSpec:
    """The connection with the capture of its kind that uses triggers; without one if no capture of its kind does."""
    found = (capture for (kind, capture), one in SOURCES.items() if kind == connection.kind and one.capture.by_triggers)
    return replace(connection, capture=next(map(CaptureSpec, found), None))


def terms_of(connection: ConnectionSpec) -> SourceTerms:
    """The terms of this source; those of every source if this version does not know its kind."""
    try:
        return source_kind(connection).terms
    except EngineFault:
        return SourceTerms()


def open_source(connection: ConnectionSpec) -> Source:
    """Open a source by its kind. Task descriptors name this function as text: `engine.connectors:open_source`."""
    return source_kind(connection).open_source(connection)


def open_target(connection: ConnectionSpec, settings: EngineSettings) -> Target:
    """Open a target by its kind."""
    kind = TARGETS.get(connection.kind)
    if kind is None:
        raise EngineFault(
            FaultKind.TARGET_UNAVAILABLE, connection.name, f"no target of kind {connection.kind!r} exists"
        )
    return kind.open_target(connection, settings)


def is_unyielding(connection: ConnectionSpec) -> bool:
    """Whether a server on this machine executes this target's queries, at the same process priority as replication."""
    kind = TARGETS.get(connection.kind)
    return kind is not None and kind.computes_here is not None and kind.computes_here(connection)


def as_held(spec: SubscriptionSpec, cycles: Path) -> SubscriptionSpec:
    """The subscription with what its connections determine of its tables: `map_others_as` and `mask_mark`. Its capture keeps what it has
    to keep below the folder `cycles`."""
    kind = TARGETS.get(spec.target.kind)
    mapping = None if kind is None else kind.map_others_as
    mark = mark_of(spec.source.secrets.get(MASK_KEY))
    capture = spec.source.capture
    if capture is not None and source_kind(spec.source).capture.keeps_folder:
        settings = {**capture.settings, FOLDER: str(cycles / spec.reader)}
        spec = replace(spec, source=replace(spec.source, capture=replace(capture, settings=settings)))
    return replace(spec, tables=tuple(replace(t, map_others_as=mapping, mask_mark=mark) for t in spec.tables))
