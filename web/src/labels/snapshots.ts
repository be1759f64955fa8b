import type { Snapshot, SnapshotFormat, SnapshotRequest, SnapshotSchedule, SnapshotScheduleView } from "../api/snapshots";
import type { Tone } from "./tone";
import { asTyped, type TypedDuration, typedSeconds } from "./typedDuration";

interface Words {
  tone: Tone;
  word: string;
}

const STATES: Record<string, Words> = {
  queued: { tone: "busy", word: "waiting" },
  running: { tone: "busy", word: "being written" },
  succeeded: { tone: "good", word: "complete" },
  failed: { tone: "bad", word: "failed" },
  cancelled: { tone: "idle", word: "cancelled" },
};

/** How a snapshot is, or how it ended. */
export function snapshotWords({ state, deleting, problem }: Pick<Snapshot, "state" | "deleting" | "problem">): Words {
  if (deleting) return problem === null ? { tone: "busy", word: "being deleted" } : { tone: "warn", word: "not deleted yet" };
  return STATES[state] ?? { tone: "unknown", word: `unknown (${state})` };
}

const FORMATS: Record<string, string> = { parquet: "Parquet", duckdb: "DuckDB" };

export const formatWords = (format: string): string => FORMATS[format] ?? format;

/** What is typed and chosen of what is written. */
export interface Options {
  format: SnapshotFormat;
  which: "all" | "some";
  /** Names as JSON, `{"schema": …, "name": …}`. */
  picked: ReadonlySet<string>;
  leaveOut: boolean;
  limit: TypedDuration;
}

export const EMPTY: Options = {
  format: "parquet",
  which: "all",
  picked: new Set(),
  leaveOut: false,
  limit: { number: "1", unit: "hours" },
};

export const hasTables = ({ which, picked }: Options): boolean => which === "all" || picked.size > 0;

type Written = Pick<SnapshotRequest & SnapshotSchedule, "format" | "tables" | "on_unavailable" | "limit_seconds">;

export const bodyOf = ({ format, which, picked, leaveOut, limit }: Options): Written => ({
  format,
  tables: which === "all" ? null : [...picked].map((key) => JSON.parse(key) as { schema: string; name: string }),
  on_unavailable: leaveOut ? "leave_out" : "error",
  limit_seconds: typedSeconds(limit),
});

/** What is typed and chosen of a schedule. */
export interface TypedSchedule {
  every: TypedDuration;
  keep: string;
  options: Options;
}

export const NEW_SCHEDULE: TypedSchedule = { every: { number: "1", unit: "hours" }, keep: "24", options: EMPTY };

export const scheduleBody = ({ every, keep, options }: TypedSchedule): SnapshotSchedule => ({
  ...bodyOf(options),
  interval_seconds: typedSeconds(every),
  keep: Number(keep),
});

/** A schedule as the form has it. */
export function typedOf({ interval_seconds, keep, format, tables, on_unavailable, limit_seconds }: SnapshotScheduleView): TypedSchedule {
  const picked = new Set((tables ?? []).map(({ schema, name }) => JSON.stringify({ schema, name })));
  const options: Options = {
    format: format ?? EMPTY.format,
    which: tables == null ? "all" : "some",
    picked,
    leaveOut: on_unavailable === "leave_out",
    limit: limit_seconds === undefined ? EMPTY.limit : asTyped(limit_seconds),
  };
  return { every: asTyped(interval_seconds), keep: String(keep ?? NEW_SCHEDULE.keep), options };
}
