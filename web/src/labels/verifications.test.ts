import { describe, expect, it } from "vitest";
import { comparison } from "../testing/samples";
import { bytes, percent } from "./numbers";
import {
  comparedWords,
  comparisonWords,
  differenceWords,
  keyWords,
  methodWords,
  rowsWords,
  verificationWords,
  verifiedShareWords,
} from "./verifications";

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

it("says that only a sample was compared", () => {
  expect(verificationWords({ state: "succeeded", equal: true, sample: 0.01 })).toEqual({ tone: "good", word: "sample equal" });
  expect(verificationWords({ state: "succeeded", equal: false, sample: 0.01 }).word).toBe("different");
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

describe("comparisonWords", () => {
  it.each([
    [{}, "good", "verified"],
    [{ sample: 0.01 }, "good", "a sample is equal"],
    [{ sample: 0.01, overdue: true }, "warn", "overdue"],
    [{ overdue: true }, "warn", "overdue"],
    [{ overdue: true, equal: false }, "bad", "different"],
    [{ equal: false, before_copy: true }, "warn", "not since its copy"],
  ])("of %j is %s", (changes, tone, word) => expect(comparisonWords(comparison(changes))).toEqual({ tone, word }));
});

describe("verifiedShareWords", () => {
  const share = (rows_ratio: number) =>
    verifiedShareWords({ verified: { tables: 12, verified_tables: 3, tables_ratio: 0.25, rows_ratio, oldest_at: null } });
  it("is never rounded up to all", () => expect(share(0.9999)?.words.replaceAll("\u00a0", " ")).toBe("99 % of the rows"));
  it("has the tables", () => expect(share(1)).toMatchObject({ note: "3 of 12 tables" }));
  it("is nothing without a schedule", () => expect(verifiedShareWords({ verified: null })).toBeNull());
});

it("says how a table was compared", () => {
  expect(methodWords({})).toBe("by rows");
  expect(methodWords({ method: "checksum" })).toBe("by checksum");
  expect(methodWords({ method: "checksum", sample: 0.01 })).toBe(`by checksum, a sample of ${percent(0.01)}`);
  expect(methodWords({ method: "rows", whole_because: "few rows" })).toBe("by rows, as a whole because of few rows");
  expect(methodWords({ method: "rows", bytes_from_source: 2048, by_rows_because: "no key" })).toBe(
    `by rows, ${bytes(2048)} read, because of no key`,
  );
  expect(methodWords({ method: "checksum", ranges: 1025, ranges_different: 2, bytes_from_source: 512 })).toBe(
    `by checksum: 2 of 1,025 ranges differed, ${bytes(512)} read`,
  );
});
