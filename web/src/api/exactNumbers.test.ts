import { describe, expect, it } from "vitest";
import { parseExactly, writeExactly } from "./exactNumbers";

describe("parseExactly", () => {
  it.each([
    ["9223372036854775807", 9223372036854775807n],
    ["-9223372036854775808", -9223372036854775808n],
    ["[1, 2.5, 1e3]", [1, 2.5, 1000]],
    ['{"a": 12345678901234567890}', { a: 12345678901234567890n }],
    ['"9223372036854775807"', "9223372036854775807"],
    ['"say \\"9223372036854775807\\""', 'say "9223372036854775807"'],
    ["3.14159265358979323846", Math.PI],
    ["null", null],
  ])("reads %s", (text, value) => expect(parseExactly(text)).toEqual(value));

  it("leaves integers that numbers hold exactly", () => expect(parseExactly("123456789012345")).toBe(123456789012345));

  it("raises what JSON.parse raises", () => expect(() => parseExactly("{")).toThrow(SyntaxError));
});

describe("writeExactly", () => {
  it.each([
    [9223372036854775807n, "9223372036854775807"],
    [[1, "a", null], '[1, "a", null]'],
    [{ a: { b: 2n } }, '{"a": {"b": 2}}'],
    [true, "true"],
    [undefined, "null"],
  ])("writes %o", (value, text) => expect(writeExactly(value)).toBe(text));

  it("writes what parseExactly reads as the same", () => {
    const text = '{"a": [9223372036854775807, {"b": "9223372036854775807"}], "c": 1.5}';
    expect(writeExactly(parseExactly(text))).toBe(text);
  });
});
