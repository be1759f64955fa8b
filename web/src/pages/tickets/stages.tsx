import type { Ticket } from "../../api/tickets";
import { STAGE_WORDS, STAGES, type Stage, shownMs, stageMs } from "../../labels/tickets";

const HEIGHT = 14;

/** Patterns that distinguish the stages without colours; the bars refer to them. */
export const StagePatterns = () => (
  <svg className="stage-patterns" width="0" height="0" aria-hidden="true" focusable="false">
    <defs>
      <pattern id="stage-seal" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect width="1.5" height="5" fill="currentColor" />
      </pattern>
    </defs>
  </svg>
);

/** `x` and `width` as shares of the whole, 0 to 1. */
const Segment = ({ stage, x, width }: { stage: Stage; x: number; width: number }) => (
  <rect
    className={`stage-${stage}`}
    fill={stage === "seal" ? "url(#stage-seal)" : undefined}
    x={`${x * 100}%`}
    y="1"
    width={`${width * 100}%`}
    height={HEIGHT - 2}
  />
);

/** Its stages one after another, on a scale that ends at `mostMs`. The numbers are beside it. */
export function StageBar({ ticket, mostMs }: { ticket: Ticket; mostMs: number }) {
  if (shownMs(ticket) === 0) return null;
  let before = 0;
  return (
    <svg className="stage-bar" height={HEIGHT} aria-hidden="true" focusable="false">
      {STAGES.map((stage) => {
        const width = Math.max(0, stageMs(ticket, stage) ?? 0) / mostMs;
        const x = before;
        before += width;
        return width > 0 && <Segment key={stage} stage={stage} x={x} width={width} />;
      })}
    </svg>
  );
}

/** What the fillings mean. */
export const StageLegend = () => (
  <dl className="stage-legend">
    {STAGES.map((stage) => (
      <div key={stage}>
        <dt>
          <svg className="stage-bar" width="28" height={HEIGHT} aria-hidden="true" focusable="false">
            <Segment stage={stage} x={0.02} width={0.96} />
          </svg>
          {STAGE_WORDS[stage].word}
        </dt>
        <dd>{STAGE_WORDS[stage].means}</dd>
      </div>
    ))}
  </dl>
);
