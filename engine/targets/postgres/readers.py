"""The roles of readers' statements. Each subscription has one, which may only read its tables.

A statement's session is opened as that role, so that no privilege can be regained in it. The role is created at the first query, if the
connection's user has CREATEROLE, and gets a new password from each engine; otherwise the connection names a role.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import psycopg

from engine.model.fault import EngineFault
from engine.model.identity import SubscriptionName, TableName
from engine.model.subscription import ConnectionSpec
from engine.model.target import QueryRefused
from engine.postgres.sessions import PostgresConnection, Sessions
from engine.targets.identifiers import qualified, quoted
from engine.targets.postgres.errors import TARGET

UNFIT = "query_role_unfit"
UNUSABLE = "query_role_unusable"
MISSING = "query_role_missing"
_SETTINGS = {
    "search_path": "public,pg_catalog",
    "default_transaction_read_only": "on",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    # The session ends soon after its process was killed, even while it computes.
    "client_connection_check_interval": "1000",
}
_ROLE = """
SELECT r.oid, r.rolsuper OR r.rolcreaterole OR r.rolcreatedb OR r.rolreplication OR r.rolbypassrls,
    (SELECT array_agg(g.rolname::text) FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid WHERE m.member = r.oid),
    has_database_privilege(r.oid, current_database(), 'CONNECT')
FROM pg_roles r WHERE r.rolname = %s
"""
_ALLOWED = """
SELECT c.oid, n.oid, n.nspname, c.relname, has_table_privilege(%(r)s::oid, c.oid, 'SELECT'),
    has_schema_privilege(%(r)s::oid, n.oid, 'USAGE')
FROM unnest(%(s)s::text[], %(n)s::text[]) AS a(s, n) JOIN pg_namespace n ON n.nspname = a.s
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = a.n AND c.relkind IN ('r', 'p', 'v', 'f')
"""
_HELD = """
SELECT d.classid = 'pg_class'::regclass, d.objid, d.deptype::text, pg_describe_object(d.classid, d.objid, 0)
FROM pg_shdepend d WHERE d.refclassid = 'pg_authid'::regclass AND d.refobjid = %s
    AND d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND d.classid IN ('pg_class'::regclass, 'pg_largeobject'::regclass, 'pg_namespace'::regclass, 'pg_proc'::regclass)
"""
"""Objects that the role owns, or has privileges on."""
_MAY = "SELECT rolsuper, rolcreaterole, rolname::text FROM pg_roles WHERE rolname = current_user"
_UNFIT_REMEDY = (
    "Take the right from the role; it may own nothing either. A role serves the readers of one subscription: give each that has this"
    " target a connection with a query_user of its own."
)
_LEAST = "LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT NOREPLICATION NOBYPASSRLS"


@dataclass(frozen=True, slots=True)
class _Role:
    oid: int
    name: str
    ours: bool
    """True: created by us, with privileges managed by us; False: named by the connection, used unchanged."""


def reader_role(database: str, subscription: SubscriptionName) -> str:
    """The name of the role created for a subscription's readers; roles belong to the whole cluster."""
    return f"penstock_reader_{hashlib.sha256(f'{database}/{subscription}'.encode()).hexdigest()[:16]}"


