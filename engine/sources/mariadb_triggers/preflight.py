"""Finds what prevents tables of MariaDB from being captured by triggers, without changes on the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine.model.change_triggers import commented
from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.masks import MASK_KEY, mark_of
from engine.model.source import DiscoveredTable, Finding, Severity, SourceIdentity
from engine.model.subscription import OriginFilter, TableSpec
from engine.sources.mariadb.catalog import SHADOW_SCHEMA
from engine.sources.mariadb.connect import Connector, MariaDbConnection, number_of, quoted, rows
from engine.sources.mariadb.preflight import discovered, unreachable, unselectable, version_findings, version_number
from engine.sources.mariadb_triggers.cascade_triggers import underived
from engine.sources.mariadb_triggers.catalog import TriggeredTable, load_schema, load_tables
from engine.sources.mariadb_triggers.change_triggers import PRIVILEGES, install_layout, planned_statements, why_unfit
from engine.sources.mariadb_triggers.objects import is_installed

_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO
_SERVER = """
SELECT VERSION(), CURRENT_USER(), @@log_bin, @@log_bin_trust_function_creators, @@binlog_format, @@innodb_flush_log_at_trx_commit,
    @@read_only
"""
_GRANTED = """
SELECT privilege_type, NULL, NULL FROM information_schema.user_privileges WHERE grantee = %s
UNION ALL SELECT privilege_type, table_schema, NULL FROM information_schema.schema_privileges WHERE grantee = %s
UNION ALL SELECT privilege_type, table_schema, table_name FROM information_schema.table_privileges WHERE grantee = %s
"""


def identify(connector: Connector) -> SourceIdentity:
    """The shadow log's own identity, so that a server that was restored, or another one, is recognized. The shadow log is created if it
    does not exist."""
    with connector.session(here=PRIVILEGES) as connection:
        install_layout(connection)
        log, version = rows(connection, "SELECT log, VERSION() FROM penstock.control")[0]
        return SourceIdentity(str(log), 0, version_number(version))


def discover_tables(connector: Connector) -> list[DiscoveredTable]:
    """Every table of the connection's database, with the reasons that prevent its capture."""
    with connector.session() as connection:
        tables = load_schema(connection, connector.database)
    return [
        discovered(table, table.structure(), _table_findings(table, TableSpec(TableId(""), name, name)))
        for name, table in sorted(tables.items())
    ]


def check(connector: Connector, tables: Sequence[TableSpec], origin: OriginFilter) -> list[Finding]:
    """Findings about the source and these tables. A failed connection is a finding, not a fault."""
    try:
        with connector.session() as connection:
            server = rows(connection, _SERVER)[0]
            unfit = version_findings(str(server[0]))
            if unfit:
                return unfit
            found = _origin(origin) + _server(connection, server)
            there = load_tables(connection, [table.source for table in tables])
            mark = mark_of(connector.secret(MASK_KEY))
            for spec in tables:
                found += _findings(there, replace(spec, mask_mark=mark))
            fit = [table for table in there.values() if why_unfit(table) is None and underived(table) is None]
            found += _planned(connection, fit) + _on_parents(fit)
            every = {*there, *(parent for table in fit for parent in table.structure().parents)}
            return found + _rights(connection, str(server[1]), sorted(every))
    except EngineFault as fault:
        return [unreachable(fault)]


def _origin(origin: OriginFilter) -> list[Finding]:
    if origin is OriginFilter.ANY:
        return []
    what = "triggers record changes of every origin"
    return [Finding(_E, FaultKind.ORIGIN_UNSUPPORTED.value, what, "Let `capture.origin` be `any`.")]


def _server(connection: MariaDbConnection, server: Sequence[object]) -> list[Finding]:
    _, _, logs, trusts, binlog_format, flush, read_only = server
    found = []
    try:
        rows(connection, "SELECT 1 FROM information_schema.innodb_trx LIMIT 1")
    except Exception as error:
        if number_of(error) is None:
            raise
        what = "the user lacks the privilege PROCESS, by which open transactions and replaced tables are found"
        remedy = "GRANT PROCESS ON *.* to the user."
        found.append(Finding(_E, FaultKind.SOURCE_PRIVILEGE.value, what, remedy))
    if logs and binlog_format == "STATEMENT":
        what = "binlog_format is STATEMENT, with which the changes of a window cannot be marked"
        found.append(Finding(_E, FaultKind.SOURCE_PRIVILEGE.value, what, "SET GLOBAL binlog_format = 'MIXED', or ROW."))
    if logs and not trusts:
        what = "the binary log is on and log_bin_trust_function_creators is off, so only users with SUPER may create triggers"
        found.append(
            Finding(
                _W, FaultKind.CHANGE_TRIGGERS_PRIVILEGE.value, what, "SET GLOBAL log_bin_trust_function_creators = 1."
            )
        )
    if read_only:
        what = "the server is read-only; a shadow log is written by it"
        found.append(Finding(_E, FaultKind.SOURCE_PRIVILEGE.value, what, "Connect to the primary server."))
    if int(str(flush)) != 1:
        what = "innodb_flush_log_at_trx_commit is not 1: after a crash of its machine the source may lack commits that were replicated"
        remedy = "SET GLOBAL innodb_flush_log_at_trx_commit = 1, or reload the subscription after such a crash."
        found.append(Finding(_W, "source_flush", what, remedy))
    return found


