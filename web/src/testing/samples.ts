/** Answers of the API as tests need them: whole and valid, with what a test is about put in place of the defaults. */
import type {
  Comparison,
  Connection,
  ConnectionKind,
  Event,
  Node,
  Partition,
  SourceTable,
  Subscription,
  Table,
  Verification,
  VerifiedTable,
} from "../api/client";
import type { Cycle } from "../api/cycles";
import type { HistoryPoint } from "../api/history";
import type { ReadPoint } from "../api/readPoints";
import type { Snapshot, SnapshotScheduleView } from "../api/snapshots";
import type { Ticket } from "../api/tickets";
import type { FreshnessGoal } from "../labels/goals";

export const NOW = "2026-05-04T10:00:00Z";

/** The moment so many seconds after `NOW`. */
export const later = (seconds: number): string => new Date(Date.parse(NOW) + seconds * 1000).toISOString();

export const subscription = (changes: Partial<Subscription> = {}): Subscription =>
  ({
    name: "copy",
    source: "shop",
    target: "mart",
    slot: "penstock_copy",
    state: "running",
    desired_state: "running",
    health: { status: "running", word: "running", reason: "All 3 tables are live.", remedy: null, following: true, aspects: [] },
    lag: { seconds: 0.5, bytes: 2048, tables: 3 },
    consistency: "transactions",
    capture: { slot_budget_bytes: 1000 },
    freshness: {},
    retained_bytes: 250,
    table_states: { live: 3 },
    tables: [],
    positions: {},
    created_at: NOW,
    updated_at: NOW,
    ...changes,
  }) as Subscription;

export const node = (changes: Partial<Node> = {}): Node => ({
  name: "n1",
  applied: "0/16B3748",
  read: "0/16B3780",
  source_end: "0/16B3780",
  lag_bytes: 56,
  late: false,
  away: null,
  at: NOW,
  ...changes,
});

export const cycle = (changes: Partial<Cycle> = {}): Cycle => {
  const counts = { rows_read: 12, rows_hashed: 0, rows_shared: 0, bytes_read: 2048, inserted: 10, updated: 2, deleted: 0 };
  const orders = {
    schema: "public",
    name: "orders",
    method: "incremental",
    first: false,
    copied_again: false,
    since_stamp: false,
    known_before: null,
    fault: null,
    fault_detail: null,
    ...counts,
  };
  return {
    number: 7,
    position: "c7",
    state: "applied",
    taken_at: NOW,
    ended_at: later(2),
    seconds: 2,
    one_snapshot: true,
    ...counts,
    fault: null,
    fault_detail: null,
    fault_table: null,
    source_reads: {},
    tables: [{ ...orders, ranges: 0, ranges_different: 0, seconds: 1.5, snapshots: 1 }],
    ...changes,
  };
};

export const table = (changes: Partial<Table> = {}): Table =>
  ({
    id: "t1",
    schema: "public",
    name: "orders",
    state: "live",
    desired_state: "running",
    health: { status: "running", word: "live", reason: null, following: true },
    target: { schema: "public", name: "orders" },
    copied: { rows: 10, bytes: 4096, total_rows: null, total_bytes: null, percent: null, eta_seconds: null, rows_per_second: null },
    columns: {},
    key: ["id"],
    operations: ["insert", "update", "delete"],
    insert_only: false,
    into_existing: false,
    created_at: NOW,
    ...changes,
  }) as Table;

export const verification = (changes: Partial<Verification> = {}): Verification => ({
  id: "v1",
  state: "succeeded",
  trigger: "user",
  repair: "none",
  equal: true,
  tables: [],
  tables_done: 0,
  tables_total: null,
  left_out: [],
  position: "0/16B3748",
  problem: null,
  created_at: NOW,
  ended_at: later(3),
  ...changes,
});

export const comparison = (changes: Partial<Comparison> = {}): Comparison => ({
  position: "0/16B3748",
  at: NOW,
  method: "rows",
  equal: true,
  source_rows: 1000,
  target_rows: 1000,
  verification: "v1",
  before_copy: false,
  overdue: false,
  ...changes,
});