class Readers:
    """Provides readers' access to a target. Thread-safe."""

    def __init__(self, spec: ConnectionSpec, sessions: Sessions) -> None:
        self._spec = spec
        self._sessions = sessions
        self._passwords: dict[str, str] = {}
        """Passwords of roles that were created, or taken over, here."""
        self._lock = threading.Lock()

    def way_in(self, subscription: SubscriptionName, relations: Sequence[TableName], timeout_s: float) -> str:
        """A connection string, with password, of a role that may read only these relations.

        Raises QueryRefused(query_role_missing, query_role_unfit).
        """
        with self._lock, self._sessions.session() as connection:
            role = self._role(connection, subscription)
            self._see_to_rights(connection, role, relations)
        password = self._passwords.get(role.name) if role.ours else self._spec.secrets.get("query_password")
        secret = {} if password is None else {"password": password}
        others = {
            name: value for name, value in self._spec.secrets.items() if name not in {"password", "query_password"}
        }
        spec = replace(self._spec, settings={**self._spec.settings, "user": role.name}, secrets={**others, **secret})
        settings = {**_SETTINGS, "idle_in_transaction_session_timeout": str(int(timeout_s * 1000) + 60_000)}
        timeout_ms = max(1, int(timeout_s * 1000))
        return Sessions(spec, TARGET, settings).conninfo(
            "penstock query", replication=False, statement_timeout_ms=timeout_ms
        )

    def forgotten(self, subscription: SubscriptionName) -> None:
        """Set a new password at the next use: another process may have changed it."""
        with self._lock:
            self._passwords.pop(reader_role(self._sessions.database, subscription), None)

    def drop(self, subscription: SubscriptionName) -> None:
        """Drop the role created for the subscription. If it cannot be dropped, its privileges are revoked."""
        name = reader_role(self._sessions.database, subscription)
        database = quoted(self._sessions.database)
        with (
            suppress(psycopg.Error, EngineFault),
            self._lock,
            self._sessions.session() as connection,
            connection.transaction(),
        ):
            found = connection.execute(_ROLE, [name]).fetchone()
            if found is not None:
                self._see_to_rights(connection, _Role(found[0], name, ours=True), [])
                self._grant(connection, [f"REVOKE ALL ON DATABASE {database} FROM {quoted(name)}"])
                connection.execute(f"DROP ROLE {quoted(name)}".encode())
                self._passwords.pop(name, None)

    def _role(self, connection: PostgresConnection, subscription: SubscriptionName) -> _Role:
        given = self._spec.settings.get("query_user")
        name = str(given) if given else reader_role(self._sessions.database, subscription)
        if not given and name not in self._passwords:
            self._make(connection, name)
        found = connection.execute(_ROLE, [name]).fetchone()
        if found is None:
            raise QueryRefused(MISSING, f"the role {name} does not exist on the target", _make_remedy(connection, name))
        oid, mighty, member_of, may_connect = found
        if mighty or member_of:
            why = f"is a member of {', '.join(member_of)}" if member_of else "has privileges other than SELECT"
            taken = [f"REVOKE {quoted(group)} FROM {quoted(name)}" for group in member_of or ()]
            remedy = "; ".join([f"ALTER ROLE {quoted(name)} {_LEAST}", *taken])
            raise QueryRefused(UNFIT, f"the role {name}, which queries run as, {why}", f"Run on the target: {remedy}")
        if not may_connect:
            self._grant(connection, [f"GRANT CONNECT ON DATABASE {quoted(self._sessions.database)} TO {quoted(name)}"])
        return _Role(oid, name, ours=not given)

    def _make(self, connection: PostgresConnection, name: str) -> None:
        """Create the role, or set a new password if it exists."""
        password = secrets.token_urlsafe(24)
        # The connection and the server's log contain only the hash that the server would store.
        kept = connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256").decode()
        there = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name]).fetchone() is not None
        verb = "ALTER" if there else "CREATE"
        try:
            connection.execute(f"{verb} ROLE {quoted(name)} {'' if there else _LEAST} PASSWORD '{kept}'".encode())
        except psycopg.errors.InsufficientPrivilege:
            detail = "the user of the connection may not create the role for queries"
            raise QueryRefused(MISSING, detail, _make_remedy(connection, name)) from None
        self._passwords[name] = password

    def _see_to_rights(self, connection: PostgresConnection, role: _Role, relations: Sequence[TableName]) -> None:
        """Grant the role SELECT on these relations, and revoke everything else in the database."""
        names = {"r": role.oid, "s": [r.schema for r in relations], "n": [r.name for r in relations]}
        allowed = connection.execute(_ALLOWED, names).fetchall()
        statements = {
            f"GRANT USAGE ON SCHEMA {quoted(row[2])} TO {quoted(role.name)}": None for row in allowed if not row[5]
        }
        self._grant(connection, list(statements))
        for row in allowed:
            if not row[4]:
                place = qualified(TableName(row[2], row[3]))
                # Concurrent GRANTs on one table wait for each other: two transactions cannot update its catalog row.
                self._grant(
                    connection,
                    [
                        f"LOCK TABLE {place} IN ACCESS SHARE MODE",
                        f"GRANT SELECT ON TABLE {place} TO {quoted(role.name)}",
                    ],
                )
        kept = {row[0] for row in allowed} | {row[1] for row in allowed}
        held = [row for row in connection.execute(_HELD, [role.oid]).fetchall() if row[2] == "o" or row[1] not in kept]
        if role.ours and held:
            self._take_back(connection, role, [row[1] for row in held])
            held = [
                row for row in connection.execute(_HELD, [role.oid]).fetchall() if row[2] == "o" or row[1] not in kept
            ]
        if held:
            what = f"{held[0][3]}, which this subscription's readers must not access"
            raise QueryRefused(
                UNFIT, f"the role {role.name}, which queries run as, has rights on {what}", _UNFIT_REMEDY
            )

    def _grant(self, connection: PostgresConnection, statements: Sequence[str]) -> None:
        """In a transaction. If a privilege is not ours to grant, the server reports it when it is needed."""
        with suppress(psycopg.errors.InsufficientPrivilege), connection.transaction():
            for statement in statements:
                connection.execute(statement.encode())

    def _take_back(self, connection: PostgresConnection, role: _Role, objects: Sequence[int]) -> None:
        rows = connection.execute(
            "SELECT 'TABLE', n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY (%(o)s)"
            " UNION ALL SELECT 'SCHEMA', '', nspname FROM pg_namespace WHERE oid = ANY (%(o)s)",
            {"o": list(objects)},
        ).fetchall()
        for kind, schema, name in rows:
            what = qualified(TableName(schema, name)) if kind == "TABLE" else quoted(name)
            lock = [f"LOCK TABLE {what} IN ACCESS SHARE MODE"] if kind == "TABLE" else []
            self._grant(connection, [*lock, f"REVOKE ALL ON {kind} {what} FROM {quoted(role.name)}"])


