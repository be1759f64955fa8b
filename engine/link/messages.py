"""Messages of the control channel, shared by server and engine: commands go down the stream, reports come up.

On the wire every message is one JSON object whose `kind` names its type; positions are text. Unknown fields are
ignored, so that a server and an engine one release apart understand each other. Secrets are written only by `encode`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from engine.link.change_triggers import ChangeTriggers
from engine.link.cycles import BeginCycle, Cycles, LastCyclePart
from engine.link.declared import Connection, DeclaredTable
from engine.link.lag import Lag
from engine.link.message import Message, Position, Problem, Question, SubscriptionReport
from engine.link.partitions import LoadedPartitionPart, Partitions
from engine.link.quarantine import RefusedRows
from engine.link.queries import Query
from engine.link.read_points import ReadPoints
from engine.link.snapshots import DeleteSnapshot, Snapshot, SnapshotDeleted, SnapshotReport
from engine.link.tickets import Ticket
from engine.link.verifications import Verification, Verify
from engine.model.identity import Epoch, SubscriptionName, TableId, TableName
from engine.model.patterns import TablePattern
from engine.model.sequences import SequenceOutcome, SequenceValue
from engine.model.source import Finding
from engine.model.subscription import (
    ApplyMode,
    ApplyPolicy,
    BatchPolicy,
    CaptureSpec,
    CopyPolicy,
    GuardPolicy,
    OriginFilter,
    QueueMode,
    SchemaPolicy,
    SubscriptionSpec,
)
from engine.model.ticket import TicketState

PROTOCOL = 12
"""Protocol version. Increase it if an older engine could misunderstand a newer server, or the reverse."""

# Parts of messages


PositionOfLogs = dict[str, Position]
"""A position in each log of a source that has several, by the log's name; empty, and not on the wire, for one that has one."""


def _is_none(value: object) -> bool:
    return value is None


def _is_empty(value: Sized) -> bool:
    return not value


class DiscoveredColumn(Message):
    name: str
    type: str


class DiscoveredTablePart(Message):
    """A table that could be replicated."""

    schema_name: str = Field(alias="schema")
    name: str
    key: tuple[str, ...] = ()
    identity: str
    partitioned: bool = False
    rows_estimate: int = 0
    bytes: int = 0
    columns: tuple[DiscoveredColumn, ...] = ()
    problems: tuple[Finding, ...] = ()


class PreflightBody(Message):
    """Body of the answer to `preflight`."""

    findings: tuple[Finding, ...]


class DiscoverBody(Message):
    """Body of the answer to `discover`."""

    tables: tuple[DiscoveredTablePart, ...]


class DdlCaptureBody(Message):
    installed: bool
    version: int | None = None
    current: bool
    install_sql: tuple[str, ...] = ()
    remove_sql: tuple[str, ...] = ()


class NowBody(Message):
    """Body of the answer to `now`: a position after every commit that was acknowledged before the command arrived.

    `structure`: once the position is applied, the schemas that the source's catalog showed at or after it are in force, for all tables
    that were live when the command arrived. None: the engine did not check the catalog.
    """

    position: Position
    of_logs: PositionOfLogs = Field(default_factory=dict, exclude_if=_is_empty)
    structure: Position | None = None
    structure_at: datetime | None = None


class SequencePart(Message):
    """Result for one sequence. Without `target_sequence` no sequence was read; `outcome` says why."""

    table: str
    source: TableName
    column: str
    source_sequence: TableName
    source_value: SequenceValue
    target_table: TableName
    target_sequence: TableName | None = None
    before: SequenceValue | None = None
    after: SequenceValue | None = None
    outcome: SequenceOutcome


class SequencesBody(Message):
    """Body of the answer to `sequences`."""

    sequences: tuple[SequencePart, ...]


# Commands: server to engine


class Heartbeat(Message):
    """Keepalive of the command stream. The next line follows within `at_most_s` seconds."""

    kind: Literal["heartbeat"] = "heartbeat"
    at_most_s: float = 5.0


class Sync(Message):
    """The first line of every stream except heartbeats: this engine's subscriptions with their epochs; it must stop all others.

    At the start of a stream an `assign` for each follows, which updates a subscription that the engine already runs in this epoch.
    Later it is sent when a subscription was taken away.
    """

    kind: Literal["sync"] = "sync"
    subscriptions: dict[str, int]
    stream: str = ""
    """Name of the stream that begins; the engine sends it with each position from now on."""


