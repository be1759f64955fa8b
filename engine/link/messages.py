"""Messages of the control channel, shared by server and engine: commands go down the stream, reports come up.

On the wire every message is one JSON object whose `kind` names its type; positions are text. Unknown fields are
ignored, so that a server and an engine one release apart understand each other. Secrets are written only by `encode`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from engine.link.declared_parts import ConnectionPart, TableNamePart, TablePart
from engine.link.message import Message, Position
from engine.link.partition_parts import LoadedPartitionPart, Partitions
from engine.link.quarantine_parts import RefusedRows
from engine.link.query_parts import Query
from engine.link.ticket_parts import Ticket
from engine.model.identity import Epoch, SubscriptionName, TableId
from engine.model.patterns import TablePattern
from engine.model.sequences import SequenceOutcome
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
"""Raised when an older engine could misunderstand a newer server, or the other way round."""

# Parts of messages


class Problem(Message):
    """Why a request failed, in the words that the user gets."""

    status: int
    code: str
    detail: str
    remedy: str
    tables: tuple[str, ...] = ()
    """Ids of the tables that are to blame."""


class FindingPart(Message):
    """One result of a preflight check."""

    severity: Literal["error", "warning", "info"]
    code: str
    what: str
    remedy: str
    sql: tuple[str, ...] = ()


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
    problems: tuple[FindingPart, ...] = ()


class PreflightBody(Message):
    """Body of the answer to `preflight`."""

    findings: tuple[FindingPart, ...]


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
    """Body of the answer to `now`: a position behind every commit that was acknowledged before the command arrived.

    `structure`: what the source's catalog showed there, at or behind the position, is in force where the position is applied, for all
    tables that were live when the command arrived. An engine that does not say so has not looked.
    """

    position: Position
    structure: Position | None = None
    structure_at: datetime | None = None


class SequenceValuePart(Message):
    """Where a sequence stands; fields as `engine.model.sequences.SequenceValue`."""

    last: int
    called: bool


class SequencePart(Message):
    """What became of one sequence. Without `target_sequence` none was looked at: `outcome` says why."""

    table: str
    source: TableNamePart
    column: str
    source_sequence: TableNamePart
    source_value: SequenceValuePart
    target_table: TableNamePart
    target_sequence: TableNamePart | None = None
    before: SequenceValuePart | None = None
    after: SequenceValuePart | None = None
    outcome: SequenceOutcome


class SequencesBody(Message):
    """Body of the answer to `sequences`."""

    sequences: tuple[SequencePart, ...]


# Commands: server to engine


class Heartbeat(Message):
    """Nothing to do; the server is there. `at_most_s` later the next line comes."""

    kind: Literal["heartbeat"] = "heartbeat"
    at_most_s: float = 5.0


class Sync(Message):
    """The first line of every stream but for heartbeats: this engine's subscriptions with their epochs; it lets go of all others.

    At the beginning an `assign` for each follows; later it comes when one was taken away. Where the engine runs it
    in this epoch already, that is its newest wording.
    """

    kind: Literal["sync"] = "sync"
    subscriptions: dict[str, int]
    stream: str = ""
    """The stream that begins; the engine names it with each position from here on."""


class Assign(Message):
    """Take this subscription in this epoch, or bring the running one of the same epoch up to date."""

    kind: Literal["assign"] = "assign"
    name: str
    epoch: int
    source: ConnectionPart
    target: ConnectionPart
    tables: tuple[TablePart, ...]
    slot: str
    desired: Literal["running", "paused", "stopped"] = "running"
    queue_mode: QueueMode = QueueMode.MEMORY
    queue_budget_bytes: int = 8 * 1024**3
    slot_budget_bytes: int = 16 * 1024**3
    capture: CaptureSpec | None = None
    """None: as is usual for the source's kind."""
    origin: OriginFilter = OriginFilter.ANY
    guard: GuardPolicy = GuardPolicy()
    batch: BatchPolicy = BatchPolicy()
    apply: ApplyPolicy = ApplyPolicy()
    schema_changes: SchemaPolicy = SchemaPolicy.APPLY
    copies: CopyPolicy = CopyPolicy()
    patterns: tuple[TablePattern, ...] = ()
    """Tables that match one, and appear on the source, are to be reported."""
    dropped: tuple[str, ...] = ()
    """Tables that were removed, and whose tables on the target are to go too."""

    def to_spec(self) -> SubscriptionSpec:
        return SubscriptionSpec(
            name=SubscriptionName(self.name),
            epoch=Epoch(self.epoch),
            source=self.source.to_spec(self.capture),
            target=self.target.to_spec(),
            tables=tuple(table.to_spec() for table in self.tables),
            slot=self.slot,
            desired=self.desired,
            queue_mode=self.queue_mode,
            queue_budget_bytes=self.queue_budget_bytes,
            slot_budget_bytes=self.slot_budget_bytes,
            origin=self.origin,
            guard=self.guard,
            batch=self.batch,
            apply=self.apply,
            schema_changes=self.schema_changes,
            copies=self.copies,
            patterns=self.patterns,
            dropped=frozenset(TableId(table) for table in self.dropped),
        )


