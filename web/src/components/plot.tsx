import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { theme, type Zone } from "../display";

/** A line of a chart. Dashes distinguish them too, not colour alone. */
export interface Line {
  label: string;
  /** One for each of the chart's times; null where nothing is known. */
  values: (number | null)[];
  kind: LineKind;
}

export type LineKind = "first" | "second" | "third" | "fourth" | "limit";

export const DASHES: Record<LineKind, number[]> = { first: [], second: [7, 3], third: [2, 3], fourth: [8, 3, 2, 3], limit: [1, 4] };
const COLOURS = ["accent", "ink", "soft", "hair", "warn"] as const;
type Colours = Record<(typeof COLOURS)[number], string>;
const STROKES: Record<LineKind, keyof Colours> = { first: "accent", second: "ink", third: "soft", fourth: "ink", limit: "warn" };

const HEIGHT = 180;
const AXIS_WIDTH = 72;
const SYNCED = uPlot.sync("charts");

/** The page's colours as a canvas needs them, also when they change. */
function useColours(): Colours {
  const [colours, setColours] = useState(readColours);
  useEffect(() => {
    const renew = (): void => setColours(readColours());
    const system = window.matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", renew);
    const end = theme.subscribe(renew);
    renew();
    return () => {
      system.removeEventListener("change", renew);
      end();
    };
  }, []);
  return colours;
}

function readColours(): Colours {
  const probe = document.createElement("span");
  document.body.append(probe);
  const found = COLOURS.map((name) => {
    probe.style.color = `var(--${name})`;
    return [name, getComputedStyle(probe).color];
  });
  probe.remove();
  return Object.fromEntries(found) as Colours;
}

interface PlotProps {
  /** Seconds since 1970, rising. */
  times: number[];
  lines: Line[];
  /** The first and the last time that is shown. */
  from: number;
  to: number;
  zone: Zone;
  /** What the scale of values goes to at least. */
  least: number;
  format: (value: number) => string;
  /** Which of the times the pointer is at, in this chart or in another one of the page; null: none. */
  onPoint: (index: number | null) => void;
}

/** Draws lines over time. The page has to show the same in words: the drawing is hidden from screen readers. */
export default function Plot({ times, lines, from, to, zone, least, format, onPoint }: PlotProps) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const colours = useColours();
  const current = useRef({ from, to, least, format, onPoint });
  current.current = { from, to, least, format, onPoint };
  const data: uPlot.AlignedData = [times, ...lines.map(({ values }) => values)];
  const newest = useRef(data);
  newest.current = data;
  const kinds = lines.map(({ kind }) => kind).join(" ");

  useEffect(() => {
    const element = place.current;
    if (element === null) return undefined;
    const made = new uPlot(options(element.clientWidth, kinds.split(" ") as LineKind[], colours, zone, current), newest.current, element);
    chart.current = made;
    const resized = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      made.destroy();
      chart.current = null;
    };
  }, [kinds, colours, zone]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: the data is read from the reference, which holds what these were last.
  useEffect(() => chart.current?.setData(newest.current), [times, lines, from, to]);
  return <div ref={place} className="plot" aria-hidden="true" />;
}

type Current = { current: Pick<PlotProps, "from" | "to" | "least" | "format" | "onPoint"> };

function options(width: number, kinds: LineKind[], colours: Colours, zone: Zone, current: Current): uPlot.Options {
  const face = getComputedStyle(document.body).fontFamily;
  const axis: uPlot.Axis = {
    stroke: colours.soft,
    font: `12px ${face}`,
    grid: { stroke: colours.hair, width: 1 },
    ticks: { stroke: colours.hair, width: 1, size: 4 },
  };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    tzDate: (seconds) => (zone === "UTC" ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000)),
    scales: {
      x: { time: true, range: () => [current.current.from, current.current.to] },
      y: { range: (_, __, most) => [0, Math.max(most * 1.1, current.current.least)] },
    },
    axes: [
      {
        ...axis,
        space: 72,
        values: [
          [86_400, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1],
          [60, "{HH}:{mm}", null, null, "\n{YYYY}-{MM}-{DD}", null, null, null, 1],
          [1, "{HH}:{mm}:{ss}", null, null, "\n{YYYY}-{MM}-{DD}", null, null, null, 1],
        ],
      },
      { ...axis, size: AXIS_WIDTH, values: (_, splits) => splits.map((value) => current.current.format(value)) },
    ],
    series: [{}, ...kinds.map((kind) => seriesOf(kind, colours))],
    cursor: { y: false, drag: { x: false, y: false }, sync: { key: SYNCED.key } },
    hooks: { setCursor: [(chart) => current.current.onPoint(chart.cursor.idx ?? null)] },
  };
}

function seriesOf(kind: LineKind, colours: Colours): uPlot.Series {
  return {
    stroke: colours[STROKES[kind]],
    width: kind === "first" ? 1.75 : 1.25,
    dash: DASHES[kind],
    points: { show: kind === "limit" ? false : undefined, size: 5 },
  };
}
