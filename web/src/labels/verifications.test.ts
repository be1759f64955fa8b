import { describe, expect, it } from "vitest";
import { comparedWords, differenceWords, keyWords, rowsWords, verificationWords } from "./verifications";

describe("verificationWords", () => {
  it.each([
    ["queued", null, "busy", "waiting"],
    ["running", null, "busy", "comparing"],
    ["succeeded", true, "good", "equal"],
    ["succeeded", false, "bad", "different"],
    ["succeeded", null, "warn", "nothing compared"],
    ["failed", null, "bad", "failed"],
    ["cancelled", null, "idle", "cancelled"],
    ["later", null, "unknown", "unknown (later)"],
  ])("%s, equal: %s", (state, equal, tone, word) => {
    expect(verificationWords({ state: state as "queued", equal })).toEqual({ tone, word });
  });
});

it("says how many of how many were compared", () => {
  expect(comparedWords({ tables_done: 3, tables_total: 12 })).toBe("3 of 12 tables compared");
  expect(comparedWords({ tables_done: 1, tables_total: null })).toBe("1 table compared");
});

it("says what differs", () => {
  expect(differenceWords("missing")).toBe("missing on the target");
  expect(differenceWords("later")).toBe("later");
  expect(keyWords(["1", null])).toBe("1, NULL");
  expect(rowsWords({ source_rows: 1000, target_rows: 998 })).toBe("1,000 rows on the source, 998 on the target");
});
