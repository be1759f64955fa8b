import { describe, expect, it } from "vitest";
import { median, milliseconds, typedMs } from "./durations";

describe("milliseconds", () => {
  it.each([
    [0, "0.0 ms"],
    [1.26, "1.3 ms"],
    [10, "10 ms"],
    [999.4, "999 ms"],
    [1_000, "1.00 s"],
    [9_994, "9.99 s"],
    [10_000, "10\u00a0s"],
    [600_000, "10\u00a0min"],
    [-50, "−50 ms"],
    [-1_500, "−1.50 s"],
  ])("writes %d as %s", (value, text) => expect(milliseconds(value)).toBe(text));

  it.each([null, undefined])("writes %s as unknown", (value) => expect(milliseconds(value)).toBe("–"));
});

describe("median", () => {
  it.each([
    [[5], 5],
    [[1, 9], 5],
    [[9, 1, 3], 3],
    [[4, 1, 3, 2], 2.5],
  ])("of %j is %d", (values, middle) => expect(median(values)).toBe(middle));

  it("leaves the values in their order", () => {
    const values = [3, 1, 2];
    median(values);
    expect(values).toEqual([3, 1, 2]);
  });
});

describe("typedMs", () => {
  it.each([
    ["10", 10_000],
    ["0.2", 200],
    ["0.0004", 0],
  ])("reads %s seconds as %d ms", (typed, ms) => expect(typedMs(typed)).toBe(ms));
});
