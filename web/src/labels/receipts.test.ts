import { describe, expect, it } from "vitest";
import type { Receipt, Waited } from "../api/freshness";
import { later, NOW } from "../testing/samples";
import { exceptionWords, type Step, stepsOf, stepWords } from "./receipts";

const waited = (receipt: Partial<Receipt>, changes: Partial<Waited> = {}): Waited => ({
  id: "w1",
  waitedMs: 900,
  askedAt: NOW,
  receipt: {
    position: "0/16B3748",
    applied: "0/16B3800",
    now_ms: 12,
    sealed_at: later(0.2),
    committed_at: later(0.5),
    ...receipt,
  } as Receipt,
  ...changes,
});
const step = (atMs: number | null): Step => ({ name: "Applied", means: "", position: null, atMs });

describe("stepsOf", () => {
  it("lists the stages of a wait in the order of the pipeline", () => {
    expect(stepsOf(waited({})).map(({ name, atMs }) => [name, atMs])).toEqual([
      ["Asked", 0],
      ["Source position", 12],
      ["Captured", 200],
      ["Applied", 500],
      ["Visible", 900],
    ]);
  });

  it("shows the position that was waited for and the one that is applied", () => {
    expect(stepsOf(waited({})).map(({ position }) => position)).toEqual([null, "0/16B3748", null, "0/16B3800", null]);
  });

  it("says where the position was given, not read", () => {
    const [asked, position] = stepsOf(waited({ now_ms: null }));
    expect(asked?.means).toBe("for a position");
    expect(position).toMatchObject({ means: "as it was given", atMs: 0 });
  });

  it("dates steps before the request negatively", () => expect(stepsOf(waited({ sealed_at: later(-2) }))[2]?.atMs).toBe(-2000));

  it("does not know moments that the server forgot", () => {
    expect(stepsOf(waited({}, { askedAt: null }))[3]?.atMs).toBeNull();
    expect(stepsOf(waited({ committed_at: null }))[3]?.atMs).toBeNull();
  });
});

describe("stepWords", () => {
  it.each([
    [null, "not known"],
    [0, "0 ms"],
    [61, "after 61 ms"],
    [-1200, "1.20 s before"],
  ])("writes %s as %s", (atMs, words) => expect(stepWords(step(atMs))).toBe(words));
});

describe("exceptionWords", () => {
  type Exception = Receipt["exceptions"][number];
  it.each([
    [{ kind: "insert_only" }, "updates and deletes are not replicated"],
    [{ kind: "operations" }, "some operations are not followed"],
    [{ kind: "rows_set_aside", rows: 1 }, "1 row quarantined because the target refused it"],
    [{ kind: "rows_set_aside", rows: 2 }, "2 rows quarantined because the target refused them"],
    [{ kind: "sampled" }, "unknown exception (sampled)"],
  ])("writes %j as %s", (exception, words) => expect(exceptionWords(exception as Exception)).toBe(words));
});
