import { describe, expect, it } from "vitest";
import type { Subscription } from "../api/client";
import { subscription } from "../testing/samples";
import { aspectsOf, GROUP_WORDS, goalOf, HEALTH_GROUPS, healthOf, heldUp, slotShare, toneOf, warnShare, worstFirst } from "./health";

type Judged = Subscription["health"];
const judged = (changes: Record<string, unknown>): Judged => ({ ...subscription().health, ...changes }) as Judged;

describe("healthOf", () => {
  it.each([
    ["failed", "bad"],
    ["attention", "warn"],
    ["unknown", "unknown"],
    ["moving", "busy"],
    ["running", "good"],
    ["resting", "idle"],
  ])("shows the status %s in the tone %s", (status, tone) => {
    expect(healthOf(subscription({ health: judged({ status }) }))).toMatchObject({ group: status, tone });
  });

  it("takes a status of a newer server as unknown", () => {
    expect(healthOf(subscription({ health: judged({ status: "hibernating" }) }))).toMatchObject({ group: "unknown", tone: "unknown" });
  });

  it("writes the server's word with spaces, and repeats its reason and remedy", () => {
    const health = judged({ word: "partly_paused", reason: "One is paused.", remedy: "Resume it." });
    expect(healthOf(subscription({ health }))).toMatchObject({ word: "partly paused", why: "One is paused.", remedy: "Resume it." });
  });

  it("has no remedy where the server names none", () => {
    expect(healthOf(subscription({ health: judged({ remedy: undefined }) })).remedy).toBeNull();
  });
});

it("every group has words of its own", () => {
  expect(new Set(HEALTH_GROUPS.map((group) => GROUP_WORDS[group].word)).size).toBe(HEALTH_GROUPS.length);
});

it("toneOf takes an unknown status as unknown", () => expect(toneOf("hibernating")).toBe("unknown"));

describe("aspectsOf", () => {
  it("names the aspects that are known and keeps the names of others", () => {
    const aspects = [
      { name: "source_log", status: "attention", reason: "Half of its budget is used." },
      { name: "weather", status: "resting", reason: "It rains." },
    ];
    expect(aspectsOf(subscription({ health: judged({ aspects }) }))).toEqual([
      { name: "Source's log", tone: "warn", says: "Half of its budget is used." },
      { name: "weather", tone: "idle", says: "It rains." },
    ]);
  });
});

describe("heldUp", () => {
  it("is nothing while tables are followed", () => expect(heldUp(judged({ following: true, status: "failed" }))).toBeNull());

  it("is the tone of applying", () => {
    const aspects = [{ name: "applying", status: "resting", reason: "" }];
    expect(heldUp(judged({ following: false, status: "attention", aspects }))).toBe("idle");
  });

  it("is the tone of the whole without that aspect", () => {
    expect(heldUp(judged({ following: false, status: "unknown", aspects: [] }))).toBe("unknown");
  });

  it("shows tables that wait for a failed subscription as a warning", () => {
    expect(heldUp(judged({ following: false, status: "failed", aspects: [] }))).toBe("warn");
  });
});

describe("budgets", () => {
  it("slotShare is what is held back by the budget", () => expect(slotShare(subscription())).toBe(0.25));

  it.each([
    [null, { slot_budget_bytes: 1000 }],
    [250, { slot_budget_bytes: null }],
    [250, { slot_budget_bytes: 0 }],
  ])("slotShare of %s of %j is unknown", (retained_bytes, capture) => {
    expect(slotShare(subscription({ retained_bytes, capture } as Partial<Subscription>))).toBeNull();
  });

  it("warnShare is one half unless it is set", () => {
    expect(warnShare(subscription())).toBe(0.5);
    expect(warnShare(subscription({ capture: { guard: { warn_share: 0.7 } } } as Partial<Subscription>))).toBe(0.7);
  });

  it("goalOf is a minute unless it is set", () => {
    expect(goalOf(subscription())).toBe(60);
    expect(goalOf(subscription({ freshness: { goal_seconds: 5 } } as Partial<Subscription>))).toBe(5);
  });
});

describe("worstFirst", () => {
  const entry = (name: string, status: string, lag: number | null = 0) => {
    const item = subscription({ name, health: judged({ status }), lag: { seconds: lag, bytes: null, tables: 1 } as Subscription["lag"] });
    return { item, health: healthOf(item) };
  };
  const sorted = (...entries: ReturnType<typeof entry>[]): string[] => entries.sort(worstFirst).map(({ item }) => item.name);

  it("sorts by status", () => {
    expect(sorted(entry("a", "resting"), entry("b", "running"), entry("c", "failed"), entry("d", "attention"))).toEqual([
      "c",
      "d",
      "b",
      "a",
    ]);
  });

  it("sorts equals by lag, the largest first", () => {
    expect(sorted(entry("a", "running", 1), entry("b", "running", null), entry("c", "running", 9))).toEqual(["c", "a", "b"]);
  });

  it("sorts the rest by name", () => expect(sorted(entry("b", "running"), entry("a", "running"))).toEqual(["a", "b"]));
});
