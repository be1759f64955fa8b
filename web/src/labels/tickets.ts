import { isOpen, type Ticket } from "../api/tickets";
import type { Tone } from "./tone";

export const STAGES = ["capture", "seal", "compute", "apply"] as const;
export type Stage = (typeof STAGES)[number];

/** What a ticket waits for in each stage. */
export const STAGE_WORDS: Record<Stage, { word: string; means: string }> = {
  capture: { word: "Capture", means: "from the source's log to the engine; by the clocks of both, and only as accurate as they agree" },
  seal: { word: "Batch", means: "until its batch was complete" },
  compute: { word: "Compute", means: "until the net changes of that batch were computed" },
  apply: { word: "Apply", means: "until that batch was committed on the target" },
};

/** In ms; null where the stage has not ended. */
export const stageMs = ({ durations }: Ticket, stage: Stage): number | null => durations[`${stage}_ms`];

/** All that is known of its way so far, in ms; what two clocks make negative counts as nothing. */
export const shownMs = (ticket: Ticket): number => STAGES.reduce((sum, stage) => sum + Math.max(0, stageMs(ticket, stage) ?? 0), 0);

export const ticketName = ({ id, name }: Ticket): string => name ?? id;

interface StateWords {
  tone: Tone;
  word: string;
  /** Where it is at present, while it is under way. */
  where: string | null;
}

export function ticketStateWords(ticket: Ticket): StateWords {
  const { state } = ticket;
  if (isOpen(ticket)) return { tone: "busy", word: state === "pending" ? "waiting" : "under way", where: whereIs(ticket) };
  if (state === "applied") return { tone: "good", word: "applied", where: null };
  if (state === "lost") return { tone: "warn", word: "lost", where: null };
  return { tone: "unknown", word: `unknown (${String(state)})`, where: null };
}

function whereIs({ state, times }: Ticket): string {
  if (state === "pending") return "its marker is not yet in the source's log";
  if (times.captured_at === null) return "on its way to the engine";
  if (times.sealed_at === null) return "its batch is not complete yet";
  return times.computed_at === null ? "its net changes are being computed" : "its batch is being applied";
}
