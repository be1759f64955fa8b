import { describe, expect, it } from "vitest";
import { bytes, count, ofBytes, percent, seconds, some } from "./numbers";

/** With spaces for the no-break spaces between numbers and units. */
const plain = (text: string): string => text.replaceAll("\u00a0", " ");

describe("seconds", () => {
  it.each([
    [0, "0.0 s"],
    [0.04, "0.0 s"],
    [9.94, "9.9 s"],
    [10, "10 s"],
    [119.4, "119 s"],
    [120, "2 min"],
    [7_199, "120 min"],
    [7_200, "2.0 h"],
    [172_799, "48.0 h"],
    [172_800, "2 days"],
    [864_000, "10 days"],
  ])("writes %d as %s", (value, text) => expect(plain(seconds(value))).toBe(text));

  it.each([null, undefined])("writes %s as unknown", (value) => expect(seconds(value)).toBe("–"));

  it("keeps the number and its unit on one line", () => expect(seconds(5)).toBe("5.0\u00a0s"));
});

describe("bytes", () => {
  it.each([
    [0, "0 B"],
    [512, "512 B"],
    [999, "999 B"],
    [1000, "1 KiB"],
    [1280, "1.2 KiB"],
    [1536, "1.5 KiB"],
    [1792, "1.8 KiB"],
    [102_912, "100 KiB"],
    [103_936, "102 KiB"],
    [102_400, "100 KiB"],
    [1024 ** 2 - 1, "1 MiB"],
    [1024 ** 2, "1 MiB"],
    [16 * 1024 ** 3, "16 GiB"],
    [1024 ** 4, "1 TiB"],
    [1024 ** 5, "1 PiB"],
    [5000 * 1024 ** 5, "5000 PiB"],
  ])("writes %d as %s", (value, text) => expect(plain(bytes(value))).toBe(text));

  it("writes null as unknown", () => expect(bytes(null)).toBe("–"));

  it("writes a whole after its share", () => expect(plain(ofBytes(16 * 1024 ** 3))).toBe("of 16 GiB"));
});

describe("count", () => {
  it.each([
    [0, "0"],
    [1234, "1,234"],
    [-5, "-5"],
    [null, "–"],
    [undefined, "–"],
  ])("writes %s as %s", (value, text) => expect(count(value)).toBe(text));
});

describe("percent", () => {
  it.each([
    [0, "0 %"],
    [0.004, "< 1 %"],
    [0.01, "1 %"],
    [0.555, "56 %"],
    [1, "100 %"],
    [1.2, "120 %"],
  ])("writes %d as %s", (share, text) => expect(plain(percent(share))).toBe(text));
});

describe("some", () => {
  it.each([
    [0, "0 tables"],
    [1, "1 table"],
    [2000, "2,000 tables"],
  ])("writes %d as %s", (number, text) => expect(some(number, "table")).toBe(text));
});
