"""SQL statements that fix the findings of a source check, as text for a user with the necessary privileges."""

from __future__ import annotations

from collections.abc import Sequence

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


def publish_in_full(publication: str, tables: Sequence[TableName]) -> Statements:
    """Creates a publication of every change of these tables."""
    listed = f" FOR TABLE {', '.join(map(_only, tables))}" if tables else ""
    options = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"
    return (f"CREATE PUBLICATION {_name(publication)}{listed} WITH ({options})",)


def add_to_publication(publication: str, table: TableName) -> Statements:
    """Adds the table to an existing publication."""
    return (f"ALTER PUBLICATION {_name(publication)} ADD TABLE {_only(table)}",)


def add_again(publication: str, table: TableName) -> Statements:
    """Adds the table again, with all its columns and rows."""
    dropped = f"ALTER PUBLICATION {_name(publication)} DROP TABLE {_only(table)}"
    return (dropped, *add_to_publication(publication, table))


def alter_publication(publication: str, option: str, value: str) -> Statements:
    """Sets an option of an existing publication."""
    return (f"ALTER PUBLICATION {_name(publication)} SET ({option} = {value})",)


def make_slot(slot: str) -> Statements:
    """Makes a slot of this name that can be read."""
    name = sql.Literal(slot).as_string()
    return (f"SELECT pg_create_logical_replication_slot({name}, 'pgoutput')",)


def _only(table: TableName) -> str:
    return f"ONLY {_name(table.schema)}.{_name(table.name)}"


def let_replicate(user: str) -> Statements:
    """Allows `user` to open replication sessions."""
    return (f"ALTER ROLE {_name(user)} REPLICATION",)
