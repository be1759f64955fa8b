import type { Node, Subscription } from "../api/client";

/** Whether its source consists of several databases. */
export const hasNodes = ({ capture }: Pick<Subscription, "capture">): boolean => capture.kind === "postgres_logs";

/** So much lag fills a lane if no node has more: a busy node is always a little behind. */
const FULL_LANE_BYTES = 1024 * 1024;

/** The lag of a node as a part of the longest lane, 0 to 1. */
export function laneShare({ lag_bytes }: Node, nodes: readonly Node[]): number {
  const longest = Math.max(FULL_LANE_BYTES, ...nodes.map((node) => node.lag_bytes ?? 0));
  return (lag_bytes ?? 0) / longest;
}

/** Which nodes delay the others, and what to look at; null if none does. */
export function lateWords(nodes: readonly Node[]): string | null {
  const late = nodes.filter((node) => node.late).map((node) => node.name);
  if (late.length === 0) return null;
  return (
    `What needs the log of ${late.join(", ")} waits: global transactions, and in the order "strict" all later ones. ` +
    "Look whether it runs, and at its load, its open and prepared transactions, and its network to the engine."
  );
}
