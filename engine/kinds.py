"""What kinds of connection, source and target declare. Without their drivers: the server reads the declarations too."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from enum import StrEnum
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, StringConstraints

from engine.model.identity import TableName
from engine.model.position import Lsn
from engine.model.schema import TableSchema
from engine.model.source import Source, SourceTerms
from engine.model.subscription import ConnectionSpec, SubscriptionSpec
from engine.model.target import BoundStatement, QueryAnswer, QueryLimits, Target
from engine.platform.settings import EngineSettings

Text = Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=r"^[^\x00]*$")]
Size = Annotated[str, StringConstraints(max_length=32, pattern=r"^[0-9]+(\.[0-9]+)? ?([KMGT]i?B|%)$")]
SPEC: dict[str, Any] = {field.name: field.default for field in fields(SubscriptionSpec)}
"""Defaults of a subscription's specification, by field."""
OF_ANY_SOURCE = "of any source"
"""Context of the validation of a capture where the kind of its source is not known: options of tables are those of all kinds."""


class Consistency(StrEnum):
    """Which states of the source readers of a target see, by how its changes are captured. Each is one that the source had."""

    TRANSACTIONS = "transactions"
    """Those after its transactions, in the order of their commits."""
    WINDOWS = "windows"
    """Those at the ends of windows, a fraction of a second apart: all transactions of one become visible together."""
    SNAPSHOTS = "snapshots"
    """Those that cycles of queries read: what happened between two of them is visible as its net effect."""
    RANGES = "ranges"
    """Those that cycles read in several snapshots: each part is as it was during the cycle, and parts need not agree with each other."""


class Policy(BaseModel):
    """Base of the policies of a subscription; unknown names are refused."""

    model_config = ConfigDict(extra="forbid")


class KindSettings(BaseModel):
    """Base of the settings of one kind; unknown names are refused."""

    model_config = ConfigDict(extra="forbid")


class Capture(Policy):
    """Base of all kinds of capture. `title` and `words` describe one where a user chooses among them."""

    title: ClassVar[str]
    words: ClassVar[str]
    by_triggers: ClassVar[bool] = False
    """Whether triggers on the source record the changes, so that the source has `ChangeTriggers`."""
    consistency: ClassVar[Consistency] = Consistency.TRANSACTIONS
    """Which states of the source readers see."""
    table_options: ClassVar[frozenset[str]] = frozenset()
    """Those of `flag_column`, `key` and `columns` that are possible for a table of `tables`."""
    keeps_folder: ClassVar[bool] = False
    """Whether the engine keeps something of the source in a folder of the subscription."""
    fixed: ClassVar[frozenset[str]] = frozenset()
    """Settings that stay as they are while the subscription exists: what was read by one would be misread by another."""

    kind: str

    def promised(self) -> Consistency:
        """Which states readers see with these settings."""
        return self.consistency

    def usual_lag_s(self) -> float:
        """The lag in seconds up to which a target is fresh if the subscription has no other goal."""
        return 60.0

    def shown_column(self) -> tuple[TableName, str] | None:
        """A table that has to be one of the subscription's, and a column whose values its rows have to show; None: there is none."""
        return None

    def assigned(self) -> dict[str, Any]:
        """What the command `assign` says of it."""
        return {"capture": {"kind": self.kind}}

    def log_budget(self) -> tuple[int, float]:
        """Bytes of log that may be held back on the source, and the share of them from which a subscription is at risk."""
        raise NotImplementedError


_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


@dataclass(frozen=True, slots=True)
class SqlDialect:
    """The SQL of one kind of database. `name`: in sqlglot. `search_path`: schemas of names without one."""

    name: str
    search_path: tuple[str, ...]
    ignores_case: bool = False

    def fold(self, name: str) -> str:
        """The folded form of a name; equal for names that the database does not distinguish."""
        return name.translate(_LOWER) if self.ignores_case else name


@dataclass(frozen=True, slots=True)
class ConnectionKind:
    """One kind of connection."""

    name: str
    title: str
    settings: type[KindSettings]
    labels: Mapping[str, str]
    """What forms call those settings and secrets whose names do not say it."""
    secrets: frozenset[str]
    embedded: bool = False
    """The engine opens the database itself, and makes it where it is missing; other programs query it through Penstock."""
    keeps_transactions: bool = False
    """As a target it supports the apply modes `grouped` and `transactional`."""
    stages_changes: bool = False
    """As a target it supports `staging`."""
    has_sequences: bool = False
    """As a target its columns can have sequences."""
    takes_existing: bool = False
    """As a target it supports `into_existing`."""
    ignores_case: bool = False
    """Table names that differ only in the case of ASCII letters are the same name."""
    dialect: SqlDialect | None = None
    """The SQL of queries; None: it has none."""
    nodes_of: str | None = None
    """The kind of the connections that its setting `nodes` names; None: it has no such setting."""
    own_schemas: frozenset[str] = frozenset()
    """Schemas reserved for Penstock or the database: no table is replicated into them."""
    captures: tuple[str, ...] = ()
    """How its changes can be read as a source; the first one is usual. Set by `engine.connectors`."""
    target: bool = False
    """Whether it can be a target. Set by `engine.connectors`."""

    @property
    def source(self) -> bool:
        return bool(self.captures)

    def fold(self, name: str) -> str:
        """The folded form of a name; equal for names that the database does not distinguish."""
        return name.translate(_LOWER) if self.ignores_case else name


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class SourceQueries:
    """How readers' statements run on one kind of source.

    `rows_of`: a SELECT of a table's rows, with the columns as the target holds them; its second argument: the target has the source's
    types. `run`: runs a statement that reads these tables in one read-only transaction and yields its rows, at most of this position
    and later. The last argument is the memory of its process in bytes. Raises QueryRefused, EngineFault.
    """

    rows_of: Callable[[TableSchema, bool], str]
    run: Callable[
        [ConnectionSpec, BoundStatement, Collection[TableName], Lsn, QueryLimits, int],
        AbstractContextManager[QueryAnswer],
    ]


@dataclass(frozen=True, slots=True)
class SourceKind:
    """How the changes of one kind of connection are captured."""

    connection: ConnectionKind
    capture: type[Capture]
    terms: SourceTerms
    open_source: Callable[[ConnectionSpec], Source]
    compile_kernels: Callable[[], None] = _nothing
    """Compiles the numba kernels of the kind; may be called at any time."""
    preloaded: tuple[str, ...] = ()
    """Its modules that log readers and copy tasks use."""
    queries: SourceQueries | None = None
    """None: it has no SQL for statements of readers."""

    @property
    def name(self) -> str:
        """`capture.kind` of a subscription."""
        return str(self.capture.model_fields["kind"].default)


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A kind of connection as a target."""

    connection: ConnectionKind
    open_target: Callable[[ConnectionSpec, EngineSettings], Target]
    map_others_as: str | None = None
    """`TableSpec.map_others_as` of its tables, for a target whose columns are not held by their type."""
    computes_here: Callable[[ConnectionSpec], bool] | None = None
    """Whether a separate server on this machine executes its queries; None if it never does."""
    preloaded: tuple[str, ...] = ()
    """Its modules that the engine and query processes use."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A function that imports `module:name` when it is called, and calls that: a declaration imports no driver."""

    reference: str

    def __call__(self, *given: Any) -> Any:
        return resolve_name(self.reference)(*given)
