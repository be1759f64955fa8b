import { describe, expect, it } from "vitest";
import { type NumberSetting, patchOf, SETTINGS, type Setting, settingValue, shown, valueWords } from "./settings";

const all = SETTINGS.flatMap(({ settings }) => settings);
const find = (path: string): Setting => {
  const found = all.find((setting) => setting.path.join(".") === path);
  if (found === undefined) throw new Error(`There is no setting ${path}.`);
  return found;
};

describe("SETTINGS", () => {
  it("has each path once", () => expect(new Set(all.map(({ path }) => path.join("."))).size).toBe(all.length));

  it("has labels that differ within a group", () => {
    for (const { settings } of SETTINGS) expect(new Set(settings.map(({ label }) => label)).size).toBe(settings.length);
  });

  it("has choices that differ", () => {
    for (const setting of all) {
      if (setting.kind === "choice") expect(new Set(setting.choices.map(({ value }) => value)).size).toBe(setting.choices.length);
    }
  });
});

describe("settingValue", () => {
  const subscription = { batch: { max_bytes: 5, tasks: null }, queue: { mode: "auto" }, tables: [] };
  it.each([
    [["batch", "max_bytes"], 5],
    [["batch", "tasks"], null],
    [["queue", "mode"], "auto"],
    [["batch", "other"], undefined],
    [["other", "deeper"], undefined],
    [["batch", "tasks", "deeper"], undefined],
    [["tables"], undefined],
  ] as [string[], unknown][])("at %j is %j", (path, value) => expect(settingValue(subscription, path)).toBe(value));
});

describe("patchOf", () => {
  it("puts values at their paths and names nothing else", () => {
    expect(
      patchOf([
        { path: ["capture", "guard", "warn_share"], value: 0.5 },
        { path: ["capture", "origin"], value: "none" },
        { path: ["batch", "tasks"], value: null },
      ]),
    ).toEqual({ capture: { guard: { warn_share: 0.5 }, origin: "none" }, batch: { tasks: null } });
  });

  it("is empty without changes", () => expect(patchOf([])).toEqual({}));
});

describe("valueWords", () => {
  it.each([
    ["freshness.goal_seconds", 45, "45 s"],
    ["batch.max_bytes", 16 * 1024 * 1024, "16 MiB"],
    ["capture.guard.warn_share", 0.55, "55 %"],
    ["batch.max_transactions", 7, "7"],
    ["batch.tasks", null, "chosen by measured cost"],
    ["copies.max_rows_per_second", null, "no limit"],
    ["freshness.goal_seconds", undefined, "the default"],
    ["queue.mode", "persist", "persist"],
    ["queue.mode", null, "the default"],
    ["copies.give_way", true, "yes"],
    ["copies.give_way", undefined, "no"],
  ] as const)("of %s and %s is %s", (path, value, words) => expect(valueWords(find(path), value)).toBe(words));
});

describe("shown", () => {
  it("cuts the digits that come of dividing", () => {
    expect(shown(find("capture.guard.warn_share") as NumberSetting, 0.07)).toBe("7");
    expect(shown(find("batch.max_bytes") as NumberSetting, 1_000_000)).toBe("0.954");
  });
});