class Desire(Message):
    """What the user wants the subscription to do."""

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
    """Somebody waits for `position`: seal the open batch once capture has passed it. A lower one than before counts too."""

    kind: Literal["demand"] = "demand"
    subscription: str
    position: Position


class Reload(Message):
    """Copy tables anew; `tables` None = all. May come twice with one `request_id`. Answered by `reload` reports.

    `partitions`: these alone of the one table, as schema.name; `changed`: those that differ from the source's. None = all of it.
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
    spec: TablePart | None = None
    removed: bool = False
    drop: bool = False
    """With `removed`: its table on the target goes too. Answered by `table_dropped`."""


class Approve(Message):
    """The table may follow the change that it waits with. May come twice; one that waits with none is left alone.

    `reason`: what the table waited for when somebody approved of it; where that is something else by now, nothing happens.
    """

    kind: Literal["approve"] = "approve"
    subscription: str
    table: str
    reason: str | None = None


class Preflight(Message):
    kind: Literal["preflight"] = "preflight"
    request_id: str
    connection: ConnectionPart
    role: Literal["source", "target"]
    tables: tuple[TablePart, ...] = ()
    origin: OriginFilter = OriginFilter.ANY


class Discover(Message):
    kind: Literal["discover"] = "discover"
    request_id: str
    connection: ConnectionPart


class DdlCapture(Message):
    """Look at what tells changes of structure in a source's log, install it, or remove it. May come twice."""

    kind: Literal["ddl_capture"] = "ddl_capture"
    request_id: str
    connection: ConnectionPart
    action: Literal["look", "install", "remove"] = "look"


class Now(Message):
    kind: Literal["now"] = "now"
    request_id: str
    subscription: str


class Sequences(Message):
    """Bring the target's sequences to where the source's stand, `margin` values beyond; `tables` None = of all. May come twice."""

    kind: Literal["sequences"] = "sequences"
    request_id: str
    subscription: str
    tables: tuple[str, ...] | None = None
    margin: int = 0


class Verify(Message):
    """Compare tables at a cut; `tables` None = all live ones. May come twice. Answered by `verification` reports."""

    kind: Literal["verify"] = "verify"
    subscription: str
    verification_id: str
    tables: tuple[str, ...] | None = None


class Cancel(Message):
    """Nobody waits for this request any more; also ends a verification or reload of this id."""

    kind: Literal["cancel"] = "cancel"
    request_id: str
    subscription: str | None = None
    table: str | None = None
    """Of a reload: the table that it copied as a whole. The engine may go on with the copy without knowing the reload."""


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
    | Now
    | Partitions
    | Query
    | Sequences
    | RefusedRows
    | Ticket
    | Verify
    | Cancel,
    Field(discriminator="kind"),
]
COMMANDS: TypeAdapter[Command] = TypeAdapter(Command)


