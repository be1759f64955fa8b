import { describe, expect, it } from "vitest";
import { table } from "../../testing/samples";
import {
  bodyOf,
  draftOf,
  NO_OPTIONS,
  type OptionsDraft,
  patchOf,
  takesColumn,
  unknownColumns,
  valueChoice,
  withColumn,
  withValue,
  wrongPriority,
} from "./draft";

const draft = (changes: Partial<OptionsDraft> = {}): OptionsDraft => ({ ...NO_OPTIONS, ...changes });
const HASH = { method: "hash", type: "text", value: null } as const;

describe("patchOf", () => {
  it("is empty where nothing was changed", () => {
    const opened = draftOf(table({ mask: { a: HASH, b: HASH }, where: "a > 1", key: ["a"], columns: { n: { map_as: "text" } } }));
    expect(patchOf(opened, { ...opened, where: " a > 1\n", mask: { b: HASH, a: { value: null, type: "text", method: "hash" } } })).toEqual(
      {},
    );
  });

  it("has only what was changed", () => {
    const opened = draft({ texts: ["a", "b"], key: ["id"], exclude: "x", priority: "3" });
    const entered = { ...opened, texts: ["b", "c"], key: [], exclude: "x\ny*\n\nx", rename: { d: "e", f: "" }, priority: "-4" };
    expect(patchOf(opened, entered)).toEqual({
      columns: { a: null, c: { map_as: "text" } },
      key: null,
      exclude_columns: ["x", "y*"],
      rename: { d: "e" },
      priority: -4,
    });
  });

  it("clears a condition", () => expect(patchOf(draft({ where: "a" }), draft({ where: " " }))).toEqual({ where: null }));
});

describe("bodyOf", () => {
  const orders = { schema: "public", name: "orders" };
  it("leaves out what is at its default", () =>
    expect(bodyOf(orders, draft(), { schema: "public", name: "" })).toEqual({ schema: "public", name: "orders" }));
  it("has options and the place on the target", () =>
    expect(bodyOf(orders, draft({ texts: ["n"], insertOnly: true }), { schema: "mart", name: "orders" })).toEqual({
      ...orders,
      target: { schema: "mart" },
      columns: { n: { map_as: "text" } },
      insert_only: true,
    }));
  it("asks for the history of a table, and no more of it", () => {
    expect(bodyOf(orders, draft({ history: true }), { schema: "", name: "" })).toEqual({ ...orders, history: true });
    expect(patchOf(draft({ history: true }), draft())).toEqual({ history: false });
  });
  it("means a name with an asterisk literally", () =>
    expect(bodyOf({ schema: "public", name: "a*" }, draft())).toMatchObject({ exact: true }));
});

describe("a column's values", () => {
  it.each(["as it is", "text", "null", "constant", "hash.text", "hash.bytea"] as const)("%s is kept", (chosen) => {
    const before = draft({ texts: ["a"], mask: { b: HASH } });
    const after = { ...before, ...withValue(before, "a", chosen, "x") };
    expect(valueChoice(after, "a")).toBe(chosen);
    expect(valueChoice(after, "b")).toBe("hash.text");
  });
});

describe("columns that are left out", () => {
  it.each([
    ["", "", true],
    ["", "a", false],
    ["", "b*", true],
    ["", "A", true],
    ["b", "", false],
    ["a*", "ab", true],
    ["a*", "*", false],
  ])("only %j, not %j: %s", (include, exclude, taken) => expect(takesColumn({ include, exclude }, "a")).toBe(taken));

  it("are left out by name and taken in again", () => {
    const without = { ...draft({ include: "b" }), ...withColumn(draft({ include: "b" }), "a", false) };
    expect(without).toMatchObject({ include: "b", exclude: "a" });
    expect(withColumn(without, "a", true)).toEqual({ include: "b\na", exclude: "" });
    expect(withColumn(draft({ exclude: "a\nc" }), "a", true)).toEqual({ include: "", exclude: "c" });
  });
});

it("names columns that the source does not have, but no patterns", () =>
  expect(unknownColumns(draft({ key: ["id"], exclude: "gone\nx*", rename: { old: "new" } }), ["id"])).toEqual(["gone", "old"]));

it.each([
  ["0", true],
  ["-1000", true],
  ["1001", false],
  ["", false],
  ["1.5", false],
])("priority %j is right: %s", (typed, right) => expect(wrongPriority(typed) === null).toBe(right));