SPEC_NAMES = {"slot": "reader", "slot_budget_bytes": "retained_log_budget_bytes"}
"""Fields of Assign with another name in SubscriptionSpec."""


class Assign(Message):
    """Start this subscription in this epoch, or update the running one of the same epoch."""

    kind: Literal["assign"] = "assign"
    name: SubscriptionName
    epoch: Epoch
    source: Connection
    target: Connection
    tables: tuple[DeclaredTable, ...]
    slot: str
    desired: Literal["running", "paused", "stopped"] = "running"
    queue_mode: QueueMode = QueueMode.MEMORY
    queue_budget_bytes: int = 8 * 1024**3
    slot_budget_bytes: int = 16 * 1024**3
    capture: CaptureSpec | None = None
    """None: the default of the source's kind."""
    origin: OriginFilter = OriginFilter.ANY
    guard: GuardPolicy = GuardPolicy()
    batch: BatchPolicy = BatchPolicy()
    apply: ApplyPolicy = ApplyPolicy()
    schema_changes: SchemaPolicy = SchemaPolicy.APPLY
    copies: CopyPolicy = CopyPolicy()
    patterns: tuple[TablePattern, ...] = ()
    """The engine reports new tables of the source that match one of them."""
    dropped: frozenset[TableId] = frozenset()
    """Removed tables whose tables on the target are to be dropped."""

    def to_spec(self) -> SubscriptionSpec:
        """All but `kind` and `capture` are fields of the specification, two of them under names without a kind of source; the capture
        is the source's there."""
        names = {
            name: SPEC_NAMES.get(name, name) for name in type(self).model_fields if name not in {"kind", "capture"}
        }
        shared = {of_spec: getattr(self, name) for name, of_spec in names.items()}
        return SubscriptionSpec(**{**shared, "source": replace(self.source, capture=self.capture)})


class Desire(Message):
    """The user's desired state of the subscription."""

    kind: Literal["desire"] = "desire"
    subscription: str
    desired: Literal["running", "paused", "stopped"]


class Forget(Message):
    """The subscription was deleted: stop it, drop slot and publications, keep the target's tables.

    Answered by `forgotten`; may come twice.
    `assignment` says how to reach the databases: the engine may never have run it.
    """

    kind: Literal["forget"] = "forget"
    subscription: str
    assignment: Assign | None = None


class Demand(Message):
    """A query waits for `position`: seal the open batch once capture has reached it. A lower position than before is valid too."""

    kind: Literal["demand"] = "demand"
    subscription: str
    log: str = Field(default="", exclude_if=_is_empty)
    """Name of the log, where the source has several."""
    position: Position


class Reload(Message):
    """Copy tables again; `tables` None = all. May be sent twice with the same `request_id`. Answered by `reload` reports.

    `partitions`: only these partitions of the one table, as schema.name; `changed`: only those whose rows differ from the source's.
    None = the whole table.
    """

    kind: Literal["reload"] = "reload"
    subscription: str
    request_id: str
    tables: tuple[str, ...] | None = None
    partitions: tuple[str, ...] | Literal["changed"] | None = None


class Table(Message):
    """One table was added or changed (`spec`), or removed."""

    kind: Literal["table"] = "table"
    subscription: str
    table: str
    spec: DeclaredTable | None = None
    removed: bool = False
    drop: bool = False
    """With `removed`: its table on the target is dropped too. Answered by `table_dropped`."""


class Approve(Message):
    """The user approves the schema change that the table waits for. May be sent twice; ignored if the table waits for none.

    `reason`: the reason that the table had when the user approved; ignored if it has another one now.
    """

    kind: Literal["approve"] = "approve"
    subscription: str
    table: str
    reason: str | None = None


class Preflight(Question):
    kind: Literal["preflight"] = "preflight"
    connection: Connection
    role: Literal["source", "target"]
    tables: tuple[DeclaredTable, ...] = ()
    origin: OriginFilter = OriginFilter.ANY
    capture: CaptureSpec | None = None
    """The intended one of a source; None: the default of its kind."""


class Discover(Question):
    kind: Literal["discover"] = "discover"
    connection: Connection
    capture: CaptureSpec | None = Field(default=None, exclude_if=_is_none)
    """As of Preflight."""


