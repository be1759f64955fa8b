"""SQL statements that fix the findings of a source check, as text for a user with the necessary privileges."""

from __future__ import annotations

from psycopg import sql

from engine.model.identity import TableName

Statements = tuple[str, ...]


def _name(text: str) -> str:
    return sql.Identifier(text).as_string()


def set_for_good(setting: str, value: str) -> Statements:
    """Statements that change a server setting which takes effect at the next restart."""
    return (f"ALTER SYSTEM SET {setting} = '{value}'",)


def let_publish_in(database: str, user: str) -> Statements:
    """Allows `user` to create publications."""
    return (f"GRANT CREATE ON DATABASE {_name(database)} TO {_name(user)}",)


def let_read(table: TableName, user: str) -> Statements:
    """Allows `user` to read the table."""
    schema = _name(table.schema)
    return (
        f"GRANT USAGE ON SCHEMA {schema} TO {_name(user)}",
        f"GRANT SELECT ON {schema}.{_name(table.name)} TO {_name(user)}",
    )


def let_read_every_row(user: str) -> Statements:
    """Exempts `user` from row-level security."""
    return (f"ALTER ROLE {_name(user)} BYPASSRLS",)


def let_act_as(owner: str, user: str) -> Statements:
    """Makes `user` a member of the role `owner`, which a user needs to publish the owner's tables."""
    return (f"GRANT {_name(owner)} TO {_name(user)}",)


def let_replicate(user: str) -> Statements:
    """Allows `user` to open replication sessions."""
    return (f"ALTER ROLE {_name(user)} REPLICATION",)
