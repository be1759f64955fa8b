import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo } from "react";
import { Link } from "wouter";
import type { Subscription } from "../../api/client";
import { type History, type HistoryPoint, historyQuery } from "../../api/history";
import { atServer } from "../../clock";
import { Chart, type Line } from "../../components/chart";
import { QueryBoundary } from "../../components/queryBoundary";
import { Moment } from "../../components/time";
import { useFilters } from "../../filters";
import { forecast } from "../../labels/forecast";
import { goalOf, logBudget, warnShare } from "../../labels/health";
import { bytes, percent, seconds } from "../../labels/numbers";
import { rounded, short } from "../../labels/stages";

const SPANS = [
  { hours: 1, label: "1 hour" },
  { hours: 6, label: "6 hours" },
  { hours: 24, label: "24 hours" },
  { hours: 168, label: "7 days" },
] as const;

/** An idle engine reports every 15 s; a longer silence is shown as a gap. */
const SILENT_MS = 45_000;
/** A budget that is so many times as much as what is held back would flatten the line. */
const BUDGET_IN_SIGHT = 4;
const OPERATIONS = ["insert", "update", "delete", "truncate"];
const LEAST_BYTES = 1000;
/** The newest step, while it is shorter, says little of a rate. */
const LEAST_OF_A_STEP_S = 3;

/** What a subscription did over time. Its own chunk, with the charting library. */
export default function Charts({ subscription }: { subscription: Subscription }) {
  const filters = useFilters();
  const asked = Number(filters.get("hours"));
  const hours = SPANS.find((span) => span.hours === asked)?.hours ?? 1;
  const history = useQuery(historyQuery(subscription.name, hours));
  return (
    <>
      <nav className="choices" aria-label="How far back the charts go">
        {SPANS.map((span) => (
          <Link
            key={span.hours}
            href={filters.address({ hours: span.hours === 1 ? null : span.hours })}
            aria-current={span.hours === hours ? "true" : undefined}
            replace
          >
            {span.label}
          </Link>
        ))}
      </nav>
      <QueryBoundary query={history}>
        {(found) => <All subscription={subscription} history={found} toMs={atServer(history.dataUpdatedAt)} hours={hours} />}
      </QueryBoundary>
    </>
  );
}

interface AllProps {
  subscription: Subscription;
  history: History;
  toMs: number;
  hours: number;
}

/** Of some sources, positions do not count bytes of a log. */
const countsBytes = ({ lag_bytes, unread_bytes, unapplied_bytes }: HistoryPoint): boolean =>
  lag_bytes !== null || unread_bytes !== null || unapplied_bytes !== null;

type Read = (point: HistoryPoint) => number | null;

function All({ subscription, history, toMs, hours }: AllProps) {
  const moments = useMemo(() => momentsOf(history), [history]);
  const times = useMemo(() => moments.map(({ ms }) => ms / 1000), [moments]);
  const line = (label: string, kind: Line["kind"], read: Read): Line => ({
    label,
    kind,
    values: moments.map(({ point }) => (point === null ? null : read(point))),
  });
  const span = { times, from: toMs / 1000 - hours * 3600, to: toMs / 1000 };
  const chart = (title: string, says: ReactNode, lines: Line[], format: (value: number) => string, least = 1): ReactNode => (
    <Chart title={title} says={says} lines={lines} format={format} least={least} {...span} />
  );
  const waits = history.points.some((point) => point.waits !== null);
  const operations = operationsOf(history.points);
  return (
    <div className="charts">
      {chart(
        "Behind the source, in seconds",
        `The maximum of each step. The goal is ${seconds(goalOf(subscription))}.`,
        [line("behind", "first", (p) => p.lag_seconds)],
        seconds,
      )}
      {history.points.some(countsBytes) &&
        chart(
          "Behind the source, in log",
          "Log that is not applied on the target: in total (the maximum of each step), and at the end of each step the parts not yet read, and read but not applied.",
          [
            line("not on the target", "first", (p) => p.lag_bytes),
            line("not read", "second", (p) => p.unread_bytes),
            line("read, not applied", "third", (p) => p.unapplied_bytes),
          ],
          bytes,
          LEAST_BYTES,
        )}
      {chart(
        "Log retained on the source",
        <Budget subscription={subscription} points={history.points} toMs={toMs} />,
        retainedLines(subscription, line, history.points),
        bytes,
        LEAST_BYTES,
      )}
      {chart(
        "Changes applied, by operation",
        operations.length === 0 ? "No changes were applied in this time." : "Row changes per second on the source.",
        (operations.length === 0 ? ["insert"] : operations).map((operation, number) =>
          line(operation, LINE_KINDS[number % LINE_KINDS.length] ?? "first", (p) => rateOf(p, operation)),
        ),
        (value) => `${rounded(value)}/s`,
      )}
      {chart(
        "Waits for freshness",
        waits ? "Duration of all waits, satisfied or not: median, 95th and 99th percentile." : "There were no waits in this time.",
        [
          line("p50", "third", (p) => wait(p.waits?.p50_ms)),
          line("p95", "second", (p) => wait(p.waits?.p95_ms)),
          line("p99", "first", (p) => wait(p.waits?.p99_ms)),
        ],
        short,
        0.1,
      )}
    </div>
  );
}

