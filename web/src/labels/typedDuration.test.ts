import { describe, expect, it } from "vitest";
import { asTyped, durationWords, typedSeconds } from "./typedDuration";

describe("a duration", () => {
  it.each([
    [90, "90", "seconds", "90 seconds"],
    [60, "1", "minutes", "1 minute"],
    [3_600, "1", "hours", "1 hour"],
    [5_400, "90", "minutes", "90 minutes"],
    [172_800, "2", "days", "2 days"],
  ] as const)("of %i s has the largest unit that fits", (seconds, number, unit, words) => {
    expect(asTyped(seconds)).toEqual({ number, unit });
    expect(durationWords(seconds)).toBe(words);
    expect(typedSeconds({ number, unit })).toBe(seconds);
  });

  it("may be typed with a fraction, and is none where no number was typed", () => {
    expect(typedSeconds({ number: "1.5", unit: "minutes" })).toBe(90);
    expect(typedSeconds({ number: " ", unit: "minutes" })).toBeNaN();
    expect(typedSeconds({ number: "soon", unit: "minutes" })).toBeNaN();
  });
});
