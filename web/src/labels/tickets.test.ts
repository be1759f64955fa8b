// @vitest-environment jsdom

import { describe, expect, it } from "vitest";
import type { Ticket } from "../api/tickets";
import { NOW, ticket } from "../testing/samples";
import { STAGE_WORDS, STAGES, shownMs, stageMs, ticketName, ticketStateWords } from "./tickets";

const none = { captured_at: null, sealed_at: null, computed_at: null, applied_at: null };
const durations = (changes: Partial<Ticket["durations"]>): Ticket["durations"] => ({ ...ticket().durations, ...changes });

describe("stages of a ticket", () => {
  it("have words", () => expect(STAGES.map((stage) => STAGE_WORDS[stage].word)).toEqual(["Capture", "Batch", "Compute", "Apply"]));

  it.each([
    ["capture", 1],
    ["seal", 2],
    ["compute", 3],
    ["apply", 4],
  ] as const)("%s took %d ms", (stage, ms) => expect(stageMs(ticket(), stage)).toBe(ms));

  it("are summed as far as they are known", () => {
    expect(shownMs(ticket())).toBe(10);
    expect(shownMs(ticket({ durations: durations({ compute_ms: null, apply_ms: null }) }))).toBe(3);
  });

  it("count as nothing where two clocks make them negative", () =>
    expect(shownMs(ticket({ durations: durations({ capture_ms: -50 }) }))).toBe(9));
});

describe("ticketName", () => {
  it("is the name, or the id without one", () => {
    expect(ticketName(ticket({ name: "before" }))).toBe("before");
    expect(ticketName(ticket())).toBe("k1");
  });
});

describe("ticketStateWords", () => {
  it.each([
    ["applied", "applied", "good"],
    ["lost", "lost", "warn"],
    ["shredded", "unknown (shredded)", "unknown"],
  ])("calls %s “%s”", (state, word, tone) => {
    expect(ticketStateWords(ticket({ state: state as Ticket["state"] }))).toEqual({ tone, word, where: null });
  });

  it("says that a pending ticket is not in the log yet", () => {
    expect(ticketStateWords(ticket({ state: "pending", times: { ...ticket().times, ...none } }))).toEqual({
      tone: "busy",
      word: "waiting",
      where: "its marker is not yet in the source's log",
    });
  });

  it.each([
    [{}, "on its way to the engine"],
    [{ captured_at: NOW }, "its batch is not complete yet"],
    [{ captured_at: NOW, sealed_at: NOW }, "its net changes are being computed"],
    [{ captured_at: NOW, sealed_at: NOW, computed_at: NOW }, "its batch is being applied"],
  ])("says where a ticket with the times %j is", (times, where) => {
    expect(ticketStateWords(ticket({ state: "under_way", times: { ...ticket().times, ...none, ...times } }))).toMatchObject({
      word: "under way",
      where,
    });
  });
});
