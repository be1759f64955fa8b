import { describe, expect, it } from "vitest";
import { KINDS } from "../testing/samples";
import { captureGroup, type NumberSetting, patchOf, SETTINGS, type Setting, settingValue, shown, valueWords } from "./settings";

const log = captureGroup(KINDS[0]?.captures[0] ?? { title: "", settings: {} });
const all = [log, ...SETTINGS].flatMap(({ settings }) => settings);
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

describe("captureGroup", () => {
  it("has what the schema of the capture names, with its descriptions", () => {
    expect(log.title).toBe("Source's log");
    expect(log.settings.map(({ path, label, means, kind }) => [path.join("."), label, means, kind])).toEqual([
      ["capture.slot_budget_bytes", "Budget", "Log that may be retained.", "number"],
      ["capture.origin", "Changes followed", "Which changes are followed.", "choice"],
      ["capture.guard.warn_share", "Warn from", "An event warns.", "number"],
      ["capture.guard.drop_slot", "The slot may be dropped", "If false, it stays.", "switch"],
    ]);
  });

  it("enters settings of another capture as their types say, and leaves text out", () => {
    const properties = {
      kind: { const: "ledger", type: "string" },
      pages: { anyOf: [{ type: "integer" }, { type: "null" }], title: "Pages", description: "Read at once." },
      strict: { type: "boolean", title: "Strict" },
      order: { enum: ["up", "down"], type: "string", title: "Order" },
      path: { type: "string", title: "Path" },
    };
    expect(captureGroup({ title: "Ledger", settings: { properties } })).toEqual({
      title: "Ledger",
      settings: [
        {
          kind: "number",
          path: ["capture", "pages"],
          label: "Pages",
          means: "Read at once.",
          effect: "next start",
          unit: "",
          per: 1,
          empty: "the default",
        },
        { kind: "switch", path: ["capture", "strict"], label: "Strict", means: "", effect: "next start" },
        {
          kind: "choice",
          path: ["capture", "order"],
          label: "Order",
          means: "",
          effect: "next start",
          choices: [
            { value: "up", means: "" },
            { value: "down", means: "" },
          ],
        },
      ],
    });
  });

  it("is empty without a schema", () => expect(captureGroup({ title: "None", settings: {} }).settings).toEqual([]));
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
