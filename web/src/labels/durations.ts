import { seconds } from "./numbers";

/** A duration given in milliseconds, as fine as it is short; it may be negative, where two clocks do not agree. */
export function milliseconds(value: number | null | undefined): string {
  if (value == null) return seconds(null);
  if (value < 0) return `−${milliseconds(-value)}`;
  if (value < 10) return `${value.toFixed(1)} ms`;
  if (value < 1_000) return `${Math.round(value)} ms`;
  if (value < 10_000) return `${(value / 1_000).toFixed(2)} s`;
  return seconds(value / 1_000);
}

/** Of a list that is not empty. */
export function median(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const [low = 0, high = 0] = [sorted[Math.ceil(sorted.length / 2) - 1], sorted[middle]];
  return (low + high) / 2;
}

/** Seconds that were typed, in whole milliseconds. */
export const typedMs = (typed: string): number => Math.round(Number(typed) * 1_000);
