import { expect, it } from "vitest";
import { evidenceWords, LAG_CAUSES } from "./lagCauses";

it("writes what was measured in one line", () => {
  expect(evidenceWords({ pid: 4711, sender_waits_for: "Lock relation" })).toBe("pid: 4711, sender waits for: Lock relation");
  expect(evidenceWords({})).toBe("");
});

it("has different words for all causes", () => {
  expect(new Set(Object.values(LAG_CAUSES)).size).toBe(Object.keys(LAG_CAUSES).length);
});