def _planned(connection: MariaDbConnection, tables: Sequence[TriggeredTable]) -> list[Finding]:
    """The statements that install the shadow log and the triggers of these tables, if any are missing."""
    statements = commented(planned_statements(connection, [table.name for table in tables]))
    if not statements:
        return []
    if is_installed(connection):
        what = "triggers will be created on tables that have none, or whose triggers do not record them as they are now"
        return [Finding(_I, "change_triggers_planned", what, "Nothing has to be done.", statements)]
    what = f"the database {SHADOW_SCHEMA} with the shadow log will be created, and three triggers on each table"
    return [Finding(_I, "change_triggers_absent", what, "Nothing has to be done.", statements)]


def _on_parents(tables: Sequence[TriggeredTable]) -> list[Finding]:
    """Tables that get triggers because cascades begin there."""
    found = []
    for table in tables:
        parents = table.structure().parents
        if parents:
            names, keys = ", ".join(map(str, parents)), ", ".join(map(str, table.cascades))
            what = f"cascades change rows of {table.name}, so triggers are created on {names} too: {keys}"
            found.append(Finding(_I, "change_triggers_on_parents", what, "Nothing has to be done."))
    return found


def _findings(there: Mapping[TableName, TriggeredTable], spec: TableSpec) -> list[Finding]:
    table = there.get(spec.source)
    if table is None:
        what = f"{spec.source} does not exist, or the user may not see it"
        return [Finding(_E, FaultKind.TABLE_MISSING.value, what, "Create it, or grant SELECT and TRIGGER on it.")]
    return _table_findings(table, spec)


def _table_findings(table: TriggeredTable, spec: TableSpec) -> list[Finding]:
    problem = unfit_for(table, spec)
    return [] if problem is None else [Finding(_E, problem[0].value, problem[1], problem[2])]


def unfit_for(table: TriggeredTable, spec: TableSpec) -> tuple[FaultKind, str, str] | None:
    """Why changes of the table cannot be replicated as declared: code, reason and remedy; None if they can."""
    reason = why_unfit(table)
    if reason is not None:
        return FaultKind.TABLE_NOT_LOGGED, reason, "Leave it out, or make it a plain InnoDB table."
    problem = underived(table)
    if problem is not None:
        remedy = "Declare some of the foreign keys without a cascade, or leave the table out."
        return FaultKind.CASCADE_UNCAPTURED, problem, remedy
    if spec.where is not None:
        what = f"{table.name}: where is not possible with triggers, which record every row"
        return FaultKind.TABLE_COLUMNS_UNFIT, what, "Leave it out."
    return unselectable(table, table.structure(), spec)


def _rights(connection: MariaDbConnection, user: str, names: Sequence[TableName]) -> list[Finding]:
    """Tables on which the user may not create triggers. Rights that come from roles are not judged."""
    account, _, host = user.rpartition("@")
    grantee = f"'{account}'@'{host}'"
    if rows(connection, "SELECT 1 FROM information_schema.enabled_roles WHERE role_name IS NOT NULL"):
        return []
    granted = [row for row in rows(connection, _GRANTED, grantee, grantee, grantee) if row[0] == "TRIGGER"]
    found = []
    for name in names:
        if not any(_covers(schema, table, name) for _, schema, table in granted):
            what = f"the user lacks the privilege TRIGGER on {name}"
            statement = f"GRANT SELECT, TRIGGER ON {quoted(name.schema, name.name)} TO {quoted(account)}@{quoted(host)}"
            remedy = "Grant it."
            found.append(Finding(_E, FaultKind.CHANGE_TRIGGERS_PRIVILEGE.value, what, remedy, (statement,)))
    return found


def _covers(schema: str | None, table: str | None, name: TableName) -> bool:
    """Whether a grant covers the table. A pattern of databases is taken to."""
    if schema is None:
        return True
    plain = schema.replace("\\_", "_").replace("\\%", "%")
    return (plain == name.schema or "%" in plain or "_" in plain) and table in {None, name.name}
