import type { Ticket } from "../../api/tickets";
import { Moment } from "../../components/time";
import { median, milliseconds } from "../../labels/durations";
import { some } from "../../labels/numbers";
import { STAGE_WORDS, STAGES, stageMs } from "../../labels/tickets";

interface Point {
  /** In ms. */
  at: number;
  ms: number;
}

/** How long each stage took, over all tickets that are there; each strip begins at zero and has a scale of its own. */
export function OverTime({ tickets }: { tickets: Ticket[] }) {
  if (tickets.length < 2) return <p className="soft">It is drawn from two applied tickets on.</p>;
  const sorted = [...tickets].sort((a, b) => appliedAt(a) - appliedAt(b));
  const [first, last] = [sorted[0], sorted.at(-1)];
  const points = (of: (ticket: Ticket) => number | null): Point[] =>
    sorted.flatMap((ticket) => {
      const ms = of(ticket);
      return ms === null ? [] : [{ at: appliedAt(ticket), ms }];
    });
  return (
    <div className="strips">
      <Strip name="In all" points={points(({ durations }) => durations.total_ms)} />
      {STAGES.map((stage) => (
        <Strip key={stage} name={STAGE_WORDS[stage].word} points={points((ticket) => stageMs(ticket, stage))} />
      ))}
      <p className="strip-ends soft">
        {first !== undefined && <Moment at={appliedAt(first)} />}
        {last !== undefined && <Moment at={appliedAt(last)} />}
      </p>
    </div>
  );
}

/** In ms. */
const appliedAt = ({ times, created_at: placed }: Ticket): number => Date.parse(times.applied_at ?? placed);

const WIDTH = 600;
const HEIGHT = 56;
const EDGE = 4;

function Strip({ name, points }: { name: string; points: Point[] }) {
  const first = points[0];
  const last = points.at(-1);
  if (first === undefined || last === undefined) return null;
  const values = points.map(({ ms }) => ms);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const floor = Math.min(0, least);
  const x = ({ at }: Point): number => EDGE + ((at - first.at) / Math.max(1, last.at - first.at)) * (WIDTH - 2 * EDGE);
  const y = (ms: number): number => HEIGHT - EDGE - ((ms - floor) / Math.max(0.001, most - floor)) * (HEIGHT - 2 * EDGE);
  const places = points.map((point) => `${x(point).toFixed(1)},${y(point.ms).toFixed(1)}`);
  const summary = `latest ${milliseconds(last.ms)}, median ${milliseconds(median(values))}, ${milliseconds(least)} to ${milliseconds(most)}`;
  return (
    <figure className="strip">
      <figcaption>
        <strong>{name}</strong> <span className="soft">{summary}</span>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${name}, ${some(points.length, "ticket")} over time: ${summary}`}
      >
        <path className="zero" d={`M0 ${y(0)}H${WIDTH}`} />
        <path className="course" d={`M${places.join("L")}`} />
        {/* Ends of lines are round and keep their shape where the picture is stretched. */}
        <path className="dots" d={places.map((place) => `M${place}h0`).join("")} />
      </svg>
    </figure>
  );
}
