import type { Event, Subscription } from "../api/client";
import { bytes, percent, seconds, some } from "./numbers";
import type { Tone } from "./tone";

/** One word for a subscription: the worst of what is known of it, and the sentence that says why. */
export interface Health {
  group: HealthGroup;
  tone: Tone;
  word: string;
  why: string;
  remedy: string | null;
}

export const HEALTH_GROUPS = ["failed", "attention", "unknown", "moving", "running", "resting"] as const;
export type HealthGroup = (typeof HEALTH_GROUPS)[number];

export const GROUP_WORDS: Record<HealthGroup, { tone: Tone; word: string }> = {
  failed: { tone: "bad", word: "failed" },
  attention: { tone: "warn", word: "need attention" },
  unknown: { tone: "unknown", word: "unknown" },
  moving: { tone: "busy", word: "getting there" },
  running: { tone: "good", word: "running" },
  resting: { tone: "idle", word: "at rest" },
};

/** While there is something to apply the engine reports every few seconds; after this, its silence is worth a word. */
const SILENT_AFTER_S = 60;
const WARN_SHARE = 0.5;
const GOAL_S = 60;
/** So long a fault counts that nothing shows any more. */
const FAULT_COUNTS_S = 900;

const LOOK_AT_PARKED = "Look at the parked tables: each says what it needs.";
/** States of a subscription that only an engine can keep up. */
const UNDER_WAY = new Set(["starting", "running", "pausing", "stopping"]);
/** States of tables to which nothing is applied. */
const AT_REST = new Set(["parked", "paused", "removed"]);

/** One of the things that health is judged by. */
export interface Aspect {
  name: string;
  tone: Tone;
  says: string;
  /** What follows for the whole; null where nothing does. */
  health: Health | null;
}

/** What a subscription is judged by besides itself. */
export interface Known {
  /** When it was read, by the server's clock. */
  readMs: number;
  /** Events that are errors, the newest first, of this subscription or of all. */
  faults?: Event[];
  /** No engine is connected. */
  engineAway: boolean;
}

/** All that health is judged by. */
export function aspectsOf(subscription: Subscription, known: Known): Aspect[] {
  const applying = fault(subscription) ?? (known.engineAway ? unheard(subscription) : heard(subscription, known.readMs)) ?? course(subscription);
  return [
    { name: "Applying", tone: applying.tone, says: applying.why, health: applying },
    freshness(subscription, known.engineAway),
    slotRisk(subscription, known.engineAway),
    lastFault(subscription, known),
  ];
}

/** The worst of all aspects; among equals, the first. */
export function healthOf(subscription: Subscription, known: Known): Health {
  const found = aspectsOf(subscription, known).flatMap(({ health: one }) => (one === null ? [] : [one]));
  return found.reduce((worst, one) => (HEALTH_GROUPS.indexOf(one.group) < HEALTH_GROUPS.indexOf(worst.group) ? one : worst));
}

const health = (group: HealthGroup, word: string, why: string, remedy: string | null = null): Health => ({
  group,
  tone: GROUP_WORDS[group].tone,
  word,
  why,
  remedy,
});

function fault(subscription: Subscription): Health | null {
  if (subscription.state !== "failed") return null;
  return health("failed", "failed", subscription.reason ?? "No reason was given.", subscription.remedy ?? null);
}

const heard = (subscription: Subscription, readMs: number): Health | null => retried(subscription) ?? silence(subscription, readMs) ?? parked(subscription);

/** No engine says how it is; tables that were parked are so still. */
function unheard(subscription: Subscription): Health | null {
  const { state, deleting } = subscription;
  if (deleting === true || !UNDER_WAY.has(state)) return null;
  const why = `No engine is connected: whether anything is applied is not known. It was ${state} when it was last heard of.`;
  const number = subscription.table_states.parked ?? 0;
  if (number > 0) return health("attention", "parked tables", `${standStill(number)} ${why}`, LOOK_AT_PARKED);
  return health("unknown", "not known", why, "Look whether the engine runs and reaches the server.");
}

/** What is under way and gives a reason is being tried again. */
function retried({ state, reason, remedy, deleting }: Subscription): Health | null {
  if (reason == null || deleting === true || (state !== "starting" && state !== "running")) return null;
  return health("attention", "retrying", reason, remedy ?? null);
}

function silence(subscription: Subscription, readMs: number): Health | null {
  if (subscription.state !== "running" || subscription.positions.as_of == null) return null;
  const age = (readMs - Date.parse(subscription.positions.as_of)) / 1000;
  if (age <= SILENT_AFTER_S) return null;
  return health("attention", "silent", `The engine has not reported for ${seconds(age)}.`, "Look whether the engine runs and reaches the server.");
}

function parked(subscription: Subscription): Health | null {
  const number = subscription.table_states.parked ?? 0;
  if (number === 0 || subscription.state !== "running") return null;
  const othersGoOn = Object.keys(subscription.table_states).some((state) => !AT_REST.has(state));
  return health("attention", "parked tables", `${standStill(number)}${othersGoOn ? " The others go on." : ""}`, LOOK_AT_PARKED);
}

const standStill = (number: number): string => `${some(number, "table")} ${number === 1 ? "stands" : "stand"} still because of a fault.`;

/** Log held back on the source as a share of what may be; null where it is not known. */
export function slotShare(subscription: Subscription): number | null {
  const { slot_budget_bytes } = subscription.capture;
  if (subscription.retained_bytes == null || !slot_budget_bytes) return null;
  return subscription.retained_bytes / slot_budget_bytes;
}

