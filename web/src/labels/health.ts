import type { Subscription } from "../api/client";
import type { RemedyAction } from "../api/problem";
import type { Tone } from "./tone";

/** One word for a subscription, as the server judged it, and the sentence that says why. */
export interface Health {
  group: HealthGroup;
  tone: Tone;
  word: string;
  why: string;
  remedy: string | null;
  /** The operations that the remedy names. */
  actions: RemedyAction[];
}

type Judged = Subscription["health"];

/** The worst first, as the server orders them. */
export const HEALTH_GROUPS = ["failed", "attention", "unknown", "moving", "running", "resting"] as const;
export type HealthGroup = (typeof HEALTH_GROUPS)[number];

export const GROUP_WORDS: Record<HealthGroup, { tone: Tone; word: string }> = {
  failed: { tone: "bad", word: "failed" },
  attention: { tone: "warn", word: "need attention" },
  unknown: { tone: "unknown", word: "unknown" },
  moving: { tone: "busy", word: "in progress" },
  running: { tone: "good", word: "running" },
  resting: { tone: "idle", word: "inactive" },
};

const ASPECT_NAMES: Record<string, string> = {
  applying: "Applying",
  freshness: "Freshness",
  source_log: "Source's log",
  last_fault: "Last fault",
};

/** A status of a newer server counts as unknown. */
const groupOf = (status: string): HealthGroup => HEALTH_GROUPS.find((group) => group === status) ?? "unknown";

export const toneOf = (status: string): Tone => GROUP_WORDS[groupOf(status)].tone;

export function healthOf({ health: { status, word, reason, remedy, actions } }: Subscription): Health {
  const group = groupOf(status);
  return {
    group,
    tone: GROUP_WORDS[group].tone,
    word: word.replaceAll("_", " "),
    why: reason,
    remedy: remedy ?? null,
    actions: actions ?? [],
  };
}

/** One of the things that health is judged by. */
interface Aspect {
  name: string;
  tone: Tone;
  says: string;
}

export const aspectsOf = ({ health }: Subscription): Aspect[] =>
  health.aspects.map(({ name, status, reason }) => ({ name: ASPECT_NAMES[name] ?? name, tone: toneOf(status), says: reason }));

/** The tone of tables that would be followed and are not; null where they are. */
export function heldUp({ following, aspects, status }: Judged): Tone | null {
  if (following) return null;
  const tone = toneOf(aspects.find(({ name }) => name === "applying")?.status ?? status);
  return tone === "bad" ? "warn" : tone;
}

/** Bytes of log that the source may retain, whichever way its changes are captured. */
export const logBudget = ({ capture }: Subscription): number | null | undefined =>
  "budget_bytes" in capture ? capture.budget_bytes : "slot_budget_bytes" in capture ? capture.slot_budget_bytes : undefined;

/** Log retained on the source as a share of what may be; null where it is not known. */
export function slotShare(subscription: Subscription): number | null {
  const budget = logBudget(subscription);
  if (subscription.retained_bytes == null || !budget) return null;
  return subscription.retained_bytes / budget;
}

const WARN_SHARE = 0.5;
const GOAL_S = 60;

/** From which share of the budget on it is a risk: the subscription's own setting. */
export const warnShare = ({ capture }: Subscription): number => ("guard" in capture ? capture.guard?.warn_share : undefined) ?? WARN_SHARE;

/** The most that the target should be behind, in seconds. */
export const goalOf = (subscription: Subscription): number => subscription.freshness.goal_seconds ?? GOAL_S;

/** Worst first; among equals, those that are furthest behind. */
export function worstFirst(a: { item: Subscription; health: Health }, b: { item: Subscription; health: Health }): number {
  return (
    HEALTH_GROUPS.indexOf(a.health.group) - HEALTH_GROUPS.indexOf(b.health.group) ||
    (b.item.lag.seconds ?? 0) - (a.item.lag.seconds ?? 0) ||
    a.item.name.localeCompare(b.item.name)
  );
}