const LINE_KINDS = ["first", "second", "third", "fourth"] as const;

const wait = (ms: number | undefined): number | null => (ms === undefined ? null : ms / 1000);

/** The ends of steps; where nothing was heard for long, a moment without a step cuts the lines. */
function momentsOf({ step_seconds, points }: History): { ms: number; point: HistoryPoint | null }[] {
  const found: { ms: number; point: HistoryPoint | null }[] = [];
  const most = Math.max(SILENT_MS, step_seconds * 2_500);
  for (const point of points) {
    const ms = Date.parse(point.at) + point.seconds * 1000;
    const before = found.at(-1);
    if (before !== undefined && ms - before.ms > most) found.push({ ms: before.ms + step_seconds * 1000, point: null });
    found.push({ ms, point });
  }
  return found;
}

function operationsOf(points: HistoryPoint[]): string[] {
  const found = new Set(points.flatMap((point) => Object.keys(point.rows).filter((operation) => (point.rows[operation] ?? 0) > 0)));
  const place = (operation: string): number => (OPERATIONS.indexOf(operation) + OPERATIONS.length + 1) % (OPERATIONS.length + 1);
  return [...found].sort((a, b) => place(a) - place(b) || a.localeCompare(b));
}

function rateOf(point: HistoryPoint, operation: string): number | null {
  return point.seconds < LEAST_OF_A_STEP_S ? null : (point.rows[operation] ?? 0) / point.seconds;
}

function retainedLines(
  subscription: Subscription,
  line: (label: string, kind: Line["kind"], read: Read) => Line,
  points: HistoryPoint[],
): Line[] {
  const held = line("held back", "first", (point) => point.retained_bytes);
  const budget = logBudget(subscription);
  const most = Math.max(0, ...points.map((point) => point.retained_bytes ?? 0));
  if (budget == null || most * BUDGET_IN_SIGHT < budget) return [held];
  return [held, line("budget", "limit", () => budget)];
}

/** How much of the budget is used, and when it will be used up. */
function Budget({ subscription, points, toMs }: { subscription: Subscription; points: HistoryPoint[]; toMs: number }) {
  const budget = logBudget(subscription);
  const last = points.findLast((point) => point.retained_bytes != null)?.retained_bytes;
  if (last == null || budget == null) return <>It is not known yet.</>;
  return (
    <>
      {bytes(last)} of a budget of {bytes(budget)}, {percent(last / budget)}; from {percent(warnShare(subscription))} on there is a warning.{" "}
      <Reached found={forecast(points, budget)} toMs={toMs} />
    </>
  );
}

function Reached({ found, toMs }: { found: ReturnType<typeof forecast>; toMs: number }) {
  if (found === null) return <>There is not enough data for a forecast yet.</>;
  if (found === "reached") return <strong>The budget is used up.</strong>;
  if (found === "not growing") return <>At the rate of the last 15 minutes, it will not be used up within a month.</>;
  return (
    <strong>
      At the rate of the last 15 minutes, it will be used up in {seconds(found.reachedInS)}, at{" "}
      <Moment at={toMs + found.reachedInS * 1000} />.
    </strong>
  );
}