def _make_remedy(connection: PostgresConnection, name: str) -> str:
    user = connection.info.user
    return (
        f"Run on the target: ALTER ROLE {quoted(user)} CREATEROLE. Or make a role for the readers of this subscription alone"
        f" (CREATE ROLE reader {_LEAST} PASSWORD '…') and give it in the connection's setting query_user and its secret query_password."
    )


def unusable(detail: str, role_given: bool) -> QueryRefused:
    """The error for a role that could not log in."""
    what = "Check query_user and query_password of the connection, and pg_hba.conf of the target"
    made = (
        "Let roles named penstock_reader_… log in from the engine's machine (pg_hba.conf, or the pooler in between), or give a role of your"
        " own in the connection's setting query_user and its secret query_password"
    )
    return QueryRefused(UNUSABLE, detail, f"{what if role_given else made}.")


def role_findings(connection: PostgresConnection, settings: Mapping[str, object]) -> list[tuple[str, str, str, str]]:
    """Findings about the roles before anything is written."""
    superuser, may_make, user = connection.execute(_MAY).fetchall()[0]
    findings = []
    if superuser:
        remedy = (
            f"make a user for Penstock: CREATE ROLE penstock LOGIN CREATEROLE PASSWORD '…'; GRANT CREATE ON DATABASE"
            f" {quoted(connection.info.dbname)} TO penstock; GRANT SET ON PARAMETER session_replication_role TO penstock (PostgreSQL 15)."
            f" What it writes to so far becomes its own with ALTER SCHEMA and ALTER TABLE … OWNER TO penstock"
        )
        what = f"the user {user} of the connection is a superuser; an error in its use can harm the whole server"
        findings.append(("error", "target_superuser", what, remedy))
    if not superuser and not may_make and not settings.get("query_user"):
        what = f"the user {user} may not create the roles for queries; queries on this target are refused"
        findings.append(("warning", MISSING, what, _make_remedy(connection, "")))
    return findings
