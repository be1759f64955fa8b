"""Tries row filters on the source before a publication gets them: one that the source refuses must not hold up other tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psycopg
from psycopg import sql

from engine.model.identity import TableName
from engine.model.subscription import TableSpec
from engine.postgres.sessions import PostgresConnection
from engine.records.catalog_table import CatalogTable, filter_problem

_SUFFIX = "_try"
_STORED_FORM = """
SELECT pg_get_expr(r.prqual, r.prrelid) FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = %s
"""
_REFUSALS = (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError)
"""How the source refuses a filter: names, types, literals, and what may change between two evaluations."""
_OF_OTHERS = (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)

Tried = tuple[TableName, str]


class FilterTrials:
    """Row filters that were tried on one source. Not to be used by two threads at once."""

    def __init__(self) -> None:
        self._stored: dict[Tried, str] = {}
        """The form in which the source stores each filter that it accepts."""
        self.refused: dict[Tried, str] = {}
        """Why the source refuses a filter, as text."""

    def judge(
        self,
        connection: PostgresConnection,
        tables: Sequence[TableSpec],
        catalog: Mapping[TableName, CatalogTable],
        slot: str,
    ) -> None:
        """Try the filters that were not tried yet: each in a publication of its own, in a transaction that is rolled back.

        Raises psycopg.Error if a table cannot be locked, or the user may not create publications.
        """
        for table in tables:
            if table.where is None or (table.source, table.where) in self._stored:
                continue
            found = catalog.get(table.source)
            self.refused.pop((table.source, table.where), None)
            if found is not None and filter_problem(found, table) is None:
                self._try(connection, table.source, table.where, f"{slot}{_SUFFIX}")

    def stored_form(self, table: TableSpec) -> str | None:
        return self._stored.get((table.source, table.where or ""))

    def is_refused(self, table: TableSpec) -> bool:
        return (table.source, table.where) in self.refused

    def _try(self, connection: PostgresConnection, table: TableName, condition: str, name: str) -> None:
        try:
            with connection.transaction(force_rollback=True):
                connection.execute(
                    sql.SQL("CREATE PUBLICATION {} FOR TABLE ONLY {} WHERE ({})").format(
                        sql.Identifier(name), sql.Identifier(table.schema, table.name), sql.SQL(condition)
                    )
                )
                ((form,),) = connection.execute(_STORED_FORM, [name]).fetchall()
        except _OF_OTHERS:
            raise
        except _REFUSALS as error:
            self.refused[table, condition] = (
                f"the source refuses where: {error.diag.message_primary or 'no reason given'}"
            )
            return
        self._stored[table, condition] = str(form)
