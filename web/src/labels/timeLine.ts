import type { Event } from "../api/client";
import type { Tone } from "./tone";

/** A state that a request brought about before the one that it asks for. */
export interface Step {
  state: string;
  afterMs: number;
}

/** The outcome of a request. `parked`: a fault came first. `overtaken`: another request, `by`, came first. */
export type Outcome =
  | { is: "waiting" }
  | { is: "in effect" | "parked"; afterMs: number }
  | { is: "overtaken"; by: string; afterMs: number };

/** Something that happened to a table, or that was asked of it. */
export interface Entry {
  event: Event;
  /** What was asked for, in a word; null where it came by itself. */
  request: string | null;
  steps: Step[];
  /** Null where it is no request, and where the outcome cannot be known. */
  outcome: Outcome | null;
}

interface Request {
  word: string;
  /** It is in effect with this state; null: no event reports it. */
  until: string | null;
  /** But only after this one. */
  through?: string;
  steps?: readonly string[];
  /** The kind of request that it takes back. That one may still come into effect, until this one does. */
  takesBack?: string;
  /** Kinds of requests that come into effect no more because of it. */
  ends?: readonly string[];
  /** A fault does not end it. */
  outlivesFaults?: boolean;
}

const COPY = ["registered", "copying", "catching_up"];
const RELOAD = { until: "live", through: "reloading", steps: ["reloading", "catching_up"] };
const PARTITIONS_RELOADED = "table_partitions_reloaded";
const SETTINGS = "table_settings_changed";

const REQUESTS: Record<string, Request> = {
  table_pause_asked: { word: "pause", until: "paused", takesBack: "table_resume_asked" },
  table_resume_asked: { word: "resume", until: "live", steps: COPY, takesBack: "table_pause_asked" },
  table_reload_asked: { word: "reload", ...RELOAD },
  table_reload_cancelled: { word: "cancel the reload", until: null, ends: ["table_reload_asked", "table_retried"] },
  table_retried: { word: "try again", ...RELOAD },
  schema_change_approved: { word: "approve", until: "live", steps: ["paused", ...COPY] },
  [SETTINGS]: { word: "settings", until: "live", through: "reloading", ends: [SETTINGS], outlivesFaults: true },
  table_added: { word: "add", until: "live", steps: COPY },
  table_removed: { word: "remove", until: "removed" },
};
/** With them a table's life begins or ends: nothing from before is waited for. */
const BOUNDS = new Set(["table_added", "table_removed"]);

/** A request that is not in effect yet. */
interface Open {
  entry: Entry;
  rule: Request;
  /** Whether it came through the state that it has to come through. */
  through: boolean;
  /** The request that took it back. */
  takenBackBy?: Entry;
}

/**
 * A page of a table's events as its time line: each request with the states that it brought, and the other events as they are; newest
 * first, as the events are. `present`: the table's state, where nothing has happened since; else null, and nothing is said of requests
 * whose effect is on another page.
 */
export function timeLine(events: Event[], present: string | null): Entry[] {
  const entries: Entry[] = [];
  let open: Open[] = [];
  for (const event of [...events].reverse()) {
    const rule = Object.hasOwn(REQUESTS, event.kind) ? REQUESTS[event.kind] : undefined;
    if (rule === undefined) {
      const claimed = take(open, event);
      open = open.filter(isOpen);
      if (!claimed) entries.push({ event, request: null, steps: [], outcome: null });
      continue;
    }
    const entry: Entry = { event, request: rule.word, steps: [], outcome: null };
    entries.push(entry);
    for (const before of open) {
      const { kind } = before.entry.event;
      const ends = BOUNDS.has(event.kind) || (rule.ends?.includes(kind) === true && !isAtOnce(event));
      if (!ends && rule.takesBack !== kind) continue;
      before.entry.outcome = { is: "overtaken", by: rule.word, afterMs: between(before.entry.event, event) };
      if (!ends) before.takenBackBy = entry;
    }
    open = open.filter(isOpen);
    if (rule.until !== null && rule.until === event.table_state) entry.outcome = { is: "in effect", afterMs: 0 };
    else if (rule.until !== null && !isAtOnce(event)) open.push({ entry, rule, through: rule.through === undefined });
  }
  if (present !== null) for (const waiting of open) waiting.entry.outcome ??= standing(waiting, open, present);
  return entries.reverse();
}

/** Of a request without an event: a state whose change was requested and cancelled in time never ended, so no event reports it. */
function standing({ entry, rule }: Open, open: Open[], present: string): Outcome {
  const inTime = rule.until === present && open.some(({ takenBackBy }) => takenBackBy === entry);
  return inTime ? { is: "in effect", afterMs: 0 } : { is: "waiting" };
}

/** Whether it may come into effect yet. */
const isOpen = ({ entry, takenBackBy }: Open): boolean =>
  entry.outcome === null || (entry.outcome.is === "overtaken" && takenBackBy !== undefined && takenBackBy.outcome === null);

/** An event about settings that need no copy has no remedy. */
const isAtOnce = ({ kind, remedy }: Event): boolean => kind === SETTINGS && remedy == null;

/** What an event means for requests that wait. Returns whether it is theirs, so that it needs no place of its own. */
function take(open: Open[], event: Event): boolean {
  const state = event.table_state ?? null;
  let claimed = false;
  for (const waiting of open) {
    const { entry, rule } = waiting;
    const afterMs = between(entry.event, event);
    const ofPartitions = event.kind === PARTITIONS_RELOADED && entry.event.kind === "table_reload_asked";
    if (ofPartitions || (state === rule.until && state !== null && waiting.through)) {
      entry.outcome = { is: "in effect", afterMs };
      claimed = true;
    } else if (state === "parked" && rule.outlivesFaults !== true) {
      entry.outcome ??= { is: "parked", afterMs };
    } else if (state !== null) {
      waiting.through ||= state === rule.through;
      // A change without a request is reported as a warning.
      if (event.severity !== "info" || rule.steps?.includes(state) !== true) continue;
      entry.steps.push({ state, afterMs });
      claimed = true;
    }
  }
  return claimed;
}

const between = (from: Event, to: Event): number => Math.max(0, Date.parse(to.at) - Date.parse(from.at));

/** The tone of a request by its outcome. */
export function toneOfOutcome(outcome: Outcome | null): Tone {
  switch (outcome?.is) {
    case "in effect":
      return "good";
    case "waiting":
      return "busy";
    case "parked":
      return "bad";
    case "overtaken":
      return "idle";
    default:
      return "note";
  }
}

/** "in effect after 1.2 s"; `duration`: milliseconds in words. */
export function outcomeWords(outcome: Outcome, duration: (ms: number) => string): string {
  switch (outcome.is) {
    case "waiting":
      return "not in effect yet";
    case "in effect":
      return outcome.afterMs === 0 ? "in effect at once" : `in effect after ${duration(outcome.afterMs)}`;
    case "parked":
      return `not in effect: the table was parked after ${duration(outcome.afterMs)}`;
    case "overtaken":
      if (outcome.by === REQUESTS[SETTINGS]?.word) return `changed again after ${duration(outcome.afterMs)}`;
      return `not in effect: “${outcome.by}” was requested after ${duration(outcome.afterMs)}`;
  }
}
