import { describe, expect, it } from "vitest";
import { goalSample } from "../testing/samples";
import { complianceWords, type FreshnessGoal, goalState, goalWords, leftWords, usedShare } from "./goals";

const plain = (text: string): string => text.replaceAll("\u00a0", " ");
const goal = (more: Partial<FreshnessGoal> = {}): FreshnessGoal => goalSample(more);

describe("goalWords", () => {
  it.each([
    [168, "99.5 % of the time at most 10 s, over 7 days"],
    [24, "99.5 % of the time at most 10 s, over 24 hours"],
    [30, "99.5 % of the time at most 10 s, over 30 hours"],
  ])("says a window of %i hours", (window_hours, words) => {
    expect(plain(goalWords(goal({ goal: { ...goal().goal, window_hours } })))).toBe(words);
  });
});

describe("goalState", () => {
  it.each([
    [{}, "good", "met"],
    [{ compliance_percent: null }, "unknown", "not measured yet"],
    [{ met: false, alarms: ["spent", "fast_burn"] }, "bad", "budget spent"],
    [{ alarms: ["fast_burn", "slow_burn"] }, "warn", "budget used fast"],
    [{ alarms: ["slow_burn"] }, "warn", "budget used too fast"],
  ] as [Partial<FreshnessGoal>, string, string][])("of %j is %s", (more, tone, word) => {
    expect(goalState(goal(more))).toEqual({ tone, word });
  });
});

describe("complianceWords", () => {
  it.each([
    [99.9999, "99.999 %"],
    [100, "100 %"],
    [99.5, "99.5 %"],
    [null, "–"],
  ])("of %d is %s", (compliance_percent, words) => expect(complianceWords(goal({ compliance_percent }))).toBe(words));
});

describe("the budget", () => {
  const spent = goal({ budget: { total_seconds: 100, used_seconds: 150, left_seconds: -50 } });
  it("is what is left", () => expect(plain(leftWords(goal()))).toBe("37 min"));
  it("says how much too much was used", () => expect(plain(leftWords(spent))).toBe("none, 50 s too much was used"));
  it("is used in part or more than whole", () => expect([usedShare(goal()), usedShare(spent)]).toEqual([780 / 3024, 1.5]));
});