# Reports: engine to server


class SubscriptionReport(Message):
    """Base of reports on a subscription; one of an older epoch than the server's is passed over."""

    subscription: str
    epoch: int


class Progress(SubscriptionReport):
    """Where a subscription stands. `applied` is durable on the target, for every table that is live; a table's change of state is
    reported in front of the progress of the batch that brought it, in the same bundle or an earlier one.

    `run`: the run of the engine whose position this is; `stream`: the last stream of commands that had begun when it was reported.
    """

    kind: Literal["progress"] = "progress"
    run: int = 0
    stream: str = ""
    source: Position | None = None
    captured: Position | None = None
    applied: Position
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    retained_bytes: int | None = None
    """Log that the slot holds back on the source."""
    sealed_at: datetime | None = None
    committed_at: datetime | None = None
    """When the batch that ends at `applied` was sealed, and committed on the target."""
    structure: Position | None = None
    structure_at: datetime | None = None
    """Where and when the source's catalog was last looked at with everything that it showed in force."""
    at: datetime


class SubscriptionStateReport(SubscriptionReport):
    """`code`, `reason` and `remedy` are set where the state is `failed`. Positions of runs before `run` count no more."""

    kind: Literal["subscription_state"] = "subscription_state"
    run: int = 0
    state: Literal["created", "starting", "running", "pausing", "paused", "stopping", "stopped", "failed"]
    code: str | None = None
    reason: str | None = None
    remedy: str | None = None


class TableStateReport(SubscriptionReport):
    """`schema`, `name`: the table on the source. `position`: from where on the state holds, where one belongs to it.

    A table that is parked with a code and no reason was so before this engine began: the reason that was told before holds.
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
    """The source's table goes by this name now. It stays where it is on the target."""

    kind: Literal["table_renamed"] = "table_renamed"
    table: str
    schema_name: str = Field(alias="schema")
    name: str


class FoundTable(Message):
    """A table on the source. `identity`: its updates and deletes can be followed as it is."""

    schema_name: str = Field(alias="schema")
    name: str
    identity: bool


class TablesFound(SubscriptionReport):
    """Tables on the source that a pattern takes and the engine was not told of."""

    kind: Literal["tables_found"] = "tables_found"
    tables: tuple[FoundTable, ...]


class TableDropped(SubscriptionReport):
    """What became of the table on the target of one that was removed with it: gone, or `left` for this reason."""

    kind: Literal["table_dropped"] = "table_dropped"
    table: str
    left: str | None = None
    remedy: str | None = None


class RowsSetAside(SubscriptionReport):
    """How many rows of tables stand aside on the target, by table id. `whole`: none of any other table."""

    kind: Literal["rows_set_aside"] = "rows_set_aside"
    counts: dict[str, int]
    whole: bool = False


class CopyProgress(SubscriptionReport):
    """How far a table's copy is. `bytes` are of the source's storage, as are `total_bytes`; totals are estimates. `goes_on`: it goes on
    behind what is there already, and figures that were told before hold until it has passed them."""

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
    """A column; `type` as the source prints it, `mapped` the type on the target."""

    name: str
    type: str
    attnum: int
    nullable: bool
    mapped: str


class SchemaVersion(SubscriptionReport):
    """The table has this structure at `position`, the end of the batch that told of it.

    `changes`: what is different from the structure before, in words. `learnt`: found so by a copy, announced by the log, told by the
    source's DDL trigger (the transaction that made it so ends at `position` then), or seen in the source's catalog. `certain`: false
    where the catalog was further on, and columns were matched by name and type. `target`: as the target has it at a start, which is
    news only where an engine that ended then had not told.
    """

    kind: Literal["schema_version"] = "schema_version"
    table: str
    position: Position
    columns: tuple[ColumnPart, ...]
    key: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    learnt: Literal["copied", "log", "ddl_trigger", "catalog", "target"] = "log"
    certain: bool = True


