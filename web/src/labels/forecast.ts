import type { HistoryPoint } from "../api/history";

/** When retained log reaches its budget, at the pace of late; `null` where too little is known. */
export type Forecast = { reachedInS: number } | "reached" | "not growing" | null;

const WINDOW_MS = 15 * 60_000;
const LEAST_POINTS = 6;
const LEAST_SPAN_S = 60;
const FAR_OFF_S = 30 * 86_400;

/** A straight line through the last quarter of an hour of what is known. */
export function forecast(points: HistoryPoint[], budget: number | null | undefined): Forecast {
  const known = points.filter((point) => point.retained_bytes != null);
  const last = known.at(-1);
  if (last?.retained_bytes == null || budget == null) return null;
  if (last.retained_bytes >= budget) return "reached";
  const end = Date.parse(last.at);
  const recent = known.filter((point) => end - Date.parse(point.at) <= WINDOW_MS);
  const xs = recent.map((point) => (Date.parse(point.at) - end) / 1000);
  if (recent.length < LEAST_POINTS || -(xs[0] ?? 0) < LEAST_SPAN_S) return null;
  const slope = slopeOf(
    xs,
    recent.map((point) => point.retained_bytes ?? 0),
  );
  if (slope <= 0) return "not growing";
  const reachedInS = (budget - last.retained_bytes) / slope;
  return reachedInS > FAR_OFF_S ? "not growing" : { reachedInS };
}

/** By least squares. */
function slopeOf(xs: number[], ys: number[]): number {
  const mean = (values: number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
  const x0 = mean(xs);
  const y0 = mean(ys);
  let above = 0;
  let below = 0;
  xs.forEach((x, number) => {
    above += (x - x0) * ((ys[number] ?? 0) - y0);
    below += (x - x0) ** 2;
  });
  return below === 0 ? 0 : above / below;
}
