"""Several PostgreSQL databases as one source: their kind of connection, and the settings of its capture in a subscription."""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints, WithJsonSchema, field_validator, model_validator

from engine.kinds import ConnectionKind, Imported, KindSettings, SourceKind, Text
from engine.model.identity import TableName
from engine.model.masks import MASK_KEY
from engine.postgres.declaration import POSTGRES_CONNECTION
from engine.sources.postgres_log.declaration import SlotCapture
from engine.sources.postgres_logs.terms import POSTGRES_LOGS_TERMS

FEWEST_NODES, MOST_NODES = 2, 64
"""Of one source. A set of nodes is a word of 64 bits where logs are merged."""
LONGEST_PATTERN = 200
"""Characters of a pattern; PostgreSQL limits what it is applied to, a gid, to the same number of bytes."""
_COLUMN = "gtid"
"""The usual name of the column, that of the group of patterns."""
_RESERVED = "penstock"
"""Prefixes that begin so are those of the engine's own messages in the log."""


class NodeSettings(KindSettings):
    """One node."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")] = Field(
        description="What positions, events and checks call the node: up to 32 of the characters a-z, 0-9, _ and -, the first a letter or"
        " digit."
    )
    connection: Annotated[Text, StringConstraints(max_length=63)] = Field(
        description="A connection to the node's database.",
        json_schema_extra={"connectionKind": POSTGRES_CONNECTION.name},
    )


_Node = Annotated[NodeSettings, WithJsonSchema(NodeSettings.model_json_schema())]


class PartitionedSettings(KindSettings):
    """Several PostgreSQL databases that hold the rows of one. Their logs are merged into one, in which a transaction over several nodes is
    one transaction."""

    nodes: list[_Node] = Field(
        min_length=FEWEST_NODES,
        max_length=MOST_NODES,
        description="The nodes, each with a connection that exists. The order is part of the source: while a subscription has it, nodes can"
        " be added at the end, but not removed or put in another order.",
    )

    @field_validator("nodes")
    @classmethod
    def _are_different(cls, nodes: list[NodeSettings]) -> list[NodeSettings]:
        for what, names in (
            ("two nodes have the name", [node.name for node in nodes]),
            ("two nodes have the connection", [node.connection for node in nodes]),
        ):
            repeated = [name for name, times in Counter(names).items() if times > 1]
            if repeated:
                raise ValueError(f"{what} '{repeated[0]}'; each node needs one of its own")
        return nodes


PARTITIONED_CONNECTION = ConnectionKind(
    "partitioned",
    "Partitioned PostgreSQL",
    PartitionedSettings,
    {MASK_KEY: "Key of hashed columns"},
    frozenset({MASK_KEY}),
    nodes_of=POSTGRES_CONNECTION.name,
    own_schemas=POSTGRES_CONNECTION.own_schemas,
)


class PostgresLogsCapture(SlotCapture):
    """How the changes of several nodes are read."""

    title: ClassVar[str] = "Logs of the nodes"
    words: ClassVar[str] = (
        "The log of each node is read by logical decoding, which needs PostgreSQL 15 or newer, wal_level = logical and a user with"
        " REPLICATION on every node. The logs are merged into one: a transaction that was committed in two phases on several nodes arrives"
        " whole, as one transaction. A replication slot and publications are created on each node, named penstock_, the subscription's"
        " name and eight hexadecimal digits."
    )
    keeps_folder: ClassVar[bool] = True
    fixed: ClassVar[frozenset[str]] = frozenset({"gid_pattern", "own_prefix", "own_table", "own_column"})

    kind: Literal["postgres_logs"] = Field(default="postgres_logs", description=words)
    order: Literal["causal", "strict"] = Field(
        default="causal",
        title="Order of transactions",
        description="The order of transactions of different nodes. In both, the order of each node is kept, and what followed a transaction"
        " over several nodes comes after it. `strict`: unrelated transactions are in the order of their commit times, and each node is"
        " waited for. `causal`: unrelated transactions may pass a node whose log is late. A change takes effect at the next start.",
    )
    gid_pattern: Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_PATTERN)] | None = Field(
        default=None,
        title="Pattern of gids",
        description="A regular expression of Python that finds, in the gid of PREPARE TRANSACTION, the id that all parts of a global"
        " transaction share, as the group `gtid`; and optionally the nodes that have a part, by name and separated by commas, as the group"
        " `participants`. A gid that it does not match is the id as a whole. null: every gid is the id as a whole. Fixed once the"
        " subscription exists.",
    )
    own_prefix: Annotated[Text, StringConstraints(max_length=LONGEST_PATTERN)] | None = Field(
        default=None,
        title="Prefix of the coordinator's message",
        description="The prefix of a transactional message (pg_logical_emit_message) in the coordinator's own transaction, which is"
        " committed in one phase and decides. The content is the id of the global transaction. null: the coordinator has no part of its"
        " own, or `own_table` names it. Fixed once the subscription exists.",
    )
    own_table: (
        Annotated[Text, StringConstraints(pattern=r"^[^.\x00]+\.[^\x00]+$", max_length=LONGEST_PATTERN)] | None
    ) = Field(
        default=None,
        title="Table of the coordinator's ids",
        description="Instead of a message: a table of the subscription, as `schema.name`, into which the coordinator's own transaction"
        " inserts a row with the id of the global transaction. Fixed once the subscription exists.",
    )
    own_column: Annotated[Text, StringConstraints(max_length=63)] = Field(
        default=_COLUMN,
        title="Column of the ids",
        description="The column of `own_table` with the ids, of the type text, varchar or uuid. A row in which it is NULL names none."
        " Fixed once the subscription exists.",
    )

    @field_validator("gid_pattern")
    @classmethod
    def _finds_an_id(cls, given: str | None) -> str | None:
        if given is None:
            return None
        try:
            pattern = re.compile(given)
        except (re.error, RecursionError, OverflowError, FutureWarning) as error:
            raise ValueError(f"this is not a regular expression: {error}") from None
        unknown = sorted(pattern.groupindex.keys() - {"gtid", "participants"})
        if "gtid" not in pattern.groupindex:
            raise ValueError("the pattern needs a group (?P<gtid>…), which finds the id")
        if unknown:
            raise ValueError(f"there are only the groups gtid and participants, not {', '.join(unknown)}")
        if pattern.search("") is not None:
            raise ValueError("the pattern matches a gid without an id; let the group gtid have at least one character")
        return given

    @field_validator("own_prefix")
    @classmethod
    def _is_of_the_application(cls, given: str | None) -> str | None:
        if given is not None and given.startswith(_RESERVED):
            raise ValueError(f"prefixes that begin with {_RESERVED} are those of Penstock's own messages")
        return given

    @model_validator(mode="after")
    def _named_in_one_way(self) -> PostgresLogsCapture:
        if self.own_table is not None and self.own_prefix is not None:
            raise ValueError("either own_prefix or own_table names the coordinator's own part, not both")
        if self.own_table is None and self.own_column != _COLUMN:
            raise ValueError("own_column is a column of own_table, which is not given")
        return self

    def shown_column(self) -> tuple[TableName, str] | None:
        if self.own_table is None:
            return None
        schema, _, name = self.own_table.partition(".")
        return TableName(schema, name), self.own_column

    def assigned(self) -> dict[str, Any]:
        named = {
            "order": self.order,
            "gid_pattern": self.gid_pattern,
            "own_prefix": self.own_prefix,
            "own_table": self.own_table,
            "own_column": None if self.own_table is None else self.own_column,
        }
        return {
            "capture": {
                "kind": self.kind,
                "settings": {name: text for name, text in named.items() if text is not None},
            },
            "slot_budget_bytes": self.slot_budget_bytes,
            "guard": self.guard.model_dump(),
        }


POSTGRES_LOGS = SourceKind(
    PARTITIONED_CONNECTION,
    PostgresLogsCapture,
    POSTGRES_LOGS_TERMS,
    Imported("engine.sources.postgres_logs.source:PartitionedSource"),
    Imported("engine.sources.postgres_logs.merged_chunk:warm"),
    preloaded=("engine.sources.postgres_logs.source",),
)