class BatchReport(SubscriptionReport):
    """One committed batch. `rows`: raw changes by operation. `seconds`: by stage (`capture_age`, `job`, `commit`).

    `mode`: how it was written to the target. `tuning`: what was chosen for it and what decided: `tasks`, and `driver_setup_ms` and
    `spark_setup_ms` (what a job costs on each path before its first record); with `transactional` or `grouped` declared, `lanes`;
    with `grouped`, `group_size` and, where that is not declared, `commit_rate_low` and `commit_rate_high` (commits a second that
    the target's disk takes); with `auto`, `net_ms` and `single_ms` (what the batch was expected to take as net changes, and change
    by change) and `net_share`; with a PostgreSQL target `parts`, where there may be more than one, `copy_above_rows` (more rows of a
    table go through a temporary table) and `copy_setup_ms` (what that costs before its first row).
    `apply_calls`: by table and operation, how many times it was given at least 1, 10, 100 … rows.
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
    committed_at: datetime


class EventReport(SubscriptionReport):
    kind: Literal["event"] = "event"
    severity: Literal["info", "warning", "error"]
    code: str
    subject: str
    detail: str
    remedy: str | None = None


class Answer(Message):
    """The end of a request: `body` where it went well, else `problem`."""

    kind: Literal["answer"] = "answer"
    request_id: str
    ok: bool
    body: dict[str, Any] = Field(default_factory=dict)
    problem: Problem | None = None


class Difference(Message):
    key: tuple[str | None, ...] = ()
    kind: Literal["missing", "extra", "different"]


class VerifiedTable(Message):
    table: str
    equal: bool
    position: Position | None = None
    """Where it was compared: behind the verification's own position where it could not be read there."""
    source_rows: int
    target_rows: int
    set_aside: int = 0
    """Rows of it that stand aside: known differences."""
    differing: tuple[Difference, ...] = ()
    """At most 100 differences."""


class Verification(SubscriptionReport):
    """Progress or end of a verification. `tables`: those compared so far, of `total`."""

    kind: Literal["verification"] = "verification"
    verification_id: str
    state: Literal["running", "succeeded", "failed", "cancelled"]
    position: Position | None = None
    tables: tuple[VerifiedTable, ...] = ()
    total: int | None = None
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
    """All that is known of a ticket so far. `position`: of its marker in the log; its commit ends at or before `until`.

    `written_at` is by the source's clock, the other times by the engine's: when the marker reached the run, its batch was sealed, the
    batch's net changes were known, and it was committed. `transactions`, `commands`: committed transactions, and row changes, that had
    reached the run before the marker, since the run began (`counted_since`). Among the changes are some that were rolled back later,
    where the source sends them early, and some twice, where a connection to it was lost. `code`, `reason`, `remedy`: why it is lost.
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
    """A deleted subscription is gone; `left` names what could not be removed, in words."""

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
    | Forgotten,
    Field(discriminator="kind"),
]
REPORTS: TypeAdapter[Report] = TypeAdapter(Report)


class Registration(Message):
    """An engine process introduces itself. `instance` is new for each process; `name` stays over its restarts."""

    instance: str
    name: str
    version: str
    protocol: int = PROTOCOL


class Registered(Message):
    """The server's answer. `report_sequence`: the last bundle of this engine that was taken in."""

    engine_id: str
    lease_seconds: float
    heartbeat_seconds: float
    epochs: Mapping[str, int] = Field(default_factory=dict)
    report_sequence: int = 0


class ReportBundle(Message):
    """Reports in order. A bundle whose `sequence` was taken in before is passed over, so it can be sent again."""

    sequence: int
    reports: tuple[Report, ...]
