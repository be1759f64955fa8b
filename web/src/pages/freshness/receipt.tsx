import type { Receipt, Waited } from "../../api/freshness";
import { StatusBadge } from "../../components/statusBadge";
import { StatusBanner } from "../../components/statusBanner";
import { Moment } from "../../components/time";
import { consistencyWords } from "../../labels/cycles";
import { milliseconds } from "../../labels/durations";
import { some } from "../../labels/numbers";
import { exceptionWords, type Step, stepsOf, stepWords } from "../../labels/receipts";
import { qualified, tableStateWords } from "../../labels/tables";

/** How a wait ended, in a sentence. */
export function ReceiptSummary({ waited: { receipt, waitedMs } }: { waited: Waited }) {
  return (
    <StatusBanner
      tone="good"
      word="visible"
      since={receipt.on_arrival ? "already at the request" : `after ${milliseconds(waitedMs)}`}
      why={`Everything committed on the source up to ${receipt.position} is visible on the target, in ${some(receipt.tables.length, "table")}.`}
    />
  );
}

interface ReceiptViewProps {
  waited: Waited;
  onPosition: (position: string) => void;
}

/** How and where the awaited changes became visible. */
export function ReceiptView({ waited, onPosition }: ReceiptViewProps) {
  const { receipt, askedAt } = waited;
  return (
    <>
      <TimeLine steps={stepsOf(waited)} />
      <p className="below soft">
        {askedAt !== null && (
          <>
            Asked at <Moment at={askedAt} />.{" "}
          </>
        )}
        “Captured” and “Applied” are timed by the engine&apos;s clock, the others by the server&apos;s. Wait <code>{waited.id}</code>.
      </p>
      <Covered receipt={receipt} />
      <p className="below">
        <button type="button" onClick={() => onPosition(receipt.position)}>
          Query at this position
        </button>
      </p>
    </>
  );
}

/** Moments in their order; each bar is the time since the moment before, on a scale that all share. */
function TimeLine({ steps }: { steps: Step[] }) {
  const last = Math.max(1, ...steps.map(({ atMs }) => atMs ?? 0));
  let before = 0;
  return (
    <ol className="time-line">
      {steps.map((step) => {
        const from = before;
        if (step.atMs !== null) before = Math.max(0, step.atMs);
        return (
          <li key={step.name}>
            <strong>{step.name}</strong>
            <span className="number">{stepWords(step)}</span>
            <span className="time-line-means">
              {step.means}
              {step.position !== null && (
                <>
                  {" "}
                  <code>{step.position}</code>
                </>
              )}
            </span>
            <Span from={Math.min(from, before) / last} to={Math.max(from, before) / last} />
          </li>
        );
      })}
    </ol>
  );
}

const SCALE = 1000;

/** From one share of the whole to another, 0 to 1; its end is always marked. */
const Span = ({ from, to }: { from: number; to: number }) => (
  <svg className="time-line-span" viewBox={`0 0 ${SCALE} 10`} preserveAspectRatio="none" aria-hidden="true" focusable="false">
    <rect className="track" y="4.5" width={SCALE} height="1" fill="currentColor" />
    <rect x={from * SCALE} y="2.5" width={(to - from) * SCALE} height="5" fill="currentColor" />
    <rect x={Math.max(0, to * SCALE - 4)} y="0" width="4" height="10" fill="currentColor" />
  </svg>
);

/** Tables whose rows are older than the position. */
export const LeftOut = ({ tables }: { tables: Receipt["left_out"] }) =>
  tables.length > 0 && (
    <ul>
      {tables.map((table) => (
        <li key={qualified(table)}>
          <StatusBadge tone="warn">
            {qualified(table)} was left out: it is {tableStateWords(table.state).word}
            {table.reason != null && `. ${table.reason}`}
          </StatusBadge>
        </li>
      ))}
    </ul>
  );

/** Which tables a receipt covers, and in which way not. */
export function Covered({ receipt }: { receipt: Receipt }) {
  return (
    <div className="covered">
      {receipt.consistency != null && receipt.consistency !== "transactions" && (
        <p className="soft">Readers of these tables see {consistencyWords(receipt.consistency)}.</p>
      )}
      <LeftOut tables={receipt.left_out} />
      {receipt.exceptions.length > 0 && (
        <ul>
          {receipt.exceptions.map((exception) => (
            <li key={`${qualified(exception)} ${exception.kind}`}>
              <StatusBadge tone="warn">
                {qualified(exception)}: {exceptionWords(exception)}
              </StatusBadge>
            </li>
          ))}
        </ul>
      )}
      <details>
        <summary>{some(receipt.tables.length, "table")} covered</summary>
        <ul className="names">
          {receipt.tables.map((table) => (
            <li key={qualified(table)}>{qualified(table)}</li>
          ))}
        </ul>
      </details>
    </div>
  );
}
