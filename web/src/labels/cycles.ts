import type { Subscription } from "../api/client";
import type { Cycle, CycleTable } from "../api/cycles";
import { count, some } from "./numbers";
import type { Tone } from "./tone";

/** Whether its tables are read again and again, and compared. */
export const hasCycles = ({ consistency }: Pick<Subscription, "consistency">): boolean =>
  consistency === "snapshots" || consistency === "ranges";

/** Which states of the source readers see. */
export function consistencyWords(consistency: string): string {
  switch (consistency) {
    case "transactions":
      return "every transaction, in the order of commits";
    case "windows":
      return "states a fraction of a second apart";
    case "snapshots":
      return "the state of each cycle";
    case "ranges":
      return "each table as it was during a cycle";
    default:
      return `unknown (${consistency})`;
  }
}

const STATES: Record<Cycle["state"], { tone: Tone; word: string }> = {
  requested: { tone: "busy", word: "begins soon" },
  running: { tone: "busy", word: "reads" },
  captured: { tone: "busy", word: "on its way to the target" },
  applied: { tone: "good", word: "on the target" },
  failed: { tone: "bad", word: "failed" },
};

export const cycleState = (state: Cycle["state"]): { tone: Tone; word: string } =>
  STATES[state] ?? { tone: "unknown", word: `unknown (${state})` };

const METHODS: Record<string, string> = {
  incremental: "all rows are read",
  row_checksum: "the database hashes the rows; those that changed are read",
  range_checksum: "the database hashes ranges of the key; of those that differ, the rows that changed are read",
  outer_join: "the database joins the table with a copy of it; the rows that differ are read",
};

/** How changed rows are found, in words. */
export const methodWords = (method: string): string => METHODS[method] ?? method;

/** "12 inserted, 3 deleted", or "none". */
export function changesWords({ inserted, updated, deleted }: Pick<Cycle, "inserted" | "updated" | "deleted">): string {
  const found = [
    [inserted, "inserted"],
    [updated, "updated"],
    [deleted, "deleted"],
  ].filter(([number]) => number !== 0);
  return found.length === 0 ? "none" : found.map(([number, word]) => `${count(Number(number))} ${word}`).join(", ");
}

type Read = Pick<Cycle, "rows_read" | "rows_hashed" | "rows_shared">;

/** What was read of it: "120,000 rows", "12 rows, hashes of 120,000", "0 rows, 120,000 shared". */
export const readWords = ({ rows_read, rows_hashed, rows_shared }: Read): string => {
  const hashes = rows_hashed === 0 ? "" : `, hashes of ${count(rows_hashed)}`;
  return `${some(rows_read, "row")}${hashes}${rows_shared === 0 ? "" : `, ${count(rows_shared)} shared`}`;
};

/** What a cycle found in a table. */
export function foundWords(table: CycleTable): string {
  if (table.fault !== null) return `not read: ${table.fault}: ${table.fault_detail ?? ""}`;
  if (table.copied_again) return "its rows could not be compared: it is copied again, or parked";
  if (table.first) return "read for the first time";
  const ranges = table.ranges === 0 ? "" : `; ${count(table.ranges_different)} of ${count(table.ranges)} ranges differed`;
  const stamps = table.since_stamp ? "; found by stamps, rows that are gone are looked for later" : "";
  return `changes: ${changesWords(table)}${ranges}${stamps}`;
}