class DdlCapture(Question):
    """Check, install or remove the DDL capture on a source. May be sent twice."""

    kind: Literal["ddl_capture"] = "ddl_capture"
    connection: Connection
    action: Literal["look", "install", "remove"] = "look"


class Now(Question):
    kind: Literal["now"] = "now"
    subscription: str


class Sequences(Question):
    """Advance the target's sequences to the source's values plus `margin` values; `tables` None = of all. May be sent twice."""

    kind: Literal["sequences"] = "sequences"
    subscription: str
    tables: tuple[str, ...] | None = None
    margin: int = 0


class Cancel(Message):
    """Cancel a request: its answer is not needed any more. Also ends a verification, reload or snapshot with this id."""

    kind: Literal["cancel"] = "cancel"
    request_id: str
    subscription: str | None = None
    table: str | None = None
    """For a reload: the table that it copies as a whole. A restarted engine may have resumed the copy without knowing the reload."""


Command = Annotated[
    Heartbeat
    | Sync
    | Assign
    | Desire
    | Forget
    | Demand
    | Reload
    | Table
    | Approve
    | Preflight
    | Discover
    | DdlCapture
    | ChangeTriggers
    | Now
    | Lag
    | Partitions
    | Query
    | ReadPoints
    | Sequences
    | Cycles
    | BeginCycle
    | RefusedRows
    | Ticket
    | Verify
    | Snapshot
    | DeleteSnapshot
    | Cancel,
    Field(discriminator="kind"),
]
COMMANDS: TypeAdapter[Command] = TypeAdapter(Command)


# Reports: engine to server


class AwayPart(Message):
    """Why a node cannot be read; fields as `engine.model.merged_logs.Away`."""

    since: datetime
    code: str
    reason: str


class Progress(SubscriptionReport):
    """Position of a subscription. `applied`: durable on the target, for every live table. A table's change of state is reported before the
    progress of the batch that caused it, in the same bundle or an earlier one.

    `run`: the engine's run that reached the position; `stream`: the last command stream that had begun when it was reported.
    """

    kind: Literal["progress"] = "progress"
    run: int = 0
    stream: str = ""
    source: Position | None = None
    captured: Position | None = None
    applied: Position
    source_of_logs: PositionOfLogs = Field(default_factory=dict, exclude_if=_is_empty)
    applied_of_logs: PositionOfLogs = Field(default_factory=dict, exclude_if=_is_empty)
    read_of_logs: PositionOfLogs = Field(default_factory=dict, exclude_if=_is_empty)
    late_logs: tuple[str, ...] = Field(default=(), exclude_if=_is_empty)
    """Those for which changes of other logs wait."""
    away_logs: Mapping[str, AwayPart] = Field(default_factory=dict, exclude_if=_is_empty)
    """Those that cannot be read."""
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    retained_bytes: int | None = None
    """Log that the slot retains on the source."""
    sealed_at: datetime | None = None
    committed_at: datetime | None = None
    """Times at which the batch that ends at `applied` was sealed, and committed on the target."""
    structure: Position | None = None
    structure_at: datetime | None = None
    """Position and time of the last check of the source's catalog after which every schema that it showed was in force."""
    cycle: LastCyclePart | None = Field(default=None, exclude_if=_is_none)
    """Of a source that has cycles."""
    at: datetime


class SubscriptionStateReport(SubscriptionReport):
    """`code`, `reason` and `remedy` are set if the state is `failed`. Positions of runs before `run` become invalid."""

    kind: Literal["subscription_state"] = "subscription_state"
    run: int = 0
    state: Literal["created", "starting", "running", "pausing", "paused", "stopping", "stopped", "failed"]
    code: str | None = None
    reason: str | None = None
    remedy: str | None = None


class TableStateReport(SubscriptionReport):
    """`schema`, `name`: the table on the source. `position`: from which on the state is in force, for states that have one.

    A parked table with a code and no reason was parked before this engine started: the reason reported earlier stays valid.
    """

    kind: Literal["table_state"] = "table_state"
    table: str
    schema_name: str = Field(alias="schema")
    name: str
    state: Literal["registered", "copying", "catching_up", "live", "paused", "reloading", "parked", "removed"]
    code: str | None = None
    reason: str | None = None
    remedy: str | None = None
    position: Position | None = None


