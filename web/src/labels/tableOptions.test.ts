import { describe, expect, it } from "vitest";
import { effectWords, optionName, optionValue, waitsForReload } from "./tableOptions";

describe("optionValue", () => {
  it.each([
    ["key", [], "the source's own"],
    ["key", ["a", "b"], "a, b"],
    ["where", null, "none"],
    ["where", "a > 1", "a > 1"],
    ["insert_only", true, "yes"],
    ["exclude_columns", [], "none"],
    ["columns", { n: { map_as: "text" } }, "n"],
    ["columns", {}, "none"],
    ["rename", { cust: "customer_id" }, "cust → customer_id"],
    [
      "mask",
      {
        a: { method: "null" },
        b: { method: "constant", value: "x" },
        c: { method: "hash", type: "text" },
        d: { method: "hash", type: "bytea" },
      },
      "a: NULL, b: “x”, c: hash, d: hash, as bytes",
    ],
    ["refused_rows", "set_aside", "are quarantined"],
    ["deletes", "mark", "stay, marked"],
    ["history", true, "are kept"],
    ["history", false, "are not kept"],
    ["priority", 0, "0"],
    ["later", { a: 1 }, '{"a":1}'],
  ])("%s: %j is %s", (option, value, words) => expect(optionValue(option, value)).toBe(words));
});

describe("effectWords", () => {
  it("says that left-out columns are dropped on the target", () =>
    expect(effectWords({ field: "exclude_columns", effect: "in_place" })).toContain("dropped from the table on the target"));
  it("says so of no other option", () => expect(effectWords({ field: "rename", effect: "in_place" })).not.toContain("dropped"));
  it.each(["at_once", "new_copy", "parks", "next_reload"] as const)("has words for %s", (effect) =>
    expect(effectWords({ field: "mask", effect })).not.toContain("unknown"),
  );
});

it("knows what waits for a reload", () => {
  expect(waitsForReload([{ effect: "at_once" }, { effect: "next_reload" }])).toBe(true);
  expect(waitsForReload([{ effect: "new_copy" }])).toBe(false);
});

it("names an option that it does not know as the API does", () => expect(optionName("newest")).toBe("newest"));
