import { type ReactNode, useCallback, useId, useState } from "react";
import { zone } from "../display";
import { useStore } from "../store";
import Plot, { DASHES, type Line } from "./plot";
import { Moment } from "./time";

export type { Line } from "./plot";

interface ChartProps {
  title: string;
  /** One sentence: what is to be seen. It may hold what follows from it. */
  says: ReactNode;
  /** Seconds since 1970, rising. */
  times: number[];
  lines: Line[];
  from: number;
  to: number;
  /** What the scale of values goes to at least. */
  least: number;
  format: (value: number) => string;
}

/** Lines over time, with the values at the pointer, and the same as a table. */
export function Chart({ title, says, times, lines, from, to, least, format }: ChartProps) {
  const id = useId();
  const where = useStore(zone);
  const [pointed, setPointed] = useState<number | null>(null);
  const onPoint = useCallback((index: number | null) => setPointed(index), []);
  const known = lines.filter(({ kind }) => kind !== "limit");
  const newest = times.findLastIndex((_, index) => known.some(({ values }) => values[index] != null));
  const index = pointed !== null && pointed < times.length ? pointed : newest;
  return (
    <figure className="chart" aria-labelledby={id}>
      <figcaption>
        <h3 id={id}>{title}</h3>
        <div className="soft">{says}</div>
      </figcaption>
      <div className="values">
        <span className="soft">{index < 0 ? "Nothing is known yet" : <Moment at={(times[index] ?? 0) * 1000} />}</span>
        {lines.map((line) => (
          <span key={line.label} className={`value line-${line.kind}`}>
            <svg viewBox="0 0 26 8" width="26" height="8" aria-hidden="true" focusable="false">
              <path d="M0 4h26" fill="none" stroke="currentColor" strokeWidth="1.75" strokeDasharray={DASHES[line.kind].join(" ")} />
            </svg>
            {line.label} <b>{formatted(line.values[index], format)}</b>
          </span>
        ))}
      </div>
      <Plot times={times} lines={lines} from={from} to={to} zone={where} least={least} format={format} onPoint={onPoint} />
      <AsTable title={title} times={times} lines={lines} format={format} />
    </figure>
  );
}

const formatted = (value: number | null | undefined, format: (value: number) => string): string => (value == null ? "–" : format(value));

/** What the lines show, in numbers, the newest first. It is made when it is opened. */
function AsTable({ title, times, lines, format }: Pick<ChartProps, "title" | "times" | "lines" | "format">) {
  const [open, setOpen] = useState(false);
  const rows = times
    .map((time, index) => ({ time, values: lines.map(({ values }) => values[index]) }))
    .filter(({ values }) => values.some((value) => value != null))
    .reverse();
  return (
    <details className="below" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        As a table<span className="unseen">: {title}</span>
      </summary>
      {open && (
        <div className="scroll" tabIndex={0} role="region" aria-label={`${title} as a table`}>
          <table className="figures">
            <caption className="unseen">{title}, the newest first</caption>
            <thead>
              <tr>
                <th scope="col">Time</th>
                {lines.map(({ label }) => (
                  <th key={label} scope="col">
                    {label}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map(({ time, values }) => (
                <tr key={time}>
                  <th scope="row">
                    <Moment at={time * 1000} />
                  </th>
                  {values.map((value, number) => (
                    <td key={lines[number]?.label}>{formatted(value, format)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}