class TableRenamed(SubscriptionReport):
    """The source's table was renamed to this name. Its table on the target keeps its name."""

    kind: Literal["table_renamed"] = "table_renamed"
    table: str
    schema_name: str = Field(alias="schema")
    name: str


class FoundTable(Message):
    """A table on the source. `identity`: its updates and deletes can be replicated without a change of the table."""

    schema_name: str = Field(alias="schema")
    name: str
    identity: bool


class TablesFound(SubscriptionReport):
    """Tables on the source that match a pattern and are not part of the subscription."""

    kind: Literal["tables_found"] = "tables_found"
    tables: tuple[FoundTable, ...]


class TableDropped(SubscriptionReport):
    """Result of dropping a removed table on the target: dropped, or `left` for this reason."""

    kind: Literal["table_dropped"] = "table_dropped"
    table: str
    left: str | None = None
    remedy: str | None = None


class RowsSetAside(SubscriptionReport):
    """Number of quarantined rows by table id. `whole`: all other tables have none."""

    kind: Literal["rows_set_aside"] = "rows_set_aside"
    counts: dict[str, int]
    whole: bool = False


class CopyProgress(SubscriptionReport):
    """Progress of a table's copy. `bytes`, `total_bytes`: of the source's storage; totals are estimates. `goes_on`: a resumed copy, which
    continues after its finished chunks; figures reported before stay valid until it has passed them."""

    kind: Literal["copy_progress"] = "copy_progress"
    table: str
    rows: int
    bytes: int
    percent: float | None = None
    eta_seconds: float | None = None
    total_rows: int | None = None
    total_bytes: int | None = None
    rows_per_second: float | None = None
    bytes_per_second: float | None = None
    goes_on: bool = False


class ColumnPart(Message):
    """A column; `type`: as the source prints it, `mapped`: the type on the target."""

    name: str
    type: str
    attnum: int
    nullable: bool
    mapped: str


class SchemaVersion(SubscriptionReport):
    """The table's schema at `position`, the end of the batch that contained the change.

    `changes`: differences from the previous schema, as text. `learnt`: found by a copy, announced by a relation record, reported by a DDL
    message (`position` is then the end of the transaction that changed it), or read from the source's catalog. `certain`: false if the
    catalog already showed a later schema, and columns were matched by name and type. `target`: the target's schema at a start, which is
    new to the server only if an earlier engine ended before it reported it.
    """

    kind: Literal["schema_version"] = "schema_version"
    table: str
    position: Position
    columns: tuple[ColumnPart, ...]
    key: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    learnt: Literal["copied", "log", "ddl_trigger", "catalog", "target"] = "log"
    certain: bool = True


class LedgerPart(Message):
    """The ledger of a batch: fields as `engine.model.ledger.BatchLedger`. `tables`: by table and outcome, without zeros."""

    captured: int | None = None
    left_out: int = 0
    tables: dict[str, dict[str, int]] = Field(default_factory=dict)


class BatchReport(SubscriptionReport):
    """One committed batch. `rows`: raw changes by operation. `seconds`: by stage (`capture_age`, `job`, `commit`).

    `mode`: how it was written to the target. `tuning`: the choices made for it and their inputs: `tasks`; `driver_setup_ms`,
    `spark_setup_ms` (cost of a job in each place before its first record); with `transactional` or `grouped` declared, `lanes`;
    with `grouped`, `group_size` and, unless that is declared, `commit_rate_low` and `commit_rate_high` (commits per second of the
    target's disk); with `auto`, `net_ms` and `single_ms` (expected time of the batch as net changes, and change by change) and
    `net_share`; with a PostgreSQL target `parts`, if there may be several, `copy_above_rows` (above this number of rows a table's rows
    go through a temporary table) and `copy_setup_ms` (the cost of that before its first row); with a DuckDB target `keys_found` and
    `keys_searched` (keys whose rows were found by their numbers, or searched for in a whole table), and `key_index_bytes`.
    `apply_calls`: by table and operation, the number of calls with at least 1, 10, 100 … rows.
    """

    kind: Literal["batch"] = "batch"
    batch: int
    after: Position
    end: Position
    transactions: int
    rows: dict[str, int] = Field(default_factory=dict)
    net_rows: int = 0
    bytes: int = 0
    path: Literal["driver", "spark"]
    mode: ApplyMode = ApplyMode.BATCH
    demanded: bool = False
    seconds: dict[str, float] = Field(default_factory=dict)
    tables: int = 0
    tuning: dict[str, float] = Field(default_factory=dict)
    apply_calls: dict[str, dict[str, dict[str, int]]] = Field(default_factory=dict)
    ledger: LedgerPart | None = None
    committed_at: datetime


