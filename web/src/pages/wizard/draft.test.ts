import { describe, expect, it } from "vitest";
import { sourceTable } from "../../testing/samples";
import {
  bodyOf,
  captureFields,
  captureOf,
  chosenOf,
  DEFAULTS,
  type Draft,
  hasSetting,
  isBlocked,
  keyOf,
  lacksIdentity,
  type Pattern,
  tablesToCheck,
  takes,
} from "./draft";

const finding = (code: string, severity: "error" | "warning" = "error") => ({ code, severity, what: "", remedy: "" });
const orders = sourceTable();
const readings = sourceTable({ name: "readings", problems: [finding("table_no_identity")] });
const star = sourceTable({ name: "a*b" });
const tables = [orders, readings, star];

const pattern = (changes: Partial<Pattern> = {}): Pattern => ({ schema: "public", name: "*", exclude: [], insertOnly: false, ...changes });
const draft = (changes: Partial<Draft> = {}): Draft => ({
  name: "copy",
  source: "shop",
  target: "mart",
  tables: new Set(),
  insertOnly: new Set(),
  patterns: [],
  detections: {},
  options: DEFAULTS,
  ...changes,
});
const chosen = (...found: (typeof tables)[number][]): ReadonlySet<string> => new Set(found.map(keyOf));

describe("tables of a source", () => {
  it("lack an identity, or are blocked, by their problems", () => {
    expect([lacksIdentity(readings), isBlocked(readings)]).toEqual([true, false]);
    const blocked = sourceTable({ problems: [finding("table_unlogged")] });
    expect([lacksIdentity(blocked), isBlocked(blocked)]).toEqual([false, true]);
    const warned = sourceTable({ problems: [finding("table_unlogged", "warning")] });
    expect([lacksIdentity(warned), isBlocked(warned)]).toEqual([false, false]);
  });
});

describe("patterns", () => {
  it.each([
    [{ name: "*" }, true],
    [{ name: "ord*" }, true],
    [{ name: "*d*s" }, true],
    [{ name: "order" }, false],
    [{ name: "o.ders*" }, false],
    [{ name: "*", schema: "other" }, false],
    [{ name: "*", exclude: ["x", "*ers"] }, false],
  ])("%j takes public.orders: %s", (changes, taken) => expect(takes(pattern(changes), orders)).toBe(taken));

  it("take no views, which are replicated by name only", () => {
    const view = sourceTable({ problems: [{ code: "view", severity: "info", what: "", remedy: "" }] });
    expect(takes(pattern(), view)).toBe(false);
  });

  it("choose tables beside those that are chosen by name, each once", () => {
    expect(chosenOf(draft({ tables: chosen(orders), patterns: [pattern({ name: "*r*" })] }), tables)).toEqual([orders, readings]);
  });
});

describe("bodyOf", () => {
  it("leaves out what is at its default", () => {
    expect(bodyOf(draft({ tables: chosen(orders) }), tables)).toEqual({
      source: "shop",
      target: "mart",
      tables: [{ schema: "public", name: "orders" }],
      desired_state: "running",
    });
  });

  it("declares what differs", () => {
    const options = { ...DEFAULTS, start: false, policy: "ask", origin: "none", rowsPerSecond: "5000", slotBudgetGib: "0.5" } as const;
    expect(bodyOf(draft({ options }), tables)).toMatchObject({
      desired_state: "stopped",
      capture: { origin: "none", slot_budget_bytes: 512 * 1024 ** 2 },
      schema_changes: { policy: "ask" },
      copies: { max_rows_per_second: 5000 },
    });
  });

  it("declares the capture that is chosen, with what is typed for it", () => {
    const settings = { properties: { pages: { type: "integer", default: 1 }, origin: { $ref: "#" } } };
    const [log, ledger] = ["log", "ledger"].map((kind) => ({
      kind,
      title: kind,
      description: "",
      by_triggers: false,
      table_options: [],
      settings,
    }));
    const options = { ...DEFAULTS, capture: "ledger", captureSettings: { pages: "3" } };
    const captures = [log, ledger].filter((each) => each !== undefined);
    const capture = captureOf(captures, options);
    expect([capture, captureOf(captures, DEFAULTS)]).toEqual([ledger, log]);
    expect([hasSetting(capture, "origin"), hasSetting(capture, "slot_budget_bytes")]).toEqual([true, false]);
    expect(bodyOf(draft({ options }), tables, captureFields(capture)).capture).toEqual({ kind: "ledger", pages: 3 });
    expect(bodyOf(draft(), tables, captureFields(log)).capture).toBeUndefined();
  });

  it("declares what holds for each table", () => {
    const options = { ...DEFAULTS, targetSchema: "mart", refusedRows: "set_aside" } as const;
    expect(bodyOf(draft({ tables: chosen(readings), insertOnly: chosen(readings), options }), tables).tables).toEqual([
      { schema: "public", name: "readings", insert_only: true, target: { schema: "mart" }, refused_rows: "set_aside" },
    ]);
  });

  it("takes a star in the name of a chosen table for what it is", () => {
    expect(bodyOf(draft({ tables: chosen(star) }), tables).tables).toEqual([{ schema: "public", name: "a*b", exact: true }]);
  });

  it("declares patterns as patterns", () => {
    expect(bodyOf(draft({ patterns: [pattern({ exclude: ["tmp*"], insertOnly: true })] }), tables).tables).toEqual([
      { schema: "public", name: "*", insert_only: true, exclude: ["tmp*"] },
    ]);
  });
});

describe("tablesToCheck", () => {
  it("names each table that a pattern takes, with inserts only where it lacks an identity", () => {
    expect(tablesToCheck(draft({ patterns: [pattern({ insertOnly: true })] }), tables)).toEqual([
      { schema: "public", name: "orders" },
      { schema: "public", name: "readings", insert_only: true },
      { schema: "public", name: "a*b", exact: true },
    ]);
  });
});
