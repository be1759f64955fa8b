"""Finds what prevents tables of a file from being captured by triggers, without changes in it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from engine.model.change_triggers import commented
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import RelationId, TableId, TableName
from engine.model.masks import MASK_KEY, mark_of
from engine.model.source import DiscoveredTable, Finding, Severity, SourceIdentity
from engine.model.subscription import OriginFilter, TableSpec
from engine.records.table_structure import key_problem
from engine.sources.sqlite.connect import Connector
from engine.sources.sqlite.preflight import declared_findings, discovered, file_findings, missing, unlogged, unopened
from engine.sources.sqlite_triggers.objects import in_transaction
from engine.sources.sqlite_triggers.registry import Found, file_id, is_installed, look, missing_layout, recording

_E, _I = Severity.ERROR, Severity.INFO
_WRITING = "Let the engine's user write to the file and to its folder, where SQLite keeps its journal."


def identify(connector: Connector) -> SourceIdentity:
    """The identity that the file got with the shadow log; before that, where the file is stored."""
    with connector.session() as connection:
        number = file_id(connection)
        device, inode = connector.file()
        return SourceIdentity(number or f"file-{device}-{inode}", 0, sqlite3.sqlite_version_info[0] * 1_000_000)


def check(connector: Connector, tables: Sequence[TableSpec], origin: OriginFilter) -> list[Finding]:
    """Findings about the file and these tables. A file that cannot be opened is a finding, not a fault."""
    try:
        with connector.reading() as connection:
            mark = mark_of(connector.secret(MASK_KEY))
            found = _origin(origin) + _file(connector, connection)
            present = {f.name: f for f in look(connection, [t.source.name for t in tables]).values()}
            for spec in tables:
                found += _table(present.get(spec.source), replace(spec, mask_mark=mark))
            return found + _planned(connector, connection, present.values())
    except EngineFault as fault:
        return [unopened(fault, {FaultKind.SOURCE_PRIVILEGE: _WRITING})]


def _origin(origin: OriginFilter) -> list[Finding]:
    if origin is OriginFilter.ANY:
        return []
    what = "triggers record changes of every origin"
    return [Finding(_E, FaultKind.ORIGIN_UNSUPPORTED.value, what, "Let `capture.origin` be `any`.")]


def _file(connector: Connector, connection: sqlite3.Connection) -> list[Finding]:
    found = []
    if not (os.access(connector.path, os.W_OK) and os.access(Path(connector.path).parent, os.W_OK)):
        what = "the file or its folder is not writable, so that no triggers can be created"
        found.append(Finding(_E, FaultKind.SOURCE_PRIVILEGE.value, what, _WRITING))
    return found + file_findings(connection, "writers wait while it is copied")


def _planned(connector: Connector, connection: sqlite3.Connection, tables: Iterable[Found]) -> list[Finding]:
    layout = missing_layout(connection)
    lacking = [found for found in tables if found.live.problem is None and not found.current]
    statements = in_transaction((*layout, *recording(connection, lacking)), connector.wait_s)
    if not statements:
        return []
    there = is_installed(connection)
    parts = [] if there else ["tables whose names begin with penstock_"]
    parts += ["an index of penstock_changes"] if there and layout else []
    parts += [f"triggers on {', '.join(str(found.name) for found in lacking)}"] if lacking else []
    what = f"{' and '.join(parts)} will be created in the file"
    code = "change_triggers_planned" if there else "change_triggers_absent"
    return [Finding(_I, code, what, "Nothing has to be done.", commented(statements))]


def _table(found: Found | None, spec: TableSpec) -> list[Finding]:
    if found is None:
        return [missing(spec)]
    if found.live.problem is not None:
        return [unlogged(found.live.problem)]
    problem = key_problem(found.structure, spec)
    if problem is not None:
        remedy = 'Add a primary key, or give "insert_only": true and updates and deletes are not followed.'
        return [Finding(_E, FaultKind.TABLE_NO_IDENTITY.value, f"{spec.source}: {problem}", remedy)]
    return declared_findings(found.structure, spec)


def discover_tables(connector: Connector) -> list[DiscoveredTable]:
    """Every table of the file, without Penstock's and SQLite's own."""
    with connector.reading() as connection:
        return [
            discovered(connection, each.live, _table(each, TableSpec(TableId("t0"), each.name, each.name)))
            for each in look(connection).values()
        ]


def names_standing(connector: Connector) -> dict[RelationId, TableName]:
    """The tables that a pattern can match."""
    with connector.reading() as connection:
        return {RelationId(f.relation): f.name for f in look(connection).values() if f.live.problem is None}
