"""Who owns the objects of the schema `penstock`.

Who may create a schema in the database could create `penstock` first, with functions and views that a later user of them, maybe a
superuser, runs. So only objects are used that belong to the connection's user, or to a role that can act as the owner of the database.
"""

from __future__ import annotations

from engine.model.fault import EngineFault, FaultKind
from engine.postgres.sessions import PostgresConnection

_FOREIGN = """
WITH objects(what, owner) AS (
    SELECT 'the schema penstock', n.nspowner FROM pg_namespace n WHERE n.nspname = 'penstock'
    UNION ALL
    SELECT 'penstock.' || c.relname, c.relowner FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'penstock' AND c.relname IN ('changes', 'windows', 'readers', 'followed', 'transactions', 'changes_no_seq')
    UNION ALL
    SELECT 'penstock.' || p.proname || '()', p.proowner FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = 'penstock' AND (p.proname LIKE 'record\\_%' OR p.proname = 'close_window'))
SELECT o.what, pg_get_userbyid(o.owner) FROM objects o
JOIN pg_database d ON d.datname = current_database() LEFT JOIN pg_roles r ON r.oid = o.owner
WHERE pg_get_userbyid(o.owner) NOT IN (current_user, 'pg_database_owner')
  AND NOT coalesce(r.rolsuper OR pg_has_role(o.owner, d.datdba, 'MEMBER'), false)
ORDER BY 1 LIMIT 1
"""


def check_owners(connection: PostgresConnection) -> None:
    """Raises EngineFault(CHANGE_LOG_FOREIGN) if an object of the shadow log belongs to a role that is not trusted."""
    found = connection.execute(_FOREIGN).fetchone()
    if found is not None:
        what, owner = found
        detail = f"{what} belongs to the role {owner}, which is neither the connection's user nor may act as the owner of the database"
        raise EngineFault(FaultKind.CHANGE_LOG_FOREIGN, "penstock", detail)
