import type { components } from "../api/schema";

export type LagExplanation = components["schemas"]["LagExplanation"];
export type LagCause = components["schemas"]["LagCause"];

/** Each cause of lag in a few words. */
export const LAG_CAUSES: Record<LagCause, string> = {
  long_open_transaction: "open transaction on the source",
  target_lock: "lock on the target",
  queue_at_budget: "queue at its budget",
  copy_running: "copy of a table",
  slow_sender: "source still sending",
  slow_reader: "log read too slowly",
  silent_node: "node that others wait for",
  awaiting_keepalive: "keepalive awaited",
  huge_transaction: "huge transaction",
  hot_table: "hot table",
  cpu_starved: "no free processor",
  key_skew: "skewed keys",
  small_batches: "small batches for waits",
  computing: "preparation of changes",
  slow_commit: "commit on the target",
  gathering: "gathering of changes",
};

/** What was measured, as one line. */
export const evidenceWords = (evidence: Record<string, string | number>): string =>
  Object.entries(evidence)
    .map(([name, value]) => `${name.replaceAll("_", " ")}: ${value}`)
    .join(", ");
