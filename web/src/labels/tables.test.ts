import { describe, expect, it } from "vitest";
import type { Table } from "../api/client";
import { table } from "../testing/samples";
import { asked, byNeed, copiedWords, copyWords, isCopied, qualified, statesByNeed, tableName, tableStateWords, tableWords } from "./tables";

const STATES = ["registered", "copying", "catching_up", "live", "paused", "reloading", "parked", "removed"] as const;

describe("tableStateWords", () => {
  it.each([
    ["registered", "waiting", "busy"],
    ["copying", "copying", "busy"],
    ["catching_up", "catching up", "busy"],
    ["live", "live", "good"],
    ["paused", "paused", "idle"],
    ["reloading", "reloading", "busy"],
    ["parked", "parked", "bad"],
    ["removed", "removed", "idle"],
  ])("calls %s “%s” in the tone %s", (state, word, tone) => expect(tableStateWords(state)).toMatchObject({ word, tone }));

  it.each(STATES)("has a sentence for %s", (state) => expect(tableStateWords(state).means).toMatch(/^[A-Z].* .*\.$/));

  it("takes a state of a newer server as unknown", () => {
    expect(tableStateWords("frozen")).toMatchObject({ word: "unknown (frozen)", tone: "unknown" });
  });

  it.each(["registered", "copying", "catching_up", "reloading"])("shows that %s is held up", (state) => {
    expect(tableStateWords(state, "idle")).toMatchObject({ tone: "idle", word: `${tableStateWords(state).word}, stopped` });
  });

  it("shows that a live table is not followed", () => {
    expect(tableStateWords("live", "warn")).toMatchObject({ tone: "warn", word: "live, not followed" });
  });

  it.each(["paused", "parked", "removed"])("leaves %s as it is while nothing is applied", (state) => {
    expect(tableStateWords(state, "warn")).toEqual(tableStateWords(state));
  });
});

describe("tableWords", () => {
  const health = (changes: Record<string, unknown>): Table["health"] =>
    ({ status: "running", word: "live", reason: null, following: true, ...changes }) as Table["health"];

  it("shows a followed table as live", () => expect(tableWords(table())).toEqual(tableStateWords("live")));

  it("repeats the server's reason", () => {
    expect(tableWords(table({ state: "parked", health: health({ status: "failed", reason: "It has no key." }) }))).toMatchObject({
      tone: "bad",
      word: "parked",
      means: "It has no key.",
    });
  });

  it("shows a live table of a paused subscription as not followed", () => {
    expect(tableWords(table({ health: health({ status: "resting", following: false }) }))).toMatchObject({
      tone: "idle",
      word: "live, not followed",
    });
  });

  it("shows a copy that goes on, and one that is held up", () => {
    expect(tableWords(table({ state: "copying", health: health({ status: "moving" }) })).word).toBe("copying");
    expect(tableWords(table({ state: "copying", health: health({ status: "attention" }) }))).toMatchObject({
      tone: "warn",
      word: "copying, stopped",
    });
  });

  it("shows an unknown state as unknown, whatever its health", () => {
    const frozen = table({ state: "frozen" as Table["state"], health: health({ status: "failed", reason: "Cold." }) });
    expect(tableWords(frozen)).toMatchObject({
      tone: "unknown",
      word: "unknown (frozen)",
      means: expect.stringContaining("does not know") as string,
    });
  });
});

describe("the order of tables", () => {
  it("begins with states that need attention", () => {
    expect([...STATES].sort(statesByNeed)).toEqual([
      "parked",
      "reloading",
      "copying",
      "catching_up",
      "registered",
      "paused",
      "live",
      "removed",
    ]);
  });

  it("puts unknown states in front", () => expect(["parked", "frozen"].sort(statesByNeed)).toEqual(["frozen", "parked"]));

  it("sorts equal states by name", () => {
    const tables = [table({ name: "b" }), table({ name: "c", state: "parked" }), table({ name: "a" })];
    expect(tables.sort(byNeed).map(({ name }) => name)).toEqual(["c", "a", "b"]);
  });
});

describe("requests that are not in effect", () => {
  it.each([
    ["live", "paused", "a pause was requested"],
    ["paused", "running", "a resume was requested"],
    ["paused", "paused", null],
    ["live", "running", null],
    ["removed", "paused", null],
  ] as const)("of a table that is %s and wanted %s: %s", (state, desired_state, words) => {
    expect(asked(table({ state, desired_state }))).toBe(words);
  });
});

describe("copies", () => {
  const copied = (changes: Partial<Table["copied"]>): Table["copied"] => ({ ...table().copied, ...changes });

  it.each(STATES)("isCopied of %s", (state) => expect(isCopied(table({ state }))).toBe(state === "copying" || state === "reloading"));

  it.each([
    [{ percent: 41.9, eta_seconds: 12.4 }, "41 %, about 12\u00a0s left"],
    [{ percent: 99.99, eta_seconds: null }, "99 %"],
    [{ percent: null, eta_seconds: 300 }, "about 5\u00a0min left"],
    [{ percent: null, eta_seconds: null }, null],
  ])("copyWords of %j is %s", (changes, words) => expect(copyWords(copied(changes))).toBe(words));

  it("gives no time for a copy that is held up", () => expect(copyWords(copied({ percent: 5, eta_seconds: 12 }), true)).toBe("5 %"));

  it.each([
    [
      { rows: 1234, total_rows: 5000, bytes: 1024 ** 2, total_bytes: 4 * 1024 ** 2, rows_per_second: 119.6 },
      "1,234 of about 5,000 rows, 1\u00a0MiB of 4\u00a0MiB, 120 rows/s",
    ],
    [{ rows: 10, total_rows: 10, bytes: 512, total_bytes: 512 }, "10 rows, 512\u00a0B"],
    [{ rows: 10, bytes: 512 }, "10 rows, 512\u00a0B"],
  ])("copiedWords of %j is %s", (changes, words) => expect(copiedWords(copied(changes))).toBe(words));
});

describe("names", () => {
  it("are qualified by the schema", () => {
    expect(tableName(table())).toBe("public.orders");
    expect(qualified({ schema: "a", name: "b" })).toBe("a.b");
  });
});