export const verified = (changes: Partial<VerifiedTable> = {}): VerifiedTable => ({
  id: "t1",
  schema: "public",
  name: "orders",
  equal: true,
  source_rows: 10,
  target_rows: 10,
  differing: [],
  set_aside: 0,
  ...changes,
});

export const snapshot = (changes: Partial<Snapshot> = {}): Snapshot => ({
  id: "n1",
  state: "succeeded",
  deleting: false,
  format: "parquet",
  scheduled: false,
  position: "0/16B3748",
  commit_time: NOW,
  name: "0-16B3748",
  folder: "/data/snapshots/copy/0-16B3748",
  bytes: 2048,
  tables: [{ id: "t1", schema: "public", name: "orders", file: "public.orders.parquet", rows: 10, schema_version: "1", rows_set_aside: 0 }],
  left_out: [],
  receipt: null,
  problem: null,
  created_at: NOW,
  ended_at: later(3),
  ...changes,
});

export const snapshotSchedule = (changes: Partial<SnapshotScheduleView> = {}): SnapshotScheduleView => ({
  interval_seconds: 5_400,
  keep: 12,
  format: "duckdb",
  tables: [{ schema: "public", name: "orders" }],
  on_unavailable: "leave_out",
  limit_seconds: 600,
  next_at: later(60),
  ...changes,
});

export const readPoint = (changes: Partial<ReadPoint> = {}): ReadPoint => ({
  name: "month-end",
  state: "held",
  reason: null,
  position: "0/16B3748",
  committed_at: NOW,
  created_at: NOW,
  expires_at: later(600),
  tables: [{ id: "t1", schema: "public", name: "orders", target: { schema: "public", name: "orders" }, schema_version: 1, complete: true }],
  ...changes,
});

export const partition = (changes: Partial<Partition> = {}): Partition => ({
  name: "public.orders_06",
  parent: "public.orders",
  has_rows: true,
  bound: "FOR VALUES IN (6)",
  reloadable: true,
  obstacle: null,
  generation: 1,
  reason: "copied",
  position: "0/16B3748",
  loaded_at: NOW,
  ...changes,
});

export const goalSample = (changes: Partial<FreshnessGoal> = {}): FreshnessGoal => ({
  table: null,
  goal: { lag_seconds: 10, percent: 99.5, window_hours: 168, count_pauses: true },
  measured_since: NOW,
  measured_to: later(604_800),
  met: true,
  compliance_percent: 99.871,
  shares_seconds: { fresh: 604_020, late: 720, unknown: 60, excluded: 0, unmeasured: 0 },
  budget: { total_seconds: 3024, used_seconds: 780, left_seconds: 2244 },
  burn_rate: { last_hour: 0, last_6_hours: 2.2 },
  alarms: [],
  late_since: null,
  worst: { begin: later(3600), end: later(4080), seconds: 480 },
  ...changes,
});

export const event = (changes: Partial<Event> = {}): Event =>
  ({ id: "e1", at: NOW, kind: "table_live", severity: "info", detail: "It is live.", ...changes }) as Event;

export const point = (changes: Partial<HistoryPoint> = {}): HistoryPoint =>
  ({
    at: NOW,
    seconds: 10,
    batches: 0,
    transactions: 0,
    rows: {},
    net_rows: 0,
    stage_seconds: {},
    log_bytes: 0,
    log_bytes_per_second: { source: null, captured: null, applied: null },
    lag_bytes: null,
    lag_seconds: null,
    retained_bytes: null,
    unread_bytes: null,
    unapplied_bytes: null,
    ...changes,
  }) as HistoryPoint;

export const ticket = (changes: Partial<Ticket> = {}): Ticket =>
  ({
    id: "k1",
    name: null,
    state: "applied",
    created_at: NOW,
    durations: { capture_ms: 1, seal_ms: 2, compute_ms: 3, apply_ms: 4, total_ms: 10 },
    times: { captured_at: NOW, sealed_at: NOW, computed_at: NOW, applied_at: NOW },
    ...changes,
  }) as Ticket;

