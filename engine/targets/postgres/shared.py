"""Shared tables of a PostgreSQL database: views, redefined in the transaction that changes one of their tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableId, TableName
from engine.model.schema import Column
from engine.postgres.sessions import PostgresConnection
from engine.targets.identifiers import qualified
from engine.targets.postgres.types import postgres_type
from engine.targets.shared import SharedColumn, SharedView, SqlViews

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('penstock shared', 0))"
_COLUMNS = """
SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute AS a
JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
WHERE c.oid = pg_catalog.to_regclass(%s) AND c.relkind = 'v' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_OPTIONS = """
SELECT pg_catalog.array_to_string(reloptions, ', ') FROM pg_catalog.pg_class
WHERE oid = pg_catalog.to_regclass(%s) AND reloptions IS NOT NULL
"""
_BUILT_UPON = """
SELECT DISTINCT coalesce(r.ev_class::pg_catalog.regclass::text, pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid))
FROM pg_catalog.pg_depend AS d
LEFT JOIN pg_catalog.pg_rewrite AS r ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND r.oid = d.objid
WHERE d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = pg_catalog.to_regclass(%s)
  AND d.deptype <> 'i' AND r.ev_class IS DISTINCT FROM d.refobjid ORDER BY 1
"""
_REMARKS = """
WITH relation AS (SELECT * FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass(%(place)s)),
grants AS (
  SELECT NULL::name AS attname, relacl AS acl, relowner FROM relation
  UNION ALL SELECT a.attname, a.attacl, c.relowner FROM relation AS c JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid)
SELECT 1, 'ALTER VIEW %%1$s OWNER TO ' || quote_ident(pg_catalog.pg_get_userbyid(relowner)), NULL FROM relation
WHERE relowner <> (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user)
UNION ALL SELECT 2, 'ALTER VIEW %%1$s SET (' || array_to_string(reloptions, ', ') || ')', NULL FROM relation WHERE reloptions IS NOT NULL
UNION ALL
SELECT 3, 'GRANT ' || e.privilege_type || coalesce(' (' || quote_ident(g.attname) || ')', '') || ' ON %%1$s TO '
  || CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_catalog.pg_get_userbyid(e.grantee)) END
  || CASE WHEN e.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END, g.attname
FROM grants AS g CROSS JOIN LATERAL pg_catalog.aclexplode(g.acl) AS e WHERE e.grantee <> g.relowner
UNION ALL
SELECT 4, CASE d.objsubid WHEN 0 THEN 'COMMENT ON VIEW %%1$s' ELSE 'COMMENT ON COLUMN %%1$s.' || quote_ident(a.attname) END
  || ' IS ' || quote_literal(d.description), a.attname
FROM relation AS c JOIN pg_catalog.pg_description AS d ON d.objoid = c.oid AND d.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass
LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = d.objsubid AND d.objsubid > 0
ORDER BY 1
"""
"""Users' comments and privileges on a relation, as statements with a placeholder for its name, and the column of each, if any."""


class PostgresViews(SqlViews):
    """Implements SqlViews."""

    def __init__(self, connection: PostgresConnection) -> None:
        super().__init__(lambda statement: connection.execute(statement.encode()))
        self._connection = connection

    def type_of(self, column: Column) -> str:
        return postgres_type(column)

    def columns(self, relation: TableName) -> list[SharedColumn]:
        rows = self._connection.execute(_COLUMNS, [qualified(relation)]).fetchall()
        return [SharedColumn(name, type_) for name, type_ in rows]

    def dependents(self, relation: TableName) -> list[str]:
        return [row[0] for row in self._connection.execute(_BUILT_UPON, [qualified(relation)]).fetchall()]

    def lock(self) -> None:
        """One lock for all shared tables of the database: transactions that change several of them cannot deadlock."""
        self._connection.execute(_LOCK)

    def show(self, table: TableId, view: SharedView) -> None:
        present = self.columns(view.relation)
        if not present:
            self.create_schema(view.relation.schema)
            self._create(view)
            return
        upon = self.dependents(view.relation)
        arranged = view.arranged(present, self.same_name, kept=bool(upon))
        with self.owned(table, view.relation):
            if view.drops(present, self.same_name) and not upon:
                self._recreate(arranged)
                return
            try:
                with self._connection.transaction():
                    self.replace(view.relation, arranged.select(qualified))
            except psycopg.errors.InvalidTableDefinition as error:
                # The type of a column changed.
                if upon:
                    detail = f"{view.relation} on the target cannot follow ({error.diag.message_primary}) while these show it:"
                    raise EngineFault(
                        FaultKind.TABLE_UNFIT, table, f"{detail} {', '.join(upon)}; drop them first"
                    ) from error
                self._recreate(arranged)

    def replace(self, relation: TableName, select: str) -> None:
        """Replace the view; PostgreSQL keeps everything but its options."""
        set_ = self._connection.execute(_OPTIONS, [qualified(relation)]).fetchall()
        options = f" WITH ({set_[0][0]})" if set_ else ""
        self.execute(f"CREATE OR REPLACE VIEW {qualified(relation)}{options} AS {select}")

    def _create(self, view: SharedView) -> None:
        self.execute(f"CREATE VIEW {qualified(view.relation)} AS {view.select(qualified)}")

    def _recreate(self, view: SharedView) -> None:
        """Replace the existing view by a new one with the users' comments and privileges."""
        place = qualified(view.relation)
        remarks = self._connection.execute(_REMARKS, {"place": place}).fetchall()
        names = {column.name for column in view.columns}
        self.execute(f"DROP VIEW {place}")
        self._create(view)
        for _, statement, column in sorted(remarks, key=lambda row: (-row[0], row[1])):
            if column is None or column in names:
                self.execute(statement.replace("%1$s", place, 1))

    @contextmanager
    def owned(self, table: TableId, relation: TableName) -> Iterator[None]:
        try:
            yield
        except psycopg.errors.InsufficientPrivilege as error:
            detail = f"only the owner of {relation} on the target may redefine it: ALTER VIEW {qualified(relation)} OWNER TO our user"
            raise EngineFault(FaultKind.TABLE_UNFIT, table, detail) from error