/** From which share of the budget on it is a risk: the subscription's own setting. */
export const warnShare = (subscription: Subscription): number => subscription.capture.guard?.warn_share ?? WARN_SHARE;

/** The most that the target should be behind, in seconds. */
export const goalOf = (subscription: Subscription): number => subscription.freshness.goal_seconds ?? GOAL_S;

function freshness(subscription: Subscription, engineAway: boolean): Aspect {
  const name = "Freshness";
  const goal = goalOf(subscription);
  const behind = subscription.lag.seconds;
  if (subscription.state !== "running") return { name, tone: "idle", says: "It is judged while the subscription runs.", health: null };
  if (engineAway) return { name, tone: "unknown", says: "It is not known while no engine is connected.", health: null };
  if (behind == null) return { name, tone: "unknown", says: "How far it is behind the source is not known yet.", health: null };
  if (behind <= goal) return { name, tone: "good", says: `${seconds(behind)} behind the source; the goal is ${seconds(goal)}.`, health: null };
  const says = `${seconds(behind)} behind the source; the goal is ${seconds(goal)}.`;
  return { name, tone: "warn", says, health: health("attention", "late", `It is ${says}`, "Look at its stages for the one that the others wait for.") };
}

function slotRisk(subscription: Subscription, engineAway: boolean): Aspect {
  const name = "Source's log";
  const share = slotShare(subscription);
  if (share === null) return { name, tone: "unknown", says: "How much log the source holds back is not known.", health: null };
  const holds = engineAway ? "When it was last heard of, the source held back" : "The source holds back";
  const says = `${holds} ${bytes(subscription.retained_bytes)} of log, ${percent(share)} of its budget.`;
  if (share < warnShare(subscription)) return { name, tone: engineAway ? "unknown" : "good", says, health: null };
  return { name, tone: "warn", says, health: health("attention", "at risk", says, "Let the subscription run and catch up, or raise its slot budget.") };
}

function lastFault(subscription: Subscription, { readMs, faults }: Known): Aspect {
  const name = "Last fault";
  if (faults === undefined) return { name, tone: "unknown", says: "It is not known yet.", health: null };
  const found = faults.find((event) => event.subscription === subscription.name);
  if (found === undefined) return { name, tone: "good", says: "None of late.", health: null };
  const age = Math.max(0, (readMs - Date.parse(found.at)) / 1000);
  const over = isOver(found, subscription);
  const says = `${seconds(age)} ago${over ? ", and over" : ""}: ${found.detail}`;
  if (over || age > FAULT_COUNTS_S) return { name, tone: "note", says, health: null };
  return { name, tone: "warn", says, health: health("attention", "had a fault", found.detail, found.remedy ?? null) };
}

/** Named by schema and name; no slot and no file is. */
const TABLE_NAME = /^[^/]+\.[^/]+$/;

/** A fault of a table is over once none is parked: what such a fault stops stays so until it is mended. */
const isOver = (fault: Event, { table_states }: Subscription): boolean => (table_states.parked ?? 0) === 0 && TABLE_NAME.test(fault.subject ?? "");

function course(subscription: Subscription): Health {
  const { state } = subscription;
  if (subscription.deleting) return health("moving", "deleting", "It is being deleted; its tables on the target stay.");
  switch (state) {
    case "created":
      return health("moving", "waiting", "It waits for an engine.");
    case "starting":
    case "pausing":
    case "stopping":
      return health("moving", state, subscription.reason ?? `It was asked to be ${subscription.desired_state}.`, subscription.remedy ?? null);
    case "paused":
      return health("resting", "paused", "It stands still by request; the source keeps its log for it.");
    case "stopped":
      return health("resting", "stopped", "It was stopped by request; the source keeps its log for it.");
    case "running":
      return running(subscription);
    default:
      return health("unknown", `unknown (${String(state)})`, "This console does not know the state; load the page again after an upgrade.");
  }
}

function running(subscription: Subscription): Health {
  const states = subscription.table_states;
  if (subscription.desired_state !== "running") return health("moving", "running", `It was asked to be ${subscription.desired_state}.`);
  const copied = (states.registered ?? 0) + (states.copying ?? 0) + (states.reloading ?? 0);
  const behind = behindWords(subscription);
  if (copied > 0) return health("moving", "copying", `${some(copied, "table")} of ${total(subscription)} being copied; ${behind}.`);
  if ((states.catching_up ?? 0) > 0) return health("moving", "catching up", `${some(states.catching_up ?? 0, "table")} of ${total(subscription)} catching up; ${behind}.`);
  const live = states.live ?? 0;
  if (total(subscription) === 0) return health("running", "running", "It has no tables.");
  const which = live === total(subscription) ? (live === 1 ? "Its one table is" : `All ${live} tables are`) : `${some(live, "table")} of ${total(subscription)} ${live === 1 ? "is" : "are"}`;
  return health("running", "running", `${which} live; ${behind}.`);
}

function behindWords(subscription: Subscription): string {
  const { seconds: age } = subscription.lag;
  return age == null ? "how far behind the source is not known yet" : `${seconds(age)} behind the source`;
}

const total = (subscription: Subscription): number => Object.values(subscription.table_states).reduce((sum, number) => sum + number, 0);

/** Worst first; among equals, those that are furthest behind. */
export function worstFirst(a: { item: Subscription; health: Health }, b: { item: Subscription; health: Health }): number {
  return (
    HEALTH_GROUPS.indexOf(a.health.group) - HEALTH_GROUPS.indexOf(b.health.group) ||
    (b.item.lag.seconds ?? 0) - (a.item.lag.seconds ?? 0) ||
    a.item.name.localeCompare(b.item.name)
  );
}