/** A capture by queries, for a kind of source. */
export const QUERIES: ConnectionKind["captures"][number] = {
  kind: "query_diff",
  title: "Queries",
  description: "Queries read the tables.",
  by_triggers: false,
  table_options: ["flag_column", "key"],
  settings: {
    $defs: {
      TableDetection: {
        properties: {
          method: {
            anyOf: [{ enum: ["incremental", "row_checksum", "outer_join", "timestamp", "timestamp_delete_flag"] }, { type: "null" }],
            description: "As method of the capture.",
          },
          stamp_column: { description: "A column of times." },
          flag_column: { description: "A column of flags." },
          sweep_every: { description: "One of so many cycles compares all rows." },
          key: { description: "Columns that identify a row." },
          columns: { description: "The types of columns." },
        },
      },
    },
    properties: {
      kind: { const: "query_diff", type: "string" },
      every_seconds: { type: "integer", title: "Cycle every", description: "Seconds.", default: 300 },
      method: { enum: ["incremental", "row_checksum"], type: "string", title: "How changes are found", default: "incremental" },
      tables: { type: "object" },
    },
  },
};

export const KINDS: ConnectionKind[] = [
  {
    kind: "postgres",
    title: "PostgreSQL",
    description: "A PostgreSQL database.",
    source: true,
    target: true,
    embedded: false,
    settings: {},
    secrets: {},
    captures: [
      {
        kind: "postgres_log",
        title: "Source's log",
        description: "Its log is read.",
        by_triggers: false,
        table_options: [],
        settings: {
          $defs: {
            Guard: {
              properties: {
                warn_share: { type: "number", title: "Warn Share", description: "An event warns." },
                drop_slot: { type: "boolean", title: "Drop Slot", description: "If false, it stays." },
              },
            },
            Origin: { enum: ["any", "none"], type: "string", title: "Origin", description: "The type's." },
          },
          properties: {
            kind: { const: "postgres_log", type: "string" },
            slot_budget_bytes: { type: "integer", title: "Slot Budget Bytes", description: "Log that may be retained." },
            origin: { $ref: "#/$defs/Origin", description: "Which changes are followed." },
            guard: { $ref: "#/$defs/Guard" },
          },
        },
      },
    ],
  },
  {
    kind: "duckdb",
    title: "DuckDB",
    description: "A DuckDB file.",
    source: false,
    target: true,
    embedded: true,
    settings: {},
    secrets: {},
    captures: [],
  },
];

/** A kind whose connections consist of others. */
export const NODES: ConnectionKind = {
  kind: "partitioned",
  title: "Partitioned PostgreSQL",
  description: "Several databases.",
  source: true,
  target: false,
  embedded: false,
  settings: {
    properties: {
      nodes: {
        type: "array",
        title: "Nodes",
        description: "The order counts.",
        minItems: 2,
        maxItems: 3,
        items: {
          type: "object",
          properties: {
            name: { type: "string", title: "Name", description: "What the node is called." },
            connection: { type: "string", title: "Connection", description: "To its database.", connectionKind: "postgres" },
          },
          required: ["name", "connection"],
        },
      },
    },
    required: ["nodes"],
  },
  secrets: {},
  captures: [
    {
      kind: "postgres_logs",
      title: "Logs of the nodes",
      description: "Their logs are merged.",
      by_triggers: false,
      table_options: [],
      settings: {},
    },
  ],
};

export const connection = (changes: Partial<Connection> = {}): Connection => ({
  name: "shop",
  kind: "postgres",
  settings: { host: "db", port: 5432, database: "shop", user: "penstock" },
  secrets_set: ["password"],
  created_at: NOW,
  updated_at: NOW,
  ...changes,
});

export const sourceTable = (changes: Partial<SourceTable> = {}): SourceTable =>
  ({
    schema: "public",
    name: "orders",
    bytes: 1,
    rows_estimate: 1,
    identity: "d",
    key: ["id"],
    columns: [],
    partitioned: false,
    problems: [],
    ...changes,
  }) as SourceTable;
