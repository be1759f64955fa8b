"""What can be said of a target file and of names on it before anything is written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.shared import SharedInto
from engine.model.sizes import size
from engine.targets.duckdb.identifiers import folded, folded_name
from engine.targets.target_metadata import OWN_SCHEMA

Finding = tuple[str, str, str, str]
"""Severity, code, what, remedy."""

MAP_REMEDY = "map it to another name with `target` in the table's declaration"
_LITTLE_SPACE = 1024**3
_SYSTEM_SCHEMAS = frozenset({OWN_SCHEMA, "information_schema", "pg_catalog"})
_COLLISION = FaultKind.TABLE_NAME_COLLISION.value
_UNAVAILABLE = FaultKind.TARGET_UNAVAILABLE.value
_REMEDIES = {
    FaultKind.TARGET_LOCKED: "close the file in the other process; while Penstock runs, query through it",
    FaultKind.TARGET_DISK_FULL: "free space on the disk, or move the file to a larger one",
    FaultKind.TARGET_FOREIGN: "give the path of another file",
}


def is_reserved(target: TableName) -> bool:
    """Whether tables in this schema are not for replication."""
    return folded(target.schema) in _SYSTEM_SCHEMAS


def name_findings(tables: Sequence[TableName], file_stem: str) -> list[Finding]:
    """Names that cannot stand beside each other, or cannot stand at all."""
    findings: list[Finding] = []
    seen: dict[tuple[str, str], TableName] = {}
    for table in tables:
        other = seen.setdefault(folded_name(table), table)
        if other is not table:
            what = f"{other} and {table} are the same name to DuckDB, which ignores case"
            findings.append(("error", _COLLISION, what, f"{MAP_REMEDY} for one of them"))
        if is_reserved(table):
            what = f"the schema {table.schema!r} is not for replicated tables"
            findings.append(("error", _COLLISION, what, MAP_REMEDY))
    for schema in sorted({t.schema for t in tables if folded(t.schema) == folded(file_stem)}):
        what = f"the schema {schema!r} is named like the file; queries must write {schema}.{schema}.<table>"
        findings.append(("warning", "target_ambiguous_schema", what, "give the file another name"))
    return findings


def ambiguous_members(shared: Mapping[TableName, SharedInto], file_stem: str) -> list[Finding]:
    """Tables that a view cannot name: DuckDB keeps the name in it without the file's, and takes the schema for the file then."""
    return [
        (
            "error",
            FaultKind.SHARED_TABLE_CONFLICT.value,
            f"{place}: the schema is named like the file, and a view, which {into.relation} is, cannot read tables in it",
            'give the table a place in another schema with "target", or the file another name',
        )
        for place, into in shared.items()
        if folded(place.schema) == folded(file_stem)
    ]


def taken_finding(table: TableName) -> Finding:
    """For a name that a table or view of someone else holds."""
    what = f"a table or view {table} that Penstock did not make exists on the target"
    return ("error", _COLLISION, what, MAP_REMEDY)


def fault_finding(fault: EngineFault) -> Finding:
    """An error that kept the file from being looked at."""
    remedy = _REMEDIES.get(fault.kind, "check the path and the permissions of the file and its folder")
    return ("error", fault.kind.value, f"{fault.subject}: {fault.detail}", remedy)


def place_findings(path: Path, *, relative: bool = False) -> list[Finding]:
    """Whether the file can be made, or grow, where it is to lie; of a `relative` path, where that is."""
    if relative:
        what = f"the path is relative; the file lies at {path} on the engine's machine"
        remedy = "None needed, if it is to lie there; else give an absolute path."
        return [*place_findings(path), ("info", "target_path_relative", what, remedy)]
    folder = path.parent
    if not folder.is_dir():
        return [("error", _UNAVAILABLE, f"the folder {folder} does not exist", "make it, or change the path")]
    if not path.exists() and not os.access(folder, os.W_OK | os.X_OK):
        what = f"no permission to create a file in {folder}"
        return [("error", _UNAVAILABLE, what, "grant write permission on the folder, or change the path")]
    free = shutil.disk_usage(folder).free
    if free < _LITTLE_SPACE:
        what = f"only {size(free)} are free where the target's file lies"
        return [("warning", "target_little_space", what, "free space, or move the file to a larger disk")]
    return []


def standing(connection: Any) -> list[TableName]:
    """Every table and view of the file."""
    sql = (
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = current_database() AND NOT internal"
        " UNION ALL SELECT schema_name, view_name FROM duckdb_views()"
        " WHERE database_name = current_database() AND NOT internal"
    )
    return [TableName(schema, name) for schema, name in connection.execute(sql).fetchall()]
