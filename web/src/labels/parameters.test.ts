import { describe, expect, it } from "vitest";
import { parameterCount, parameterValues } from "./parameters";

describe("parameterCount", () => {
  it.each([
    ["SELECT 1", 0],
    ["SELECT $1, $2", 2],
    ["SELECT $3", 3],
    ["SELECT '$1', \"$2\", 'it''s $3' -- $4\n /* $5 */ FROM t WHERE a = $1", 1],
    ["SELECT $$ $7 $$, $tag$ $8 $tag$, $2", 2],
    ["SELECT '$1", 0],
    ["SELECT $999", 100],
  ])("%s wants %d", (sql, count) => expect(parameterCount(sql)).toBe(count));
});

it("values have the order of the statement's numbers, and more are left out", () => {
  const typed = [
    { text: "a", isNull: false },
    { text: "left", isNull: true },
    { text: "c", isNull: false },
  ];
  expect(parameterValues("SELECT $2, $1", typed)).toEqual(["a", null]);
  expect(parameterValues("SELECT $1", [])).toEqual([""]);
});