class EventReport(SubscriptionReport):
    kind: Literal["event"] = "event"
    severity: Literal["info", "warning", "error"]
    code: str
    subject: str
    detail: str
    remedy: str | None = None


class Answer(Message):
    """The end of a request: `body` if it succeeded, else `problem`."""

    kind: Literal["answer"] = "answer"
    request_id: str
    ok: bool
    body: dict[str, Any] = Field(default_factory=dict)
    problem: Problem | None = None


class ReloadReport(SubscriptionReport):
    """Progress or end of a reload. `goes_on`: as in CopyProgress."""

    kind: Literal["reload"] = "reload"
    request_id: str
    state: Literal["running", "succeeded", "failed", "cancelled"]
    rows: int | None = None
    bytes: int | None = None
    percent: float | None = None
    eta_seconds: float | None = None
    total_rows: int | None = None
    total_bytes: int | None = None
    rows_per_second: float | None = None
    goes_on: bool = False
    position: Position | None = None
    problem: Problem | None = None
    partitions: tuple[LoadedPartitionPart, ...] | None = None


class TicketReport(SubscriptionReport):
    """State of a ticket. `position`: of its marker in the log; the marker's commit ends at or before `until`.

    `written_at` is by the source's clock, the other times by the engine's: when the marker reached the run, its batch was sealed, the
    batch's net changes were computed, and it was committed. `transactions`, `commands`: number of committed transactions, and of row
    changes, that reached the run before the marker, since its start (`counted_since`). Row changes include streamed ones that were
    rolled back later, and repeated ones after a lost connection. `code`, `reason`, `remedy`: why the ticket was lost.
    """

    kind: Literal["ticket"] = "ticket"
    ticket_id: str
    state: TicketState
    position: Position | None = None
    until: Position | None = None
    written_at: datetime | None = None
    captured_at: datetime | None = None
    sealed_at: datetime | None = None
    computed_at: datetime | None = None
    applied_at: datetime | None = None
    transactions: int | None = None
    commands: int | None = None
    counted_since: datetime | None = None
    code: str | None = None
    reason: str | None = None
    remedy: str | None = None


class Forgotten(Message):
    """A deleted subscription was removed; `left` names what could not be removed, as text."""

    kind: Literal["forgotten"] = "forgotten"
    subscription: str
    left: tuple[str, ...] = ()


Report = Annotated[
    Progress
    | SubscriptionStateReport
    | TableStateReport
    | TablesFound
    | TableDropped
    | TableRenamed
    | RowsSetAside
    | CopyProgress
    | SchemaVersion
    | BatchReport
    | EventReport
    | Answer
    | Verification
    | ReloadReport
    | TicketReport
    | SnapshotReport
    | SnapshotDeleted
    | Forgotten,
    Field(discriminator="kind"),
]
REPORTS: TypeAdapter[Report] = TypeAdapter(Report)


class Registration(Message):
    """Registers an engine process. `instance` is new for each process; `name` persists over restarts."""

    instance: str
    name: str
    version: str
    protocol: int = PROTOCOL


class Registered(Message):
    """The server's answer. `report_sequence`: the last bundle of this engine that was processed."""

    engine_id: str
    lease_seconds: float
    heartbeat_seconds: float
    epochs: Mapping[str, int] = Field(default_factory=dict)
    report_sequence: int = 0


class ReportBundle(Message):
    """Reports in order. The server ignores a bundle whose `sequence` it has received before, so it can be sent again."""

    sequence: int
    reports: tuple[Report, ...]


class PositionBundle(Message):
    """Positions that are applied while the server still writes the bundle with the sequence `after`, the last that was sent.

    They end waits and are not stored; a later bundle contains them too. Nothing that waits depend on, such as a table's state, is reported
    between the two.
    """

    after: int
    positions: tuple[Progress, ...]
