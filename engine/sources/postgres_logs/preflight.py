"""Preflight checks of a partitioned source: those of each node, and whether the nodes fit together. Read-only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.model.shown_column import why_hidden
from engine.model.source import DiscoveredTable, Finding, Severity
from engine.model.subscription import OriginFilter, TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.records.catalog_table import nodes_problem
from engine.sources.postgres_log import slots
from engine.sources.postgres_logs.node_tables import NodeTable, NodeTables, same_number
from engine.sources.postgres_logs.nodes import Node, Nodes
from engine.sources.postgres_logs.own_table import OWN_TABLE_REMEDY, unfit

_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO
_NOT_HERE = frozenset({"ddl_capture_absent", "ddl_capture_installed", "ddl_capture_outdated"})
"""Findings of a node that do not concern a node of several: DDL messages are not used."""
_STATE = """
SELECT pg_is_in_recovery(), current_setting('max_prepared_transactions')::int, system_identifier::text,
       (SELECT oid FROM pg_database WHERE datname = current_database())
FROM pg_control_system()
"""


def check(
    nodes: Nodes,
    tables: NodeTables,
    specs: Sequence[TableSpec],
    reader: str | None,
    origin: OriginFilter,
) -> list[Finding]:
    """Findings about the nodes and these tables. A node that cannot be reached is a finding, not a fault."""
    found: list[Finding] = []
    if origin is not OriginFilter.ANY:
        what = "changes of several nodes cannot be filtered by their origin"
        found.append(Finding(_E, FaultKind.ORIGIN_UNSUPPORTED.value, what, "Let `capture.origin` be `any`."))
    try:
        there = tables.read([spec.source for spec in specs])
    except EngineFault:
        there = {}  # The checks of the node say why.

    def ask(node: Node) -> list[Finding]:
        nowhere = [spec for spec in specs if spec.source not in there and node.number == 0]
        own = [spec for spec in specs if spec.source in there and node.number in there[spec.source].parts]
        return [
            replace(each, what=f"node {node.name}: {each.what}")
            for each in node.source.preflight([*own, *nowhere], None if reader is None else node.slot(reader))
            if each.code not in _NOT_HERE
        ]

    for each in nodes.each(ask):
        found += each
    if not any(finding.severity is _E for finding in found):
        found += _states(nodes)
    found += _of_tables(there)
    found += _of_keys(there, specs)
    return found


def of_own_rows(
    nodes: Nodes, tables: NodeTables, specs: Sequence[TableSpec], own: tuple[TableName, str] | None
) -> list[Finding]:
    """Whether rows of this table can name global transactions by this column; None: none are meant to."""
    if own is None:
        return []
    table, column = own
    try:
        problem = unfit(table, column, tables.read([table]), nodes.names)
    except EngineFault:
        return []  # The checks of the node say why.
    spec = next((spec for spec in specs if spec.source == table), None)
    if problem is None and spec is not None:
        problem = why_hidden(spec, column)
    if problem is None:
        return []
    what = f"{table}, whose rows name global transactions, {problem}"
    return [Finding(_E, FaultKind.OWN_TABLE_UNFIT.value, what, OWN_TABLE_REMEDY)]


def _of_tables(there: dict[TableName, NodeTable]) -> list[Finding]:
    code = FaultKind.TABLE_NODES_DIFFER.value
    found = [
        Finding(_E, code, f"{name}: {each.problem}", _remedy(each))
        for name, each in there.items()
        if each.problem is not None
    ]
    for name, other in same_number(there).items():
        what = f"{name} has the same number in the merged log as {other}"
        found.append(Finding(_E, code, what, "Replicate one of them by another subscription, or rename it."))
    return found


def _of_keys(there: dict[TableName, NodeTable], specs: Sequence[TableSpec]) -> list[Finding]:
    """What no node can see by itself: that rows of several nodes could not be compared by their keys."""
    found = []
    for spec in specs:
        table = there.get(spec.source)
        problem = None if table is None or table.problem is not None else nodes_problem(table.whole, spec)
        if problem is not None:
            remedy = "Change the key, or leave the table out of the subscription."
            found.append(Finding(_E, FaultKind.TABLE_COLUMNS_UNFIT.value, f"{spec.source}: {problem}", remedy))
    return found


def _remedy(table: NodeTable) -> str:
    if any(part.partitioned for part in table.parts.values()):
        return "Name its partitions as tables, which may go into one shared table on the target."
    return "Give the table the same structure on each node that has it."


def _states(nodes: Nodes) -> list[Finding]:
    """What the nodes have to be: databases of their own, which take writes and send what is prepared."""
    found = []
    databases: dict[tuple[str, int], str] = {}
    for node, (recovers, prepared, system_id, database, version) in zip(nodes, nodes.each(_state), strict=True):
        try:
            slots.require_two_phase(node.name, version)
        except EngineFault as fault:
            what = f"node {node.name}: {fault.detail}"
            found.append(Finding(_E, fault.kind.value, what, "Upgrade the node to PostgreSQL 15 or newer."))
        if recovers:
            what = f"node {node.name} is a standby: the end of its log cannot be forced, and slots on it may be lost"
            found.append(Finding(_E, FaultKind.SOURCE_PRIVILEGE.value, what, "Connect the node's primary."))
        if prepared == 0:
            what = f"node {node.name}: max_prepared_transactions is 0, so it takes no part in global transactions"
            found.append(Finding(_I, "no_prepared_transactions", what, "Set it if transactions span several nodes."))
        other = databases.setdefault((system_id, database), node.name)
        if other != node.name:
            what = f"nodes {other} and {node.name} are the same database"
            found.append(Finding(_E, FaultKind.SOURCE_UNREACHABLE.value, what, "Remove one of them from the nodes."))
    return found


def _state(node: Node) -> tuple[bool, int, str, int, int]:
    with node.connector.session() as connection:
        return (*_row(connection), connection.info.server_version)


def _row(connection: PostgresConnection) -> tuple[bool, int, str, int]:
    recovers, prepared, system_id, database = connection.execute(_STATE).fetchall()[0]
    return bool(recovers), int(prepared), str(system_id), int(database)


def discover(nodes: Nodes, tables: NodeTables) -> list[DiscoveredTable]:
    """Every table of any node, with what prevents it from being replicated."""
    found: dict[TableName, DiscoveredTable] = {}
    for node, each in zip(nodes, nodes.each(lambda node: node.source.discover()), strict=True):
        for table in each:
            problems = tuple(replace(p, what=f"node {node.name}: {p.what}") for p in table.problems)
            known = found.get(table.name)
            found[table.name] = (
                replace(table, problems=problems)
                if known is None
                else replace(
                    known,
                    rows_estimate=known.rows_estimate + table.rows_estimate,
                    bytes=known.bytes + table.bytes,
                    problems=(*known.problems, *problems),
                )
            )
    differ = {
        name: Finding(_E, FaultKind.TABLE_NODES_DIFFER.value, f"{name}: {each.problem}", _remedy(each))
        for name, each in tables.read(list(found)).items()
        if each.problem is not None
    }
    return [
        replace(table, problems=(*table.problems, differ[name])) if name in differ else table
        for name, table in sorted(found.items())
    ]
