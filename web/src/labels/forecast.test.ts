import { describe, expect, it } from "vitest";
import type { HistoryPoint } from "../api/history";
import { later, point } from "../testing/samples";
import { forecast } from "./forecast";

/** One point every 30 s, with these retained bytes. */
const grown = (...values: (number | null)[]): HistoryPoint[] =>
  values.map((retained_bytes, number) => point({ at: later(number * 30), retained_bytes }));

describe("forecast", () => {
  it("extends a straight line to the budget", () => {
    expect(forecast(grown(0, 30, 60, 90, 120, 150), 250)).toEqual({ reachedInS: expect.closeTo(100, 6) as number });
  });

  it("ignores points without a figure", () => {
    expect(forecast(grown(0, null, 60, 90, 120, 150, 180, null), 280)).toEqual({ reachedInS: expect.closeTo(100, 6) as number });
  });

  it("looks at the last quarter of an hour only", () => {
    const old = [point({ at: later(-3600), retained_bytes: 1_000_000 })];
    expect(forecast([...old, ...grown(0, 30, 60, 90, 120, 150)], 250)).toEqual({ reachedInS: expect.closeTo(100, 6) as number });
  });

  it.each([
    ["the budget is reached", grown(100), 100, "reached"],
    ["the log shrinks", grown(150, 120, 90, 60, 30, 0), 1000, "not growing"],
    ["the log stays as it is", grown(5, 5, 5, 5, 5, 5), 1000, "not growing"],
    ["the budget is more than a month away", grown(0, 1, 2, 3, 4, 5), 1e9, "not growing"],
    ["there are too few points", grown(0, 30, 60, 90, 120), 1000, null],
    ["nothing is known", [], 1000, null],
    ["there is no budget", grown(0, 30, 60, 90, 120, 150), null, null],
  ])("when %s", (_case, points, budget, found) => expect(forecast(points, budget)).toBe(found));

  it("needs a minute of points", () => {
    const close = [0, 1, 2, 3, 4, 5].map((number) => point({ at: later(number * 10), retained_bytes: number }));
    expect(forecast(close, 1000)).toBeNull();
  });
});
