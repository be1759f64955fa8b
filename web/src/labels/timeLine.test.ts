import { describe, expect, it } from "vitest";
import type { Event } from "../api/client";
import { event, later } from "../testing/samples";
import { type Outcome, outcomeWords, timeLine, toneOfOutcome } from "./timeLine";

/** Events in the order in which they happened, one second apart, as the API lists them: newest first. */
const happened = (...events: Partial<Event>[]): Event[] =>
  events.map((each, number) => event({ id: `e${number}`, at: later(number), ...each })).reverse();
const outcomes = (events: Event[], present: string | null = null) =>
  timeLine(events, present).map(({ request, outcome }) => [request, outcome?.is ?? null]);

const PAUSE = { kind: "table_pause_asked" };
const RESUME = { kind: "table_resume_asked" };
const RELOAD = { kind: "table_reload_asked" };
const becomes = (table_state: string, severity: Event["severity"] = "info"): Partial<Event> => ({
  kind: `table_${table_state}`,
  table_state: table_state as NonNullable<Event["table_state"]>,
  severity,
});

describe("timeLine", () => {
  it("is empty without events", () => expect(timeLine([], "live")).toEqual([]));

  it("keeps events that no request caused", () => expect(outcomes(happened(becomes("parked", "error")))).toEqual([[null, null]]));

  it("joins a request with the event of its effect", () => {
    const [entry, ...others] = timeLine(happened(PAUSE, becomes("paused")), "paused");
    expect(others).toEqual([]);
    expect(entry).toMatchObject({ request: "pause", steps: [], outcome: { is: "in effect", afterMs: 1000 } });
  });

  it("lists the states that a reload passes through", () => {
    const [entry] = timeLine(happened(RELOAD, becomes("reloading"), becomes("catching_up"), becomes("live")), "live");
    expect(entry?.steps).toEqual([
      { state: "reloading", afterMs: 1000 },
      { state: "catching_up", afterMs: 2000 },
    ]);
    expect(entry?.outcome).toEqual({ is: "in effect", afterMs: 3000 });
  });

  it("does not take a live table for the end of a reload that has not begun", () => {
    expect(outcomes(happened(RELOAD, becomes("live")), "live")).toEqual([
      [null, null],
      ["reload", "waiting"],
    ]);
  });

  it("ends requests by a fault", () => {
    expect(outcomes(happened(RELOAD, becomes("reloading"), becomes("parked", "error")))).toEqual([
      [null, null],
      ["reload", "parked"],
    ]);
  });

  it("shows that a later request overtook an earlier one", () => {
    expect(timeLine(happened(PAUSE, RESUME, becomes("live")), "live").map(({ outcome }) => outcome)).toEqual([
      { is: "in effect", afterMs: 1000 },
      { is: "overtaken", by: "resume", afterMs: 1000 },
    ]);
  });

  it("takes a pause that was cancelled in time for one without effect", () => {
    expect(outcomes(happened(PAUSE, RESUME), "live")).toEqual([
      ["resume", "in effect"],
      ["pause", "overtaken"],
    ]);
  });

  it("says nothing of requests whose effect is on another page", () => expect(outcomes(happened(PAUSE), null)).toEqual([["pause", null]]));

  it("shows requests that wait", () => expect(outcomes(happened(PAUSE), "live")).toEqual([["pause", "waiting"]]));

  it("ends a reload by its cancellation", () => {
    expect(outcomes(happened(RELOAD, { kind: "table_reload_cancelled" }), "live")).toEqual([
      ["cancel the reload", null],
      ["reload", "overtaken"],
    ]);
  });

  it("puts settings that need no copy into effect without waiting", () => {
    expect(outcomes(happened({ kind: "table_settings_changed", remedy: null }), "live")).toEqual([["settings", null]]);
  });

  it("ends everything from before when a table is added again", () => {
    expect(
      outcomes(happened(RELOAD, { kind: "table_added" }, becomes("copying"), becomes("catching_up"), becomes("live")), "live"),
    ).toEqual([
      ["add", "in effect"],
      ["reload", "overtaken"],
    ]);
  });

  it("counts no time where two clocks make it negative", () => {
    const events = [event({ id: "b", at: later(-5), ...becomes("paused") }), event({ id: "a", ...PAUSE })];
    expect(timeLine(events, "paused")[0]?.outcome).toEqual({ is: "in effect", afterMs: 0 });
  });
});

describe("outcomes", () => {
  const cases: [Outcome, string, string][] = [
    [{ is: "waiting" }, "busy", "not in effect yet"],
    [{ is: "in effect", afterMs: 0 }, "good", "in effect at once"],
    [{ is: "in effect", afterMs: 1200 }, "good", "in effect after 1200 ms"],
    [{ is: "parked", afterMs: 5 }, "bad", "not in effect: the table was parked after 5 ms"],
    [{ is: "overtaken", by: "settings", afterMs: 5 }, "idle", "changed again after 5 ms"],
    [{ is: "overtaken", by: "resume", afterMs: 5 }, "idle", "not in effect: “resume” was requested after 5 ms"],
  ];
  it.each(cases)("%j has the tone %s", (outcome, tone) => expect(toneOfOutcome(outcome)).toBe(tone));
  it.each(cases)("%j is written in words", (outcome, _tone, words) => expect(outcomeWords(outcome, (ms) => `${ms} ms`)).toBe(words));
  it("a request without one is a note", () => expect(toneOfOutcome(null)).toBe("note"));
});
