import type { QueryAnswer, Receipt, Waited } from "../api/freshness";
import { milliseconds } from "./durations";
import { seconds, some } from "./numbers";

/** One moment of a wait. */
export interface Step {
  name: string;
  /** What had happened by then. */
  means: string;
  position: string | null;
  /** Since it was asked for; negative before that, null where it is not known. */
  atMs: number | null;
}

/** From the request to its answer, in the order in which a change goes its way. */
export function stepsOf({ receipt, askedAt, waitedMs }: Waited): Step[] {
  const since = (moment: string | null): number | null =>
    moment === null || askedAt === null ? null : Date.parse(moment) - Date.parse(askedAt);
  const read = receipt.now_ms;
  return [
    { name: "Asked", means: read === null ? "for a position" : "for everything committed until now", position: null, atMs: 0 },
    {
      name: "Source position",
      means: read === null ? "as it was given" : "read on the source: the end of its log",
      position: receipt.position,
      atMs: read ?? 0,
    },
    { name: "Captured", means: "read from the source's log, in a complete batch", position: null, atMs: since(receipt.sealed_at) },
    { name: "Applied", means: "that batch committed on the target", position: receipt.applied, atMs: since(receipt.committed_at) },
    { name: "Visible", means: "known to be readable, and answered", position: null, atMs: waitedMs },
  ];
}

/** "at once", "after 61 ms", "1.2 s before", "not known". */
export function stepWords({ atMs }: Step): string {
  if (atMs === null) return "not known";
  if (atMs < 0) return `${milliseconds(-atMs)} before`;
  return atMs === 0 ? "0 ms" : `after ${milliseconds(atMs)}`;
}

/** How far rows are behind what was requested. */
export function staleWords({ wanted, position, seconds_behind }: NonNullable<QueryAnswer["stale"]>): string {
  const age = seconds_behind === null ? "by an unknown time" : `by ${seconds(seconds_behind)}`;
  const asked = wanted === null ? "the source's current position, which was not known" : wanted;
  return `The rows are older than requested, ${age}: they are of ${position}, and ${asked} was waited for.`;
}

type Exception = Receipt["exceptions"][number];

/** What a table that is declared not to follow wholly lacks. */
export function exceptionWords({ kind, rows }: Exception): string {
  if (kind === "insert_only") return "updates and deletes are not replicated";
  if (kind === "operations") return "some operations are not followed";
  if (kind === "rows_set_aside") return `${some(rows ?? 0, "row")} quarantined because the target refused ${rows === 1 ? "it" : "them"}`;
  return `unknown exception (${kind})`;
}
