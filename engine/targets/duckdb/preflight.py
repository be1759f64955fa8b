"""Checks a target file and names on it before anything is written."""

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
"""Free bytes of the disk below which a check warns: a batch and its checkpoint may need some hundred megabytes. Not measured."""
_SYSTEM_SCHEMAS = frozenset({OWN_SCHEMA, "information_schema", "pg_catalog"})
_COLLISION = FaultKind.TABLE_NAME_COLLISION.value
_UNAVAILABLE = FaultKind.TARGET_UNAVAILABLE.value
_REMEDIES = {
    FaultKind.TARGET_LOCKED: "close the file in the other process; while Penstock runs, query through it",
    FaultKind.TARGET_DISK_FULL: "free space on the disk, or move the file to a larger one",
    FaultKind.TARGET_FOREIGN: "give the path of another file",
}


def is_reserved(target: TableName) -> bool:
    """Whether the schema is reserved, so that no table is replicated into it."""
    return folded(target.schema) in _SYSTEM_SCHEMAS


def name_findings(tables: Sequence[TableName], file_stem: str) -> list[Finding]:
    """Names that conflict with each other or are not allowed."""
    findings: list[Finding] = []
    seen: dict[tuple[str, str], TableName] = {}
    for table in tables:
        other = seen.setdefault(folded_name(table), table)
        if other is not table:
            what = f"{other} and {table} are the same name to DuckDB, which ignores case"
            findings.append(("error", _COLLISION, what, f"{MAP_REMEDY} for one of them"))
        if is_reserved(table):
            what = f"the schema {table.schema!r} is reserved"
            findings.append(("error", _COLLISION, what, MAP_REMEDY))
    for schema in sorted({t.schema for t in tables if folded(t.schema) == folded(file_stem)}):
        what = f"the schema {schema!r} has the same name as the file; queries must use {schema}.{schema}.<table>"
        findings.append(("warning", "target_ambiguous_schema", what, "give the file another name"))
    return findings


def ambiguous_members(shared: Mapping[TableName, SharedInto], file_stem: str) -> list[Finding]:
    """Tables that a view cannot reference: DuckDB omits the catalog from names in views, and a schema with the file's name is then
    ambiguous."""
    return [
        (
            "error",
            FaultKind.SHARED_TABLE_CONFLICT.value,
            f"{place}: the schema has the same name as the file, and a view, such as {into.relation}, cannot read tables in it",
            'give the table another schema with "target", or rename the file',
        )
        for place, into in shared.items()
        if folded(place.schema) == folded(file_stem)
    ]


def taken_finding(table: TableName) -> Finding:
    """The finding for a name used by a table or view that is not ours."""
    what = f"a table or view {table} that Penstock did not create exists on the target"
    return ("error", _COLLISION, what, MAP_REMEDY)


def fault_finding(fault: EngineFault) -> Finding:
    """The finding for an error because of which the file could not be examined."""
    remedy = _REMEDIES.get(fault.kind, "check the path and the permissions of the file and its folder")
    return ("error", fault.kind.value, f"{fault.subject}: {fault.detail}", remedy)


def place_findings(path: Path, *, relative: bool = False) -> list[Finding]:
    """Whether the file can be created or extended; for a `relative` path also its absolute path."""
    if relative:
        what = f"the path is relative; the file is {path} on the engine's machine"
        remedy = "None needed if this is intended; otherwise give an absolute path."
        return [*place_findings(path), ("info", "target_path_relative", what, remedy)]
    folder = path.parent
    if not folder.is_dir():
        return [("error", _UNAVAILABLE, f"the folder {folder} does not exist", "create it, or change the path")]
    if not path.exists() and not os.access(folder, os.W_OK | os.X_OK):
        what = f"no permission to create a file in {folder}"
        return [("error", _UNAVAILABLE, what, "grant write permission on the folder, or change the path")]
    free = shutil.disk_usage(folder).free
    if free < _LITTLE_SPACE:
        what = f"only {size(free)} are free on the disk of the target's file"
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
