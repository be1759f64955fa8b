import type { Subscription } from "../api/client";
import type { HistoryPoint } from "../api/history";
import { bytes, count, percent, seconds } from "./numbers";

/** A stage of the pipeline, as far as there are figures of it; null where there are none. */
export interface Stage {
  name: string;
  means: string;
  rate: string | null;
  backlog: string | null;
  time: string | null;
  /** What `time` is the time of. */
  timeMeans: string | null;
}

export interface Course {
  stages: Stage[];
  /** Index of the stage that the others wait for. */
  bottleneck: number | null;
  why: string;
}

const RECENT_MS = 60_000;
const BUSY_SHARE = 0.5;
const MUCH_UNREAD_BYTES = 1_000_000;
const CAPTURE = 1;
const NET = 3;
const APPLY = 4;

/** The stages of a subscription, by its last minute; `points` are steps of its history, the oldest first. */
export function courseOf(subscription: Subscription, points: HistoryPoint[], nowMs: number): Course {
  const recent = points.filter((point) => nowMs - Date.parse(point.at) <= RECENT_MS + point.seconds * 1000);
  const sums = sumsOf(recent);
  const last = recent.at(-1);
  const rate = (read: (point: HistoryPoint) => number | null): string | null => perSecond(meanOf(recent.map(read)), bytes);
  const many = (number: number, noun: string): string | null =>
    last === undefined ? null : perSecond(number / sums.seconds, (value) => amount(value, noun));
  const inEngine = last?.unapplied_bytes;
  const stages: Stage[] = [
    {
      name: "Source's log",
      means: "The source writes its commits to its log.",
      rate: rate((point) => point.log_bytes_per_second.source),
      backlog: subscription.retained_bytes == null ? null : `${bytes(subscription.retained_bytes)} retained`,
      time: null,
      timeMeans: null,
    },
    {
      name: "Capture",
      means: "The log is read from the source.",
      rate: rate((point) => point.log_bytes_per_second.captured),
      backlog: last?.unread_bytes == null ? null : `${bytes(last.unread_bytes)} not read yet`,
      time: null,
      timeMeans: null,
    },
    {
      name: "Sort and seal",
      means: "Changes are ordered by commit and collected until a batch is full, old enough or demanded by a wait.",
      rate: many(sums.transactions, "commit"),
      backlog: inEngine == null ? null : `${bytes(inEngine)} read but not applied`,
      time: sums.mean("capture_age"),
      timeMeans: "from its oldest commit",
    },
    {
      name: "Net change",
      means: "Changes of the same row are merged.",
      rate: many(sums.rows, "change"),
      backlog: null,
      time: sums.mean("job"),
      timeMeans: "including waiting",
    },
    {
      name: "Apply",
      means: "The batch is written to the target and committed.",
      rate: many(sums.netRows, "row"),
      backlog: null,
      time: sums.mean("commit"),
      timeMeans: "including waiting",
    },
    {
      name: "Visible",
      means: "Queries on the target see the changes.",
      rate: rate((point) => point.log_bytes_per_second.applied),
      backlog: subscription.lag.bytes == null ? null : `${bytes(subscription.lag.bytes)} not visible yet`,
      time: subscription.lag.seconds == null ? null : seconds(subscription.lag.seconds),
      timeMeans: "behind the source",
    },
  ];
  return { stages, ...bottleneckOf(subscription, sums, last) };
}

interface Sums {
  seconds: number;
  batches: number;
  transactions: number;
  rows: number;
  netRows: number;
  /** For how much of the time a batch was in the stage; over 1 where several were. */
  busy: (stage: string) => number;
  mean: (stage: string) => string | null;
}

function sumsOf(points: HistoryPoint[]): Sums {
  const first = points[0];
  const last = points.at(-1);
  const span = first === undefined || last === undefined ? 0 : (Date.parse(last.at) - Date.parse(first.at)) / 1000 + last.seconds;
  const total = (read: (point: HistoryPoint) => number): number => points.reduce((sum, point) => sum + read(point), 0);
  const batches = total((point) => point.batches);
  const inStage = (stage: string): number => total((point) => (point.stage_seconds[stage] ?? 0) * point.batches);
  return {
    seconds: Math.max(span, 1),
    batches,
    transactions: total((point) => point.transactions),
    rows: total((point) => Object.values(point.rows).reduce((sum, number) => sum + number, 0)),
    netRows: total((point) => point.net_rows),
    busy: (stage) => inStage(stage) / Math.max(span, 1),
    mean: (stage) => (batches === 0 ? null : short(inStage(stage) / batches)),
  };
}

function bottleneckOf(subscription: Subscription, sums: Sums, last: HistoryPoint | undefined): Pick<Course, "bottleneck" | "why"> {
  if (subscription.state !== "running") return { bottleneck: null, why: "It is not running; the figures are the last known ones." };
  if (last === undefined) return { bottleneck: null, why: "There was no report in the last minute." };
  const unread = last.unread_bytes ?? 0;
  if (unread > MUCH_UNREAD_BYTES && unread > (last.unapplied_bytes ?? 0)) {
    return {
      bottleneck: CAPTURE,
      why: `More log waits to be read (${bytes(unread)}) than to be applied (${bytes(last.unapplied_bytes)}).`,
    };
  }
  if (sums.batches === 0) return { bottleneck: null, why: "Nothing was applied in the last minute." };
  const stage = sums.busy("commit") >= sums.busy("job") ? "commit" : "job";
  const busy = sums.busy(stage);
  if (busy < BUSY_SHARE)
    return { bottleneck: null, why: `No bottleneck: the busiest stage had a batch for ${percent(busy)} of the last minute.` };
  const share = busy >= 1 ? "at any time" : `for ${percent(busy)} of the time`;
  return {
    bottleneck: stage === "commit" ? APPLY : NET,
    why: `In the last minute a batch was in it ${share}, ${sums.mean(stage) ?? ""} each.`,
  };
}

function meanOf(values: (number | null)[]): number | null {
  const known = values.filter((value) => value !== null);
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length;
}

const perSecond = (value: number | null, words: (value: number) => string): string | null => (value === null ? null : `${words(value)}/s`);

/** "12 rows", "0.4 rows". */
const amount = (value: number, noun: string): string => `${rounded(value)} ${noun}s`;

/** A rate, with as many digits as say something. */
export const rounded = (value: number): string => (value > 0 && value < 10 ? value.toFixed(1) : count(Math.round(value)));

/** A duration of a stage: they are short. */
export const short = (value: number): string => (value < 1 ? `${Math.round(value * 1000)} ms` : seconds(value));
