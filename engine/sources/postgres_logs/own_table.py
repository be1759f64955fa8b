"""Whether rows of a table can name global transactions, and are in the logs. Without these rows global transactions would come in parts,
and nothing would say so."""

from __future__ import annotations

from collections.abc import Mapping, Set

from engine.model.fault import EngineFault, FaultKind
from engine.model.identity import TableName
from engine.sources.postgres_log.publications import names as publications_of
from engine.sources.postgres_logs.last_answers import AbsentNodes, LastAnswers
from engine.sources.postgres_logs.node_tables import NodeTable, NodeTables
from engine.sources.postgres_logs.nodes import Node, Nodes

_PUBLISHED = "SELECT FROM pg_publication_tables WHERE pubname = ANY (%s) AND schemaname = %s AND tablename = %s"

TEXTS = frozenset({"text", "varchar", "uuid"})
"""Types of the column, by PostgreSQL's names: those whose text is the id. The text of `bpchar` has blanks that the gid has not."""
OWN_TABLE_REMEDY = (
    "Let capture.own_table name a replicated table that has the ids in capture.own_column, as text, varchar or uuid."
)
"""Of findings."""


def unfit(table: TableName, column: str, found: Mapping[TableName, NodeTable], names: tuple[str, ...]) -> str | None:
    """Why rows of this table cannot name global transactions, as the end of a sentence that begins with the table; None if they can.

    `found`: the table as the catalogs have it now. `names`: of the nodes.
    """
    there = found.get(table)
    if there is None:
        return "is on no node"
    for node, part in there.parts.items():
        types = {each.column.on_source: each.column.type.name for each in part.columns}
        if column not in types:
            return f"has no column {column} on node {names[node]}"
        if types[column] not in TEXTS:
            return f"has a column {column} of the type {types[column]} on node {names[node]}; it has to be text, varchar or uuid"
    return None if there.problem is None else f"cannot be replicated: {there.problem}"


class OwnTable:
    """The table that a capture names. Used by one thread at a time."""

    def __init__(
        self, nodes: Nodes, tables: NodeTables, absent: AbsentNodes, named: tuple[TableName, str] | None
    ) -> None:
        """`named`: table and column; None: the capture names none, and nothing is checked."""
        self._nodes = nodes
        self._tables = tables
        self._named = named
        self._published = LastAnswers[bool](nodes, absent)
        self._had: tuple[str, frozenset[int]] = ("", frozenset())
        """A reader, and the nodes that published the table for it at the last check."""

    def check(self, reader: str) -> None:
        """Before the logs are read. Raises EngineFault(OWN_TABLE_UNFIT) if rows of the table cannot name transactions, or a node that has
        it does not publish it."""
        if self._named is None:
            return
        table, column = self._named
        found = self._tables.read([table])
        problem = unfit(table, column, found, self._nodes.names)
        if problem is not None:
            raise _fault(table, problem)
        self._refuse(table, found[table].parts.keys() - self._publishing(reader, table), "is not published on node")

    def check_again(self, reader: str) -> None:
        """While the logs are read, which show whether the column is there. A node on which the table was created meanwhile publishes it
        from its next copy on.

        Raises EngineFault(OWN_TABLE_UNFIT) if a node that published the table does so no more.
        """
        if self._named is None:
            return
        table, _ = self._named
        (known, had), now = self._had, self._publishing(reader, table)
        self._had = reader, now
        self._refuse(table, had - now if known == reader else frozenset(), "is not published any more on node")

    def withdrawn(self, tables: frozenset[TableName]) -> None:
        """These tables are not published from here on. Raises EngineFault(OWN_TABLE_UNFIT) if the table is among them."""
        if self._named is not None and self._named[0] in tables:
            raise _fault(self._named[0], "is not published, as it has no replica identity")

    def _publishing(self, reader: str, table: TableName) -> frozenset[int]:
        answers = self._published.ask(lambda node: _publishes(node, reader, table), reader)
        return frozenset(number for number, published in enumerate(answers) if published)

    def _refuse(self, table: TableName, nodes: Set[int], why: str) -> None:
        if nodes:
            raise _fault(table, f"{why} {self._nodes.names[min(nodes)]}")


def _publishes(node: Node, reader: str, table: TableName) -> bool:
    with node.connector.session(str(table)) as connection:
        named = [list(publications_of(node.slot(reader))), table.schema, table.name]
        return connection.execute(_PUBLISHED, named).fetchone() is not None


def _fault(table: TableName, problem: str) -> EngineFault:
    return EngineFault(FaultKind.OWN_TABLE_UNFIT, str(table), f"the table {problem}")
